"""Which owners rest, which means that no pod of them is evicted for now, because of earlier evictions.

Three rules look at the ledger, in this order:

- Cool-down: an owner rests for `cool_down` after each eviction in an earlier cycle.
- No help: the replacement went astray or did not become Ready. The owner rests as long as what the move
  rested on is as it was (`digests.Fingerprints`), but not longer than `retry_after`.
- Loop: the violation has come back `max_returns` times although all evictions went as predicted, so something
  else undoes them. The owner rests as long as that, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.node import Node
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.ledger import Entry, Fate, Ledger
from rebalancer.policy.owners import held

_GATED = 7 * 24 * 3600.0
"""Seconds for which a namespace is left alone in which a replacement was held back."""
_AWAY = frozenset({Fate.ASTRAY, Fate.FAILED})


class HistoryRules(Struct, frozen=True, kw_only=True):
    """What the rules that look at earlier cycles allow. Durations are in seconds; 0 switches a rule off.

    `canary`: how many evictions in a row must go as predicted before a cycle may evict more than one pod.
    `settle`: for how long the nodes of a domain that came back have to be Ready; a violation by it need not
    last.
    """

    cool_down: float = 0.0
    retry_after: float = 6 * 3600.0
    max_returns: int = 2
    stabilization: float = 0.0
    settle: float = 10.0
    canary: int = 0


def waiting_owners(
    ledger: Ledger,
    rules: HistoryRules,
    *,
    now: float,
    cycle: str,
    cluster: Callable[[Entry], str],
) -> dict[str, Reason]:
    """Owner (Kind/namespace/name) → why it rests.

    `cycle`: the present cycle, whose own evictions do not make an owner rest. `cluster`: the present digest
    of what a move rested on (`digests.Fingerprints`), "" if its owner is gone.
    """
    by_owner: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        by_owner[entry.owner].append(entry)
    found: dict[str, Reason] = {}
    for owner, entries in by_owner.items():
        reason = _cooling([e for e in entries if e.cycle != cycle], rules, now)
        if reason is None:
            recent = [e for e in entries if now - e.at < rules.retry_after]
            if any(e.fate in _AWAY for e in recent) or len(recent) > rules.max_returns:
                # What a node's removal has undone counts against its domains (`undone_moves`).
                alike = [e for e in recent if e.cluster and e.cluster == cluster(e) and not e.removed]
                reason = _no_help(alike, rules) or _loop(alike, rules)
        if reason is not None:
            found[owner] = reason
    return found


def held_back(ledger: Ledger, now: float) -> dict[str, Reason]:
    """Namespace → why no owner in it loses a pod: the last replacement there that was held back by scheduling
    gates which its template does not have."""
    return {
        e.namespace: held(e.owner, e.gates, f"; after {_GATED / 86_400:g} d it is tried again")
        for e in ledger.entries
        if e.gates and now - e.at < _GATED
    }


def _cooling(entries: Sequence[Entry], rules: HistoryRules, now: float) -> Reason | None:
    last = max((e.at for e in entries), default=None)
    if last is None or not rules.cool_down or now - last >= rules.cool_down:
        return None
    left = rules.cool_down - (now - last)
    return Reason(
        ReasonCode.COOL_DOWN,
        f"its owner rests: a pod of it was evicted {max(0.0, now - last):.0f} s ago, the cool-down is "
        f"{rules.cool_down:.0f} s",
        {"seconds": int(left)},
        "wait, or shorten evictions.coolDown",
    )


def _no_help(alike: Sequence[Entry], rules: HistoryRules) -> Reason | None:
    failed = next((e for e in reversed(alike) if e.fate in _AWAY), None)
    if failed is None:
        return None
    what = f"went to {failed.landed}" if failed.fate is Fate.ASTRAY else "did not become Ready"
    return Reason(
        ReasonCode.DID_NOT_HELP,
        f"evicting {failed.key} did not help: its replacement {what}; nodes and workload are as they were",
        {},
        f"it is tried again when they change, or after {rules.retry_after / 3600:g} h (evictions.retryAfter)",
    )


def returns(entries: Iterable[Entry]) -> int:
    """In how many cycles a constraint's excess was no lower than in the cycle before."""
    before: dict[str, tuple[str, int]] = {}
    returned: dict[str, set[str]] = defaultdict(set)
    for e in sorted(entries, key=lambda e: e.at):
        for constraint, excess in e.excess.items():
            last = before.get(constraint)
            if last is not None and last[0] == e.cycle:
                continue  # later plans of one cycle have less to do
            if last is not None and excess >= last[1]:
                returned[constraint].add(e.cycle)
            before[constraint] = (e.cycle, excess)
    return max((len(cycles) for cycles in returned.values()), default=0)


def _loop(alike: Sequence[Entry], rules: HistoryRules) -> Reason | None:
    if rules.max_returns < 1:
        return None
    most = returns(alike)
    if most < rules.max_returns:
        return None
    return Reason(
        ReasonCode.EVICTION_LOOP,
        f"its violation has come back {most} times after evictions that went as predicted: something else "
        "keeps undoing them",
        {"returns": most},
        "look for another descheduler, an autoscaler or a job that moves its pods; it is tried again when "
        f"nodes or workload change, or after {rules.retry_after / 3600:g} h (evictions.retryAfter)",
    )


# How long a violation must last before anything is evicted because of it.


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


# Moves that were undone because the node on which the replacement had landed was removed soon after.
#
# An autoscaler that consolidates removes what spreading has filled. That says nothing against the owner,
# but against this pair of domains: while it lasts, no pod is moved from the one to the other.

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


def undone_pairs(ledger: Ledger, rules: HistoryRules, now: float) -> dict[Pair, int]:
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
