"""Plans made by hand, for tests of what is shown of a plan."""

from __future__ import annotations

from typing import Any

from rebalancer.model.reason import Finding, Reason, ReasonCode, Severity
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.plan import ConstraintResult, Move, Plan, Refusal
from rebalancer.spread.constraint import Constraint
from tests.support.build import node, pdb, snapshot, workload

ZONE = "topology.kubernetes.io/zone"
SELECTOR = {"app": "web"}


def shop(name: str = "web", **counts: int) -> Snapshot:
    """Three zones of two nodes, one workload with so many pods on the first node of each zone."""
    nodes = [node(f"{z}-{i}").zone(z) for z in "abc" for i in range(2)]
    placed = {f"{z}-0": n for z, n in (counts or {"a": 5, "b": 1, "c": 1}).items()}
    return snapshot(*nodes, workload(name).spread("zone", 1).placed(placed), pdb("web", SELECTOR))


def result(
    cluster: Snapshot,
    domains: dict[str, int],
    after: dict[str, int],
    *reasons: Reason,
    excess: int = 0,
    residual: int = 0,
    **more: Any,
) -> ConstraintResult:
    """A result for the cluster's one workload."""
    template = cluster.pods[0].template
    from rebalancer.spread.constraint import resolve

    constraint: Constraint = more.pop("constraint", None) or resolve(template.spread[0], template)
    total = sum(domains.values()) or 1
    return ConstraintResult(
        constraint=constraint,
        workloads=more.pop("workloads", (cluster.workloads[0].key,)),
        domains=domains,
        after=after,
        skew=max(domains.values()) - min(domains.values()),
        excess=excess,
        residual_excess=residual,
        status="balanced"
        if not excess
        else "fixable"
        if not residual
        else "partly-fixable"
        if residual < excess
        else "unfixable",
        reasons=reasons,
        worst_domain_loss=max(domains.values()) / total,
        best_domain_loss=-(-total // len(domains)) / total,
        **more,
    )


def move(cluster: Snapshot, index: int, *destinations: str, wave: int = 1, certain: bool = True) -> Move:
    """The eviction of the cluster's pod of that index."""
    victim = cluster.pods[index]
    owner = cluster.owner_of(victim.namespace, victim.owner)
    assert isinstance(owner, Workload)
    return Move(
        pod=victim,
        owner=owner,
        replacement=victim.template,
        destinations=destinations,
        predicted=destinations[0],
        certain=certain,
        wave=wave,
        fixes=(0,),
        reason="zone a has 5 of 7 pods, zone b has 1",
    )


def mended() -> tuple[Plan, Snapshot]:
    """[5,1,1] to [3,2,2] by two evictions in two waves."""
    cluster = shop()
    plan = Plan(
        constraints=(result(cluster, {"a": 5, "b": 1, "c": 1}, {"a": 3, "b": 2, "c": 2}, excess=3),),
        moves=(
            move(cluster, 0, "b-0", "b-1", "c-0", "c-1"),
            move(cluster, 1, "c-0", "c-1", wave=2, certain=False),
        ),
        blocked=(),
        lower_bound=2,
        assumptions=("kube-scheduler 1.36 with the default profile",),
    )
    return plan, cluster


def stuck(blocked: int = 3) -> tuple[Plan, Snapshot]:
    """A constraint that cannot be mended, with pods blocked for two reasons and a finding."""
    cluster = shop()
    why = Reason(
        ReasonCode.NO_FEASIBLE_NODE,
        "zone b: 2 nodes, 2 without room for 500m cpu",
        {"nodes": 2, "full": 2},
        "add a node to zone b, or lower the requests",
    )
    volume = Reason(ReasonCode.PINNED_BY_VOLUME, "its volume is in zone a")
    pods = [cluster.pods[i % len(cluster.pods)] for i in range(blocked)]
    plan = Plan(
        constraints=(
            result(cluster, {"a": 5, "b": 1, "c": 1}, {"a": 5, "b": 1, "c": 1}, why, excess=3, residual=3),
        ),
        moves=(),
        blocked=tuple(Refusal(p, volume if i == 0 else why) for i, p in enumerate(pods)),
        findings=(
            Finding(Severity.WARNING, "no-pdb", "Deployment/default/web", "no budget covers it", "add a PDB"),
        ),
        lower_bound=2,
        optimal=False,
    )
    return plan, cluster


def at_rest() -> tuple[Plan, Snapshot]:
    """Nothing violated."""
    cluster = shop(a=2, b=2, c=1)
    counts = {"a": 2, "b": 2, "c": 1}
    return Plan(constraints=(result(cluster, counts, counts),), moves=(), blocked=()), cluster
