"""What an owner waits for before a pod of it is evicted. Each wait is a reason with its end: the number
`until`, in epoch seconds; what has no end by the clock names in its remedy what ends it.

- Cool-down: for `cool_down` after each eviction in an earlier cycle.
- No help: the replacement landed elsewhere or did not become Ready. The owner waits as long as what the move
  rested on is as it was (`Fingerprints`), or nobody can tell, but not longer than `retry_after`.
- Loop: the violation has come back `max_returns` times although all evictions went as predicted, so something
  else undoes them. The owner waits as long as that, too.
- Stabilization: the violation is too young, or a domain that came back has not settled (`stabilization`).
- Undone moves: the domain where the replacements landed shrank soon after. The more often, the longer.
- A domain that is out: all its nodes were shut, or somebody has said so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, inf
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.node import HOSTNAME, LEAVING_TAINTS, ZONE, Node, Taint, TaintEffect, Toleration
from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.history.fingerprints import alike, recipe_of, selects
from rebalancer.policy.history.ledger import DAY, WEEK, Entry, Fate, Ledger, Opening, taints_in
from rebalancer.policy.queues import held
from rebalancer.spread.nodes import tolerated

_GATED = WEEK
"""Seconds for which a namespace is left alone in which a replacement was held back."""
_AWAY = frozenset({Fate.ELSEWHERE, Fate.FAILED})


class HistoryRules(Struct, frozen=True, kw_only=True):
    """What the rules that look at earlier cycles allow. Durations are in seconds; 0 switches a rule off.

    `canary`: how many evictions in a row must go as predicted before a cycle may evict more than one pod.
    `settle`: for how long the nodes of a domain that came back have to be Ready; a violation that came with
    it need not last. `after_undone`: for how long no pod moves between two domains after such moves were
    undone once, twice, and so on, the last for every further time; empty: nothing waits. `out_wait`: how long
    moves wait that a domain which is out could change.
    """

    cool_down: float = 0.0
    retry_after: float = 6 * 3600.0
    max_returns: int = 2
    stabilization: float = 0.0
    settle: float = 10.0
    canary: int = 0
    after_undone: tuple[float, ...] = (600.0, 1800.0, 7200.0, 21_600.0)
    out_wait: float = 0.0

    def stricter(self, other: HistoryRules) -> HistoryRules:
        """Of both rules, each time the one that waits longer."""
        return HistoryRules(
            cool_down=max(self.cool_down, other.cool_down),
            retry_after=max(self.retry_after, other.retry_after),
            max_returns=min(self.max_returns or other.max_returns, other.max_returns or self.max_returns),
            stabilization=max(self.stabilization, other.stabilization),
            settle=max(self.settle, other.settle),
            canary=max(self.canary, other.canary),
            after_undone=max(self.after_undone, other.after_undone, key=sum),
            out_wait=max(self.out_wait, other.out_wait),
        )


# A wait, and several of one owner as one.

Waits = dict[str, list[Reason]]
"""Owner (Kind/namespace/name) → what it waits for."""
ATTENDED = "`rebalancer once --execute` does not wait"


def moment(at: float, now: float) -> str:
    """A time of day in UTC, with its date where it is not near."""
    return f"{datetime.fromtimestamp(at, UTC):{'%H:%M:%SZ' if at - now < DAY / 2 else '%Y-%m-%d %H:%MZ'}}"


def one_run(setting: str, value: str) -> str:
    """How a setting of evictions is otherwise for one run."""
    variable = "".join(f"_{c}" if c.isupper() else c for c in setting).upper()
    return f"for one run: REBALANCER_EVICTIONS__{variable}={value} rebalancer once --execute"


def wait(code: ReasonCode, why: str, until: float, now: float, remedy: str, **numbers: int) -> Reason:
    """A wait that ends by the clock."""
    end = ceil(until)
    return Reason(code, f"waits until {moment(end, now)}: {why}", {"until": end, **numbers}, remedy)


_WAITS = frozenset(
    {
        ReasonCode.COOL_DOWN,
        ReasonCode.DID_NOT_HELP,
        ReasonCode.EVICTION_LOOP,
        ReasonCode.STABILIZING,
        ReasonCode.NODES_REMOVED,
        ReasonCode.NO_NODE_CAME,
        ReasonCode.DOMAIN_OUT,
        ReasonCode.RELEASED,
        ReasonCode.NODE_EXPIRING,
    }
)


def is_wait(reason: Reason) -> bool:
    """Whether it is one of these, or ends by the clock as they do."""
    return reason.code in _WAITS or "until" in reason.numbers


def end_of(reason: Reason) -> float:
    """When a wait is over; infinity if no clock ends it."""
    return reason.numbers.get("until", inf)


def together(waits: Mapping[str, Iterable[Reason]]) -> dict[str, Reason]:
    """All waits of each owner as one reason: the one that ends last, which names the others too."""
    found: dict[str, Reason] = {}
    for owner, reasons in waits.items():
        last, *others = sorted(reasons, key=end_of, reverse=True)
        said = "; ".join((last.message, *(r.message for r in others)))
        found[owner] = replace(last, message=said) if others else last
    return found


def waiting_owners(
    ledger: Ledger,
    rules: HistoryRules,
    *,
    now: float,
    cycle: str,
    cluster: Callable[[Entry], str],
) -> Waits:
    """What the owners of former evictions wait for.

    `cycle`: the present cycle, for whose own evictions no owner waits. `cluster`: the present digest
    of what a move rested on (`Fingerprints`), "" if its owner is gone.
    """
    found: Waits = {}
    for owner, entries in _by_owner(ledger.entries).items():
        others = [e for e in entries if e.cycle != cycle]
        reasons = [_cooling(others, rules, now), _on_its_way(others, rules, now)]
        recent = [e for e in entries if now - e.at < rules.retry_after]
        if any(e.fate in _AWAY for e in recent) or len(recent) > rules.max_returns:
            unchanged = _unchanged(recent, cluster)
            reasons += [_no_help(unchanged, rules, now) or _loop(unchanged, rules, now)]
        if known := [r for r in reasons if r is not None]:
            found[owner] = known
    return found


def _by_owner(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.owner].append(entry)
    return found


def _unchanged(recent: Sequence[Entry], cluster: Callable[[Entry], str]) -> list[Entry]:
    """Those of one owner that still say something: what they rested on is as it was. What was undone because
    nodes are gone counts against their domains (`undone_pairs`)."""
    stayed = (e for e in recent if not e.removed and not any(e.shrank))
    last = {recipe_of(e.cluster): e.cluster for e in recent}
    return [e for e in stayed if alike(e.cluster, cluster(e), last[recipe_of(e.cluster)])]


def looping(
    ledger: Ledger, rules: HistoryRules, *, now: float, cluster: Callable[[Entry], str]
) -> dict[str, Reason]:
    """Constraint id → that its violation comes back, after evictions of whichever of the owners it counts.

    `cluster`: as in `waiting_owners`."""
    recent = [e for e in ledger.entries if now - e.at < rules.retry_after]
    cycles: dict[str, set[str]] = defaultdict(set)
    for e in recent:
        for i in e.excess:
            cycles[i].add(e.cycle)
    # What an owner's moves rested on is costly to find out: it is asked where so many cycles could be a loop.
    often = {i for i, c in cycles.items() if len(c) > rules.max_returns}
    by_constraint: dict[str, list[Entry]] = defaultdict(list)
    for entries in _by_owner(recent).values():
        if any(not often.isdisjoint(e.excess) for e in entries):
            for e in _unchanged(entries, cluster):
                for i in often & e.excess.keys():
                    by_constraint[i].append(replace(e, excess={i: e.excess[i]}))
    oldest_first = {i: sorted(some, key=lambda e: e.at) for i, some in by_constraint.items()}
    found = {i: _loop(some, rules, now) for i, some in oldest_first.items()}
    return {i: reason for i, reason in found.items() if reason is not None}


def held_back(ledger: Ledger, now: float) -> dict[str, Reason]:
    """Namespace → why no owner in it loses a pod: the last replacement there that was held back by scheduling
    gates which its template does not have."""
    return {
        e.namespace: wait(
            ReasonCode.ADMISSION_QUEUE, (held_by := held(e.owner, e.gates)).message, e.at + _GATED, now,
            held_by.remedy,
        )
        for e in ledger.entries
        if e.gates and now - e.at < _GATED
    }  # fmt: skip


def _cooling(entries: Sequence[Entry], rules: HistoryRules, now: float) -> Reason | None:
    last = max((e.at for e in entries if e.fate is not Fate.INTENDED), default=None)
    if last is None or not rules.cool_down or now - last >= rules.cool_down:
        return None
    why = f"a pod of it was evicted at {moment(last, now)}, the cool-down is {rules.cool_down:.0f} s"
    remedy = f"wait, or shorten evictions.coolDown; {ATTENDED}"
    return wait(ReasonCode.COOL_DOWN, why, last + rules.cool_down, now, remedy)


def _on_its_way(entries: Sequence[Entry], rules: HistoryRules, now: float) -> Reason | None:
    """When it was intended says nothing of when another process has sent it, from when on it is to rest."""
    sent = [e for e in entries if e.fate is Fate.INTENDED]
    if not sent or not rules.cool_down:
        return None
    last = max(sent, key=lambda e: e.over_at)
    why = f"another process was about to evict {last.key}, and what it sent may still be carried out"
    return wait(ReasonCode.COOL_DOWN, why, max(now, last.over_at), now, f"wait; {ATTENDED}")


def _no_help(alike: Sequence[Entry], rules: HistoryRules, now: float) -> Reason | None:
    failed = next((e for e in reversed(alike) if e.fate in _AWAY), None)
    if failed is None:
        return None
    what = f"went to {failed.landed}" if failed.fate is Fate.ELSEWHERE else "did not become Ready"
    # One that was to be replaced first stays if its replacement does not become Ready.
    tried = "replacing" if failed.method else "evicting"
    late = failed.fate is Fate.FAILED and failed.landed
    change = "they are others, or it becomes Ready" if late else "they are others"
    return wait(
        ReasonCode.DID_NOT_HELP,
        f"{tried} {failed.key} did not help: its replacement {what}; nodes and workload are as they were",
        failed.at + rules.retry_after,
        now,
        f"it is tried again sooner if {change}; {one_run('retryAfter', '0s')}",
    )


def returns(entries: Iterable[Entry]) -> int:
    """In how many cycles a constraint's surplus was no lower than in the one before, or higher than that had
    left it."""
    before: dict[str, tuple[str, int]] = {}
    returned: dict[str, set[str]] = defaultdict(set)
    for e in sorted(entries, key=lambda e: e.at):
        for constraint, excess in e.excess.items():
            last = before.get(constraint)
            if last is not None and last[0] == e.cycle:
                continue  # later plans of one cycle have less to do
            if last is not None and excess > last[1]:
                returned[constraint].add(e.cycle)
            before[constraint] = (e.cycle, e.left.get(constraint, excess - 1))
    return max((len(cycles) for cycles in returned.values()), default=0)


def _loop(alike: Sequence[Entry], rules: HistoryRules, now: float) -> Reason | None:
    if rules.max_returns < 1:
        return None
    most = returns(alike)
    if most < rules.max_returns:
        return None
    # It ends when so many of the first are too old that the rest is no loop.
    late = next(i for i in range(1, len(alike) + 1) if returns(alike[i:]) < rules.max_returns)
    return wait(
        ReasonCode.EVICTION_LOOP,
        f"its violation has come back {most} times after evictions that went as predicted: something else "
        "keeps undoing them",
        alike[late - 1].at + rules.retry_after,
        now,
        "look for another descheduler, an autoscaler or a job that moves its pods; it is tried again sooner "
        f"if nodes or workload change; {one_run('maxReturns', '0')}",
        returns=most,
    )


def first_to_end(reasons: Iterable[Reason]) -> Reason | None:
    """The wait that is over first, with how many others there are; None if none of them is a wait."""
    first, *others = sorted({id(r): r for r in reasons if is_wait(r)}.values(), key=end_of) or (None,)
    if first is None or not others:
        return first
    more = "another workload waits" if len(others) == 1 else f"{len(others)} more workloads wait"
    return replace(first, message=f"{first.message}; {more} until then or longer")


# Moves that were undone because the domain where the replacement had landed shrank soon after.
#
# An outage comes again, or an autoscaler that consolidates removes what spreading has filled. That says
# nothing against the owner, but against this pair of domains. A node that is gone says nothing either, where
# others have taken its place: nodes are replaced all the time. Where nodes are the domains, the next one has
# another name: so any two count as one pair, for the owner alone. A replacement that did not become Ready
# where the nodes then went counts as well: the next nodes may be as those were.

SOON = 86_400.0
"""What shrinks later than this, in seconds, has not undone the move."""
_BLIP = 120.0
"""Seconds for which a node may be NotReady: pods tolerate 300 of them, if nobody says otherwise."""
_REPLACED = 900.0
"""Seconds in which other nodes may take the place of those that are gone."""
LEAST, SHARE = 3, 0.25
"""From so many undone moves on, and from this share of all of the week, the removal of nodes and spread
contradict each other; not where one outage has undone them all."""

Pair = tuple[str, str]
"""The domain that a pod left and the one where its replacement landed, each as key=value of one key; or that
of nodes, and the owner."""


class Account(Struct, frozen=True):
    """How many of the week's moves were undone, by so many disturbances."""

    undone: int
    moves: int
    disturbances: int

    @property
    def contradicts(self) -> bool:
        """Whether it is so many that spreading is in vain."""
        return self.disturbances > 1 and self.undone >= max(LEAST, SHARE * self.moves)


def room_of(nodes: Iterable[Node], keys: Iterable[str]) -> Counter[str]:
    """Domain (key=value) of these keys → millicores that its Ready nodes have, one at least for each."""
    found: Counter[str] = Counter()
    every = set(keys)
    for node in nodes:
        if node.ready:
            for key in every & node.labels.keys():
                found[f"{key}={node.labels[key]}"] += max(1, node.allocatable.get("cpu", 0))
    return found


def marked(entries: Iterable[Entry], nodes: Sequence[Node], now: float) -> tuple[Entry, ...]:
    """The entries; those whose node is gone or not Ready say since when, and which domains shrank."""
    every = tuple(entries)
    ready = {n.name: n.ready for n in nodes}
    keys = {d.partition("=")[0] for e in every for d in e.into}
    room, back = room_of(nodes, keys), _back_since(nodes, keys)
    found = (_marked(e, ready, room, now) for e in every)
    # An outage that nobody saw: all nodes where the pod went have come since.
    return tuple(
        replace(e, removed=now) if not e.removed and any(e.at < back.get(d, 0.0) for d in e.into) else e
        for e in found
    )


def _back_since(nodes: Iterable[Node], keys: set[str]) -> dict[str, float]:
    """Domain (key=value) of several nodes → since when the first of them has been Ready."""
    times: dict[str, list[float]] = defaultdict(list)
    for node in nodes:
        for key in keys & node.labels.keys():
            times[f"{key}={node.labels[key]}"].append(node.ready_since or 0.0)
    return {domain: min(since) for domain, since in times.items() if len(since) >= FEWEST}


def _marked(e: Entry, ready: Mapping[str, bool], room: Mapping[str, int], now: float) -> Entry:
    # A replacement that did not become Ready may have failed with its node.
    if e.fate not in (Fate.DONE, Fate.FAILED) or not 0 <= now - e.at <= SOON:
        return e
    there, down = (e.landed or e.predicted) in ready, not ready.get(e.landed or e.predicted, False)
    if not (down or e.removed or any(e.shrank)):
        return e
    left, shrank = list(e.room), list(e.shrank or (0.0,) * len(e.room))
    for i, (domain, before, since) in enumerate(zip(e.into, e.room, shrank, strict=False)):
        here = room.get(domain, 0)
        if not here:
            shrank[i] = since or now
            # A node that is not Ready for a moment keeps its pods.
            left[i] = before if there and now - shrank[i] < _BLIP else 0
        elif here < before:
            shrank[i] = since or now
        elif before and now - since < _REPLACED:
            shrank[i] = 0.0
    removed = e.removed or (0.0 if there else now)
    return replace(e, removed=removed, room=tuple(left), shrank=tuple(shrank))


def account(ledger: Ledger, now: float) -> Account:
    """The moves of the last week."""
    recent = [e for e in ledger.entries if e.fate is Fate.DONE and now - e.at <= WEEK]
    undone = sorted((min(filter(None, e.shrank)), e.at) for e in recent if any(e.shrank))
    times, last = 0, 0.0
    for shrank, at in undone:
        # What was made before it is all undone by it.
        times += at > last
        last = shrank
    return Account(len(undone), len(recent), times)


class Undone(Struct, frozen=True):
    """How often in a row moves between two domains were undone, and until when none is made."""

    times: int
    until: float


def undone_pairs(
    ledger: Ledger, rules: HistoryRules, now: float, fate: Fate = Fate.DONE
) -> dict[Pair, Undone]:
    """The pairs of domains that are left alone for now. With `Fate.UNDONE` those between which no move waits
    for a node, as none came for earlier ones."""
    moves: dict[Pair, list[tuple[float, float]]] = defaultdict(list)
    for e in ledger.entries if rules.after_undone else ():
        if e.fate is fate or (fate is Fate.DONE and e.fate in _AWAY):
            shrank = dict(zip(e.into, e.shrank, strict=False))
            for pair in pairs(e.leaves, e.into):
                # One that nothing came of has not lasted.
                ended = shrank.get(pair[1], 0.0)
                for known in known_as(pair, e.owner):
                    moves[known].append((ended, e.at if fate is Fate.DONE else ended))
    again = 1 if fate is Fate.DONE else 2
    found = ((pair, _in_a_row(times, rules.after_undone, again)) for pair, times in moves.items())
    return {pair: undone for pair, undone in found if undone is not None and now < undone.until}


def _in_a_row(moves: Iterable[tuple[float, float]], waits: Sequence[float], again: int = 1) -> Undone | None:
    """When they were undone (0: not), and made. One disturbance undoes all that were made before it, and
    counts once. A move that lasted for as long as would be waited next begins the count anew, and so does one
    made when `again` times the longest wait was over."""
    times, last = 0, 0.0
    for shrank, at in sorted(m for m in moves if m[0]):
        if not times or at > last:
            well = shrank - at >= waits[min(times, len(waits) - 1)] or at - last >= again * waits[-1]
            times = 1 if well else times + 1
        last = shrank
    return Undone(times, last + waits[min(times, len(waits)) - 1]) if times else None


def pairs(leaves: Iterable[str], into: Iterable[str]) -> list[Pair]:
    """The domains left and entered that are of one key, and differ."""
    every = tuple(into)
    found = ((d, there) for d in leaves for there in every if d.partition("=")[0] == there.partition("=")[0])
    return [(left, there) for left, there in found if left != there]


def known_as(pair: Pair, owner: str) -> tuple[Pair, ...]:
    """Under what a move of the owner's (`Workload.counted_as`) between them is known."""
    return (pair, (HOSTNAME, owner)) if pair[0].partition("=")[0] == HOSTNAME else (pair,)


def why(pair: Pair, undone: Undone, now: float, *, waited: bool = False) -> Reason:
    """Why no pod of an owner goes from the one domain to the other for now; `waited`: for a node."""
    times = "once" if undone.times == 1 else f"{undone.times} times"
    if waited:
        return wait(
            ReasonCode.NO_NODE_CAME,
            f"a move from {pair[0]} to {pair[1]} has waited {times} for a node, and none came in time",
            undone.until,
            now,
            f"{ATTENDED}; events and conditions of NodeClaims and NodePools say why",
            times=undone.times,
        )
    moves, there = f"moves from {pair[0]} to {pair[1]}", "the nodes there became fewer soon after"
    if pair[0] == HOSTNAME:
        moves, there = "moves of its pods to other nodes", "these nodes were gone soon after"
    return wait(
        ReasonCode.NODES_REMOVED,
        f"{moves} were undone {times}: {there}",
        undone.until,
        now,
        f"{ATTENDED}; where an autoscaler removes the nodes, keep it from that (Karpenter: a disruption "
        "budget of the NodePool)",
        times=undone.times,
    )


# Domains that are out: shifted away from, on purpose, while their pods are still there and Ready.
#
# Their pods count for every spread and budget, although nobody uses them, and all is otherwise once the
# domain is open again. What was never open to a pod, such as a pool of its own taint, is not out to it.

FEWEST = 2
"""Nodes of a domain that can be out: a single node that is shut is a node."""
ANY_POD = PodTemplate(namespace="", labels={}, requests={})
"""One that any node would take."""
_MOST_TAINTS = 100
"""Sets of taints that are remembered of a domain."""
_MOST_DOMAINS = 500
Openings = Mapping[str, Mapping[str, Opening]]
Paused = Mapping[str, tuple[str, float]]
"""`annotations.paused_domains`."""


def spread_keys(templates: Iterable[PodTemplate]) -> set[str]:
    """The keys of domains: of zones, and of all that pods of these templates spread over."""
    return {ZONE, *(c.topology_key for t in templates for c in t.spread)}


def openings_of(
    nodes: Iterable[Node], keys: set[str], before: Openings, now: float, out_wait: float, *, latest: float
) -> dict[str, dict[str, Opening]]:
    """What is known of the domains of these keys after a look at the nodes. What has been shut for longer
    than `out_wait`, and than a day, as a single run may wait less, counts as what never was. `latest`: the
    later of two clocks, which dates what is new."""
    there: dict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        taints = ",".join(sorted(_named(t) for t in node.shut_by))
        for key in keys & node.labels.keys():
            there[f"{key}={node.labels[key]}"][taints] += 1
    known = {d.partition("=")[0] for d in before}
    number = Counter(d.partition("=")[0] for d in there)

    def rank(domain: str) -> tuple[bool, bool, int, str]:
        # Zones, then what is remembered; and by keys: a part of a key's domains says nothing of the others.
        key = domain.partition("=")[0]
        return key != ZONE, key not in known, number[key], domain

    found: dict[str, dict[str, Opening]] = {}
    for domain in sorted(there, key=rank)[:_MOST_DOMAINS]:
        old, first = before.get(domain, {}), latest if domain.partition("=")[0] in known else 0.0
        openings = {t: _open(old.get(t), first) for t in there[domain]}
        openings |= {t: replace(openings[t], several=True) for t, n in there[domain].items() if n >= FEWEST}
        gone = {t: replace(d, shut=d.shut or latest) for t, d in old.items() if t not in openings}
        gone = {t: d for t, d in gone.items() if now - d.shut < max(out_wait, DAY)}
        widest = sorted(gone, key=lambda t: (taints_in(t), -gone[t].shut))[:_MOST_TAINTS]
        found[domain] = openings | {t: gone[t] for t in widest}
    return found


def _open(before: Opening | None, first: float) -> Opening:
    """Nodes that are there; `first`: since when, if they were not before."""
    if before is None:
        return Opening(first)
    return replace(before, opened=first, shut=0.0) if before.shut else before


def _named(taint: Taint) -> str:
    """A taint, without what differs on each node that is about to go: cluster-autoscaler writes the time."""
    return str(replace(taint, value="") if taint.key in LEAVING_TAINTS else taint)


def opening_for(openings: Mapping[str, Opening], tolerations: tuple[Toleration, ...]) -> Opening | None:
    """What a domain is for pods with these tolerations; None if it was never open to them."""
    mine = [d for taints, d in openings.items() if all(tolerated(t, tolerations) for t in _taints(taints))]
    opened = [d for d in mine if not d.shut]
    return min(opened, default=None, key=lambda d: d.opened) or max(mine, default=None, key=lambda d: d.shut)


def _taints(text: str) -> Iterator[Taint]:
    for one in filter(None, text.split(",")):
        named, _, effect = one.rpartition(":")
        key, _, value = named.partition("=")
        yield Taint(key, cast("TaintEffect", effect), value)


def out_for(
    template: PodTemplate,
    nodes: Iterable[Node],
    openings: Openings,
    paused: Paused,
    out_wait: float,
    now: float,
) -> dict[str, Reason]:
    """Why no pod of the template moves: domains (key=value) that it could use and that are out."""
    found: dict[str, Reason] = {}
    if "" in paused:
        found[""] = _by_hand("every domain", *paused[""], now)
        paused = {d: said for d, said in paused.items() if d}
    # One that was shut just now, or by a clock that is ahead, may be so by a moment to come.
    shut: dict[str, Opening] = {}
    for d in openings if out_wait else ():
        opening = opening_for(openings[d], template.tolerations)
        if opening is not None and opening.shut and now - opening.shut < out_wait:
            shut[d] = opening
    if not shut and not paused:
        return found
    keys = {d.partition("=")[0] for d in (*shut, *paused)}
    size, there = Counter[str](), set(openings)
    for node in nodes:
        its = [f"{key}={node.labels[key]}" for key in keys & node.labels.keys()]
        there.update(its)
        if its and selects(template, node):
            size.update(its)
    for d, (say, until) in paused.items():
        if d not in there:
            # A slip of the hand: somebody wanted a pause.
            found[d] = _by_hand("every domain", f"{say}, and no node has been in {d}", until, now)
        elif size[d]:
            found[d] = _by_hand(d, say, until, now)
    for domain, opening in shut.items():
        if size[domain] >= (1 if opening.several else FEWEST) and domain not in found:
            why = f"{domain} is out: none of its nodes has been open since {moment(opening.shut, now)}"
            found[domain] = wait(ReasonCode.DOMAIN_OUT, why, opening.shut + out_wait, now, _OUT)
    return found


_OUT = (
    "open its nodes, or wait: after evictions.outWait that counts as the normal state; "
    f"{one_run('outWait', '0s')}"
)


def _by_hand(domain: str, said: str, until: float, now: float) -> Reason:
    why, remedy = f"{domain} is out: {said}", "`rebalancer resume` with the same --domain ends it"
    if until == inf:
        return Reason(ReasonCode.DOMAIN_OUT, f"waits for `rebalancer resume`: {why}", {}, remedy)
    return wait(ReasonCode.DOMAIN_OUT, why, until, now, remedy)
