"""How long a violation has to last before a pod is evicted because of it, and for how long a domain that came
back has to be there before it is used.

A rollout or an autoscaler may be about to end a young violation. One that came with the nodes of a domain is
not their doing: it need not last, but the domain has to settle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from msgspec import Struct

from rebalancer.model.node import Node
from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.fingerprints import selects
from rebalancer.policy.ledger import Ledger, Opening
from rebalancer.policy.waits import ATTENDED, FEWEST, HistoryRules, moment, opening_for, wait
from rebalancer.spread.nodes import tolerated

# Since when a violation lasts.


class Onset(Struct, frozen=True):
    """That watches have seen a violation begin: so many seconds ago, and whether nodes made it, not pods."""

    ago: float
    by_nodes: bool


class Followed(Struct, frozen=True):
    """What watches know of the present violations. `unbroken`: for how many seconds they have missed nothing.
    `onsets`: constraint id → how it began, or later. Without watches nothing is known."""

    unbroken: float = -inf
    onsets: Mapping[str, Onset] = {}


def first_seen(
    ledger: Ledger,
    violated: Iterable[str],
    youngest: Callable[[str], float | None],
    followed: Followed,
    *,
    now: float,
) -> dict[str, float]:
    """When each present violation began: constraint id → epoch seconds. The ledger stores the result.

    `violated`: the id of each violated constraint; `youngest`: when the youngest pod that it counts was
    created, None if unknown; asked only where that matters. One that is known is no older than that pod,
    unless watches have followed it since the ledger was written: it may have ended in between. One that is
    not known is as old as that pod where the ledger has never looked for violations, and otherwise begins
    now.
    """
    since: dict[str, float] = {}
    missed = now - followed.unbroken > ledger.looked
    for constraint in violated:
        onset, known = followed.onsets.get(constraint), ledger.violated.get(constraint)
        began = [now - onset.ago] if onset is not None else []
        began += [known] if known is not None else []
        asked = missed if began else not ledger.looked
        if asked and (made := youngest(constraint)) is not None:
            began.append(made)
        # A clock that was set back does not lengthen the wait.
        since[constraint] = min(now, max(began, default=now))
    return since


def stabilizing(since: float, rules: HistoryRules, now: float, settled: float = inf) -> Reason | None:
    """Why nothing is evicted yet because of a violation that began at `since`; None if it has lasted enough.
    `settled`: from when on it need not last."""
    lasted = since + rules.stabilization
    if now >= min(settled, lasted):
        return None
    if settled < lasted:
        return settling(settled, rules, now)
    why = (
        f"its violation is not known from before {moment(since, now)} and has to last "
        f"{rules.stabilization:.0f} s"
    )
    remedy = f"wait, or shorten evictions.stabilization; {ATTENDED}"
    return wait(ReasonCode.STABILIZING, why, lasted, now, remedy)


# Domains that came back, as the pods of a template see them: what they cannot use is not there.


class Arrival(Struct, frozen=True):
    """A domain that came back, or was opened, not long ago. Epoch seconds.

    `at`: since when one of its nodes can be used. `usable`: from when on it may be used. `settled`: from when
    on a violation that came with it need not last; infinity while a node of it is not Ready, or is shut.
    """

    at: float
    usable: float
    settled: float

    def later(self, other: Arrival) -> Arrival:
        """Both as one."""
        return Arrival(
            min(self.at, other.at), max(self.usable, other.usable), max(self.settled, other.settled)
        )


_UNREADY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def arrival(
    nodes: Sequence[Node],
    template: PodTemplate,
    openings: Mapping[str, Opening],
    rules: HistoryRules,
    now: float,
    *,
    latest: float,
) -> Arrival | None:
    """Whether and when the domain with these nodes has arrived.

    It came back if all of them that are Ready became so lately. Until the others are, it is not used for as
    long as that counts as lately: they may never come.
    """
    lately = max(rules.stabilization, rules.settle)

    def ready(node: Node) -> float:
        return min(node.ready_since or 0.0, latest)  # what its clock says that is ahead is not over

    def usable(node: Node) -> bool:
        return selects(template, node) and not _shut(node, template)

    if not any(n.ready and now - ready(n) >= lately and usable(n) for n in nodes):
        every = [n for n in nodes if usable(n)]
        since = [ready(n) for n in every if n.ready]
        if not since:
            return None
        if len(since) < len(every):
            return Arrival(min(since), min(since) + lately, inf)
        settled = max(since) + rules.settle
        return Arrival(min(since), settled, settled)
    opening = opening_for(openings, template.tolerations)
    mine = [n for n in nodes if selects(template, n)]
    if opening is None or opening.shut or opening.opened <= 0 or len(mine) < FEWEST:
        return None
    if now - opening.opened >= rules.stabilization:
        return None
    shut = any(_shut(n, template) for n in mine)
    return Arrival(opening.opened, -inf, inf if shut else opening.opened + rules.settle)


def _shut(node: Node, template: PodTemplate) -> bool:
    """Whether the pod could not be placed there were the node Ready."""
    return any(t.key not in _UNREADY and not tolerated(t, template.tolerations) for t in node.shut_by)


def settling(until: float, rules: HistoryRules, now: float) -> Reason:
    """That a domain has to settle first."""
    why = f"nodes of a domain that is back have to be Ready, and open, for {rules.settle:.0f} s"
    remedy = f"wait, or shorten schedule.nodeSettle; {ATTENDED}"
    return wait(ReasonCode.STABILIZING, why, until, now, remedy)
