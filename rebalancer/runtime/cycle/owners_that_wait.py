"""Owners that a cycle leaves alone because of what the ledger remembers, or of what it sees half done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from rebalancer.model.node import HOSTNAME, Node
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Alike, Snapshot, among
from rebalancer.model.workload import Workload
from rebalancer.planner.plan import ConstraintResult, Move, Plan
from rebalancer.policy.history.fingerprints import constraint_id
from rebalancer.policy.history.ledger import DAY, Fate, Ledger
from rebalancer.policy.history.stabilization import Arrivals, Followed, settling, stabilizing
from rebalancer.policy.history.stabilization import first_seen as first_violated
from rebalancer.policy.history.waits import HistoryRules, known_as, pairs, undone_pairs, why
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.release import released_of

# Violations that are too young to act on, and domains that have just come back.


def young(
    snapshot: Snapshot,
    plan: Plan,
    ledger: Ledger,
    rules: HistoryRules,
    followed: Followed,
    *,
    now: float,
    latest: float,
) -> tuple[dict[str, float], dict[str, Reason]]:
    """When each violation began, and the owners that are left alone because of a young one.

    Returns constraint id → epoch seconds, and owner → reason. Violations of soft constraints come and go. A
    young one does not hold back an owner that moves for a lasting violation of a hard constraint, and one
    that came with the nodes of a domain is not held back for.
    """
    results = {constraint_id(c.constraint): c for c in plan.constraints if c.in_scope and c.excess}
    counted = _counted(snapshot, results)
    since = first_violated(ledger, counted, lambda i: _youngest(counted[i]), followed, now=latest)
    arrivals = Arrivals(snapshot.nodes, ledger, rules, now, latest=latest)
    movers: dict[str, list[Move]] = defaultdict(list)
    for m in plan.moves:
        for fixed in m.fixes:
            movers[constraint_id(plan.constraints[fixed].constraint)].append(m)
    reasons: dict[str, Reason] = {}
    for i, result in results.items():
        settled, onset = inf, followed.onsets.get(i)
        if onset is not None and onset.by_nodes and i in movers:
            settled = arrivals.settled(
                result.constraint.topology_key, result.domains, movers[i][0].replacement, counted[i]
            )
        if (reason := stabilizing(since[i], rules, now, settled)) is not None:
            reasons[i] = reason
    since |= _of_others(snapshot, plan, ledger, since, latest)
    if not reasons:
        return since, {}
    hard = {i for i, c in results.items() if c.constraint.hard}
    lasting = {m.owner.key for i in hard if i not in reasons for m in movers[i]}
    owners, found = Owners(snapshot, PolicyOptions()), dict[str, Reason]()
    for i, reason in reasons.items():
        # Owners of kinds that are not read are known by their moves.
        for owner in (*_owners(counted[i], owners), *(m.owner.key for m in movers[i])):
            if i in hard or owner not in lasting:
                found.setdefault(owner, reason)
    return since, found


def _of_others(
    snapshot: Snapshot, plan: Plan, ledger: Ledger, since: Mapping[str, float], latest: float
) -> dict[str, float]:
    """When violations began that this process leaves to others, with which it shares the ledger: out of its
    scope, or in namespaces that it does not read."""
    theirs = {constraint_id(c.constraint) for c in plan.constraints if c.excess and not c.in_scope}
    if snapshot.read_namespaces:
        mine = {constraint_id(c.constraint) for c in plan.constraints}
        theirs |= {i for i, at in ledger.violated.items() if i not in mine and latest - at < DAY}
    return {i: at for i, at in ledger.violated.items() if i in theirs and i not in since}


def unsettled(
    nodes: Sequence[Node],
    moves: Iterable[Move],
    constraints: Sequence[ConstraintResult],
    ledger: Ledger,
    rules: HistoryRules,
    *,
    now: float,
    latest: float,
) -> dict[str, Reason]:
    """Owner → why it is left alone: a replacement could land in a domain that has just come back. Of nodes as
    domains some come all the time: all that it could land on have to be such. `constraints`: those that the
    moves' `fixes` mean; what a replacement spreads over counts beside them."""
    arrivals, found = Arrivals(nodes, ledger, rules, now, latest=latest), dict[str, Reason]()
    for move in moves:
        mended = (constraints[i].constraint.topology_key for i in move.fixes)
        for key in sorted({*mended, *(c.topology_key for c in move.replacement.spread)}):
            there = arrivals.unsettled(key, move.replacement)
            if not there or (key == HOSTNAME and len(there) < len(move.destinations)):
                continue
            destinations = frozenset(move.destinations)
            into = [d for d, (_, nodes) in there.items() if not nodes.isdisjoint(destinations)]
            if into and (key != HOSTNAME or len(into) == len(destinations)):
                until = (min if key == HOSTNAME else max)(there[d][0] for d in into)
                found.setdefault(move.owner.key, settling(until, rules, now))
    return found


def _counted(snapshot: Snapshot, results: Mapping[str, ConstraintResult]) -> dict[str, list[Alike]]:
    """Constraint id → the live pods that it counts."""
    spaces: dict[str, list[Alike]] = {r.constraint.namespace: [] for r in results.values()}
    for group in among((g for g in snapshot.live if g.one.namespace in spaces), snapshot.node_names):
        spaces[group.one.namespace].append(group)
    return {
        i: [g for g in spaces[c.namespace] if c.counts(c.namespace, g.template.labels)]
        for i, c in ((i, result.constraint) for i, result in results.items())
    }


def _owners(counted: Iterable[Alike], owners: Owners) -> list[str]:
    """Their topmost owners, each once."""
    found = (owners.of(some.one) for some in counted)
    return list(dict.fromkeys(owners.top(o).key for o in found if o is not None))


def _youngest(counted: Iterable[Alike]) -> float | None:
    """When the youngest of the pods was created; None if that is not known of all of them."""
    made = [p.created for some in counted for p in some.pods]
    known = [c for c in made if c is not None]
    return max(known) if known and len(known) == len(made) else None


# Owners whose moves would go where the removal of nodes has undone earlier ones.


def same_keys(domains: Iterable[str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The domains (key=value) of a node with these labels, for the keys of `domains`."""
    keys = (d.partition("=")[0] for d in domains)
    return tuple(f"{k}={labels[k]}" for k in keys if k in labels)


def undone(
    nodes: Iterable[Node],
    moves: Iterable[Move],
    leaves: Callable[[Move], Sequence[str]],
    ledger: Ledger,
    rules: HistoryRules,
    *,
    now: float,
) -> dict[str, Reason]:
    """Owner → why it is left alone: wherever a replacement of these moves may land, the pair of domains is
    one of `undone_pairs`. `nodes`: also those to come; `leaves`: the domains that a move's pod leaves."""
    tired = undone_pairs(ledger, rules, now)
    in_vain = undone_pairs(ledger, rules, now, Fate.UNDONE)
    if not (tired or in_vain):
        return {}
    labels = {n.name: n.labels for n in nodes}
    found: dict[str, Reason] = {}
    for move in moves:
        left = leaves(move)
        for pair in pairs(left, move.awaits):
            if pair in in_vain:
                found.setdefault(move.owner.key, why(pair, in_vain[pair], now, waited=True))
        # Nodes that come and go are no reason to leave a zone empty.
        nodes_alone = all(d.partition("=")[0] == HOSTNAME for d in left)
        owner = move.owner.counted_as if nodes_alone else ""
        into = (same_keys(left, labels.get(d, {})) for d in move.destinations)
        there = [[k for p in pairs(left, to) for k in known_as(p, owner) if k in tired] for to in into]
        if there and all(there):
            last = max(there[0], key=lambda pair: tired[pair].until)
            found.setdefault(move.owner.key, why(last, tired[last], now))
    return found


# Deployments that are not read: their evictions are known by their names.


def not_read(snapshot: Snapshot) -> dict[str, list[Workload]]:
    """Kind/namespace/name of each owner that the snapshot does not have → its ReplicaSets, those that want
    most pods first."""
    sets = [w for w in snapshot.workloads if w.counted_as != w.key]
    found: dict[str, list[Workload]] = defaultdict(list)
    for w in sorted(sets, key=lambda w: -w.replicas):
        if snapshot.owner_of(w.namespace, w.owner) is None:
            found[w.counted_as].append(w)
    return found


# Owners with a pod too many: what is planned for them rests on a pod that goes, or comes back.


def released_owners(snapshot: Snapshot) -> dict[str, Reason]:
    """Owner → why it is left alone: a pod of it is released."""
    found: dict[str, Reason] = {}
    for pod, _, owner in released_of(snapshot):
        top = snapshot.owner_of(pod.namespace, owner.owner)
        say = f"{pod.key} is released, and runs beside its replacement"
        found[(top or owner).key] = Reason(ReasonCode.RELEASED, say, {}, _RELEASED_REMEDY)
    return found


_RELEASED_REMEDY = "it is finished, or given back, when evictions may go on; see docs/operations.md"
