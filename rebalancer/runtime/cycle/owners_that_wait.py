"""Owners that a cycle leaves alone because of what the ledger remembers, or of what it sees half done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.plan import ConstraintResult, Plan, domains_left
from rebalancer.policy.fingerprints import constraint_id
from rebalancer.policy.ledger import Fate, Ledger
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.release import released_of
from rebalancer.policy.waits import (
    HistoryRules,
    Openings,
    came_back,
    opened_lately,
    pairs,
    stabilizing,
    undone_pairs,
    why,
)
from rebalancer.policy.waits import first_seen as first_violated
from rebalancer.spread.constraint import Constraint

# Violations that are too young to act on: a rollout or an autoscaler may still be at work.


def young(
    snapshot: Snapshot, plan: Plan, ledger: Ledger, rules: HistoryRules, *, now: float, latest: float
) -> tuple[dict[str, float], dict[str, Reason]]:
    """When each violation began, and the owners that are left alone because of a young one.

    Returns constraint id → epoch seconds, and owner → reason. Violations of soft constraints come and go. A
    young one does not hold back an owner that has a lasting violation of a hard constraint, and one that came
    with the nodes of a domain is not held back for.
    """
    results = {constraint_id(c.constraint): c for c in plan.constraints if c.in_scope and c.excess}
    violated = {i: c.constraint for i, c in results.items()}
    first = not ledger.looked
    ages = {
        i: _youngest(snapshot, c) if first and i not in ledger.violated else None for i, c in violated.items()
    }
    since = first_violated(ledger, ages, now=latest)
    reasons = {
        i: reason
        for i, began in since.items()
        if stabilizing(began, rules, now) is not None
        and (
            reason := stabilizing(
                began, rules, now, _settled(snapshot, results[i], ledger.openings, rules, latest)
            )
        )
    }
    if not reasons:
        return since, {}
    owners = Owners(snapshot, PolicyOptions())
    counted = {i: _owners(snapshot, c, owners) for i, c in violated.items() if i in reasons or c.hard}
    lasting = {o for i, keys in counted.items() if i not in reasons for o in keys}
    found: dict[str, Reason] = {}
    for i, reason in reasons.items():
        for owner in counted[i]:
            if violated[i].hard or owner not in lasting:
                found.setdefault(owner, reason)
    return since, found


def _settled(
    snapshot: Snapshot, result: ConstraintResult, openings: Openings, rules: HistoryRules, latest: float
) -> float:
    """When all domains with the fewest pods that have come back, or were opened, not long ago have settled;
    never, where one has not: infinity."""
    key, fewest = result.constraint.topology_key, min(result.domains.values(), default=0)
    lowest: dict[str, list[Node]] = {d: [] for d, count in result.domains.items() if count == fewest}
    for node in snapshot.nodes:
        if (domain := node.labels.get(key)) in lowest:
            lowest[domain].append(node)
    settled = (
        min(
            came_back(nodes, rules, latest),
            opened_lately(nodes, openings.get(f"{key}={domain}", {}), rules, latest),
        )
        for domain, nodes in lowest.items()
    )
    return max(settled, default=inf)


def _counted(snapshot: Snapshot, constraint: Constraint) -> Iterator[Pod]:
    """The live pods that a constraint counts."""
    verdicts: dict[int, bool] = {}
    for p in snapshot.pods:
        if p.namespace != constraint.namespace or not p.node_name or p.finished or p.terminating:
            continue
        key = id(p.template)
        if key not in verdicts:
            verdicts[key] = constraint.counts(p.namespace, p.template.labels)
        if verdicts[key]:
            yield p


def _owners(snapshot: Snapshot, constraint: Constraint, owners: Owners) -> list[str]:
    """The topmost owners of the live pods that a constraint counts, each once."""
    found = (owners.of(pod) for pod in _counted(snapshot, constraint))
    return list(dict.fromkeys(owners.top(o).key for o in found if o is not None))


def _youngest(snapshot: Snapshot, constraint: Constraint) -> float | None:
    """When the youngest of the counted pods was created; None if that is not known of all of them."""
    made = [p.created for p in _counted(snapshot, constraint)]
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
