"""Owners whose moves would go where the removal of nodes has undone earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.resting_owners import HistoryRules
from rebalancer.policy.history.undone_moves import pairs, why, worn
from rebalancer.runtime.cycle.domains_left import domains_left


def same_keys(domains: Iterable[str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The domains (key=value) of a node with these labels, for the keys of `domains`."""
    keys = (d.partition("=")[0] for d in domains)
    return tuple(f"{k}={labels[k]}" for k in keys if k in labels)


def undone(
    snapshot: Snapshot, plan: Plan, ledger: Ledger, rules: HistoryRules, *, now: float
) -> dict[str, Reason]:
    """Owner → why it is left alone: wherever a replacement of this plan may land, the pair of domains is
    worn."""
    tired = worn(ledger, rules, now)
    if not tired:
        return {}
    labels = {n.name: n.labels for n in snapshot.nodes}
    left = domains_left(snapshot, plan)
    found: dict[str, Reason] = {}
    for move in plan.moves:
        leaves = left(move)
        there = [pairs(leaves, same_keys(leaves, labels.get(d, {}))) for d in move.destinations]
        if there and all(any(p in tired for p in ps) for ps in there):
            pair = next(p for p in there[0] if p in tired)
            found.setdefault(move.owner.key, why(pair, tired[pair], rules))
    return found
