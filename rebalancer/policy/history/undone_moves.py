"""Moves that were undone because the node on which the replacement had landed was removed soon after.

An autoscaler that consolidates removes what spreading has filled. That says nothing against the owner, but
against this pair of domains: while it lasts, no pod is moved from the one to the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.history.ledger import Entry, Fate, Ledger
from rebalancer.policy.history.resting_owners import HistoryRules

SOON = 86_400.0
"""A node that goes later than this, in seconds, has not undone the move: nodes are replaced now and then."""
WEEK = 7 * 86_400.0
LEAST, SHARE = 3, 0.25
"""From so many undone moves on, and from this share of all of the week, consolidation and spread contradict
each other."""

Pair = tuple[str, str]
"""The domain that a pod left and the one where its replacement landed, each as key=value of one key."""


class Account(Struct, frozen=True):
    """How many of the week's moves were undone."""

    undone: int
    moves: int

    @property
    def contradicts(self) -> bool:
        """Whether it is so many that spreading is in vain."""
        return self.undone >= LEAST and self.undone >= SHARE * self.moves


def marked(entries: Iterable[Entry], nodes: Collection[str], now: float) -> tuple[Entry, ...]:
    """The entries; those whose node is gone by now, and was there when they were made, say when."""
    return tuple(
        replace(e, removed=now)
        if e.fate is Fate.DONE and not e.removed and e.landed not in nodes and 0 <= now - e.at <= SOON
        else e
        for e in entries
    )


def account(ledger: Ledger, now: float) -> Account:
    """The moves of the last week."""
    recent = [e for e in ledger.entries if e.fate is Fate.DONE and now - e.at <= WEEK]
    return Account(sum(e.removed > 0 for e in recent), len(recent))


def worn(ledger: Ledger, rules: HistoryRules, now: float) -> dict[Pair, int]:
    """The pairs of domains that are left alone for now, and in how many cycles moves between them were
    undone."""
    cycles: dict[Pair, set[str]] = defaultdict(set)
    for e in ledger.entries:
        if e.removed and now - e.removed < rules.retry_after:
            for pair in pairs(e.leaves, e.into):
                cycles[pair].add(e.cycle)
    return {
        pair: len(names)
        for pair, names in cycles.items()
        if rules.max_returns and len(names) >= rules.max_returns
    }


def pairs(leaves: Iterable[str], into: Iterable[str]) -> list[Pair]:
    """The domains left and entered that are of one key, and differ."""
    entered = {d.partition("=")[0]: d for d in into}
    found = ((d, entered.get(d.partition("=")[0], d)) for d in leaves)
    return [(left, there) for left, there in found if left != there]


def why(pair: Pair, times: int, rules: HistoryRules) -> Reason:
    """Why no pod of an owner goes from the one domain to the other for now."""
    return Reason(
        ReasonCode.NODES_REMOVED,
        f"moves from {pair[0]} to {pair[1]} were undone {times} times: the nodes on which the replacements "
        "had landed were removed",
        {"times": times},
        "keep the autoscaler from consolidating there (Karpenter: a disruption budget of the NodePool); it "
        f"is tried again after {rules.retry_after / 3600:g} h (evictions.retryAfter)",
    )
