"""Owners that a cycle leaves alone because of what the ledger remembers, or of what it sees half done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Set

from rebalancer.model.node import Node
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Alike, Snapshot, among
from rebalancer.model.workload import Workload
from rebalancer.planner.plan import ConstraintResult, Plan, domains_left
from rebalancer.policy.fingerprints import constraint_id
from rebalancer.policy.ledger import Fate, Ledger
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.release import released_of
from rebalancer.policy.waits import (
    Arrival,
    Followed,
    HistoryRules,
    arrival,
    pairs,
    stabilizing,
    undone_pairs,
    why,
)
from rebalancer.policy.waits import first_seen as first_violated

# Violations that are too young to act on: a rollout or an autoscaler may still be at work. And those that
# only a domain can mend which has just come back: the next outage of it may be near.


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
    young one does not hold back an owner that has a lasting violation of a hard constraint, and one that came
    with the nodes of a domain is not held back for.
    """
    results = {constraint_id(c.constraint): c for c in plan.constraints if c.in_scope and c.excess}
    counted = _counted(snapshot, results)
    since = first_violated(ledger, {i: _youngest(of) for i, of in counted.items()}, followed, now=latest)
    domains = {
        key: _domains(snapshot.nodes, key) for key in {c.constraint.topology_key for c in results.values()}
    }
    arrivals = {
        key: {
            d: arrival(nodes, ledger.openings.get(f"{key}={d}", {}), rules, now, latest=latest)
            for d, nodes in of.items()
        }
        for key, of in domains.items()
    }
    reasons: dict[str, Reason] = {}
    for i, result in results.items():
        key, onset = result.constraint.topology_key, followed.onsets.get(i)
        lowest = _lowest(result, domains[key])
        arrived, came = _together(arrivals[key][d] for d in lowest), False
        if arrived is not None and onset is not None and onset.by_nodes:
            there = {n.name for d in lowest for n in domains[key][d]}
            came = _new(counted[i], there, arrived.at)
        if (reason := stabilizing(since[i], rules, now, arrived, came_with_it=came)) is not None:
            reasons[i] = reason
    if not reasons:
        return since, {}
    owners, hard = Owners(snapshot, PolicyOptions()), {i for i, c in results.items() if c.constraint.hard}
    owned = {i: _owners(counted[i], owners) for i in results if i in reasons or i in hard}
    lasting = {o for i in hard if i not in reasons for o in owned[i]}
    found: dict[str, Reason] = {}
    for i, reason in reasons.items():
        for owner in owned[i]:
            if i in hard or owner not in lasting:
                found.setdefault(owner, reason)
    return since, found


def _new(counted: Iterable[Alike], nodes: Set[str], since: float) -> bool:
    """Whether none of the pods on these nodes is from before: where one is, the nodes were hardly away."""
    pods = (p for some in counted for p in some.pods if p.node_name in nodes)
    return all(p.created is not None and p.created >= since for p in pods)


def _domains(nodes: Iterable[Node], key: str) -> dict[str, list[Node]]:
    """Domain of this key → its nodes, where one of them is Ready."""
    found: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if key in node.labels:
            found[node.labels[key]].append(node)
    return {d: there for d, there in found.items() if any(n.ready for n in there)}


def _lowest(result: ConstraintResult, usable: Container[str]) -> list[str]:
    """Of the usable domains those with the fewest pods."""
    counts = {d: n for d, n in result.domains.items() if d in usable}
    fewest = min(counts.values(), default=0)
    return [d for d, n in counts.items() if n == fewest]


def _together(arrivals: Iterable[Arrival | None]) -> Arrival | None:
    """Several domains as one; None where one of them has not arrived lately, or there is none."""
    found: Arrival | None = None
    for each in arrivals:
        if each is None:
            return None
        found = each if found is None else found.later(each)
    return found


def _counted(snapshot: Snapshot, results: Mapping[str, ConstraintResult]) -> dict[str, list[Alike]]:
    """Constraint id → the live pods that it counts."""
    spaces: dict[str, list[Alike]] = defaultdict(list)
    for group in among(snapshot.live, snapshot.node_names):
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
    snapshot: Snapshot, plan: Plan, ledger: Ledger, rules: HistoryRules, *, now: float
) -> dict[str, Reason]:
    """Owner → why it is left alone: wherever a replacement of this plan may land, the pair of domains is
    undone_pairs."""
    tired = undone_pairs(ledger, rules, now)
    in_vain = undone_pairs(ledger, rules, now, Fate.UNDONE)
    if not (tired or in_vain):
        return {}
    labels = {n.name: n.labels for n in (*snapshot.nodes, *plan.new_nodes)}
    left = domains_left(snapshot, plan)
    found: dict[str, Reason] = {}
    for move in plan.moves:
        leaves = left(move)
        for pair in pairs(leaves, move.awaits):
            if pair in in_vain:
                found.setdefault(move.owner.key, why(pair, in_vain[pair], now, waited=True))
        there = [pairs(leaves, same_keys(leaves, labels.get(d, {}))) for d in move.destinations]
        if there and all(any(p in tired for p in ps) for ps in there):
            pair = next(p for p in there[0] if p in tired)
            found.setdefault(move.owner.key, why(pair, tired[pair], now))
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
