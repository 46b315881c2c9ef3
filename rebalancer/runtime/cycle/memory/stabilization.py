"""Violations that are too young to act on: a rollout or an autoscaler may still be at work."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.policy.history.digests import constraint_id
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.resting_owners import HistoryRules
from rebalancer.policy.history.stabilization import came_back, first_seen, stabilizing
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.spread.constraint import Constraint


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
    since = first_seen(ledger, ages, now=latest)
    reasons = {
        i: reason
        for i, began in since.items()
        if (reason := stabilizing(began, rules, now)) is not None
        and not _comes_from_nodes(snapshot, results[i], rules, now, latest)
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


def _comes_from_nodes(
    snapshot: Snapshot, result: ConstraintResult, rules: HistoryRules, now: float, latest: float
) -> bool:
    """Whether all domains with the fewest pods have come back not long ago."""
    key, fewest = result.constraint.topology_key, min(result.domains.values(), default=0)
    lowest: dict[str, list[Node]] = {d: [] for d, count in result.domains.items() if count == fewest}
    for node in snapshot.nodes:
        if (domain := node.labels.get(key)) in lowest:
            lowest[domain].append(node)
    return bool(lowest) and all(came_back(nodes, rules, now, latest) for nodes in lowest.values())


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
