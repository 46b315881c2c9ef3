"""How long a violation must last before anything is evicted because of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rebalancer.model.node import Node
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.resting_owners import HistoryRules


def first_seen(ledger: Ledger, violated: Mapping[str, float | None], *, now: float) -> dict[str, float]:
    """When each present violation began: constraint id → epoch seconds. The ledger stores the result.

    `violated`: id of each violated constraint → when the youngest counted pod was created, None if unknown.
    That time is used only if the ledger has never looked for violations. Otherwise a violation that the
    ledger does not know begins now.
    """
    since: dict[str, float] = {}
    for constraint, youngest in violated.items():
        known = ledger.violated.get(constraint)
        if known is not None:
            since[constraint] = min(known, now)  # a clock that was set back does not lengthen the wait
        elif ledger.looked:
            since[constraint] = now
        else:
            since[constraint] = min(youngest, now) if youngest is not None else now
    return since


def stabilizing(since: float, rules: HistoryRules, now: float) -> Reason | None:
    """Why nothing is evicted yet because of a violation that began at `since`; None if it has lasted
    enough."""
    lasted = max(0.0, now - since)
    if lasted >= rules.stabilization:
        return None
    return Reason(
        ReasonCode.STABILIZING,
        f"its violation was first seen {lasted:.0f} s ago and has to last {rules.stabilization:.0f} s",
        {"seconds": int(rules.stabilization - lasted)},
        "wait, or shorten evictions.stabilization",
    )


def came_back(nodes: Iterable[Node], rules: HistoryRules, now: float, latest: float) -> bool:
    """Whether a domain with these nodes has come (back) and settled: all of them became Ready not long ago,
    and have been so for `rules.settle`.

    Neither a rollout nor an autoscaler is at work then, and a violation by that domain need not last.
    """
    since = [n.ready_since for n in nodes]
    return bool(since) and all(
        s is not None and rules.settle <= now - s and latest - s < rules.stabilization for s in since
    )
