"""Where a rollout ends better than evictions could: it places all pods anew, with surge, and asks no budget.

A finding, and never done: a restart replaces every pod, and deploys what a mutable image tag means by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from rebalancer.model.finding import Finding, Severity
from rebalancer.model.snapshot import Snapshot
from rebalancer.month.measure import measure
from rebalancer.month.world import World
from rebalancer.planner.options import PlanOptions
from rebalancer.planner.plan import ConstraintResult, Plan


class RestartCode(StrEnum):
    """The word for it in report and documentation."""

    WOULD_HELP = "restart-would-help"


_MOST = 20
"""Deployments that are tried."""
_PODS = 5_000
"""In a larger cluster none is."""


def restart_findings(snapshot: Snapshot, options: PlanOptions, plan: Plan) -> tuple[Finding, ...]:
    """Deployments whose constraints keep an excess after the plan and would keep less after a restart."""
    left: dict[tuple[str, str], list[ConstraintResult]] = {}
    for c in plan.constraints:
        if c.in_scope and c.constraint.hard and c.residual_excess:
            for workload in c.workloads:
                kind, _, name = workload.partition("/")
                if kind == "Deployment":
                    left.setdefault((c.constraint.namespace, name), []).append(c)
    if not left or len(snapshot.pods) > _PODS:
        return ()
    return tuple(_found(snapshot, options, dict(sorted(left.items())[:_MOST])))


def _found(
    snapshot: Snapshot, options: PlanOptions, left: dict[tuple[str, str], list[ConstraintResult]]
) -> Iterator[Finding]:
    for (namespace, name), constraints in left.items():
        owner = snapshot.workloads_by_name.get(("Deployment", namespace, name))
        sets = [
            w.key
            for w in snapshot.workloads
            if w.kind == "ReplicaSet" and w.replicas and w.owner and w.owner.name == name
            and w.namespace == namespace
        ]  # fmt: skip
        # Of two revisions one is on its way out; with Recreate a restart is an outage.
        if owner is None or owner.paused or owner.update_strategy == "Recreate" or len(sets) != 1:
            continue
        world = World(snapshot, options.scheduler, prevented=False)
        if sets[0] not in world.works:
            continue
        before = measure(world).excess
        waiting = sum(not p.node_name for p in world.pods.values())
        world.roll_out(sets[0])
        gained = before - measure(world).excess
        now, stays = sum(c.excess for c in constraints), sum(c.residual_excess for c in constraints)
        if now - gained < stays and sum(not p.node_name for p in world.pods.values()) <= waiting:
            yield Finding(
                Severity.INFO,
                RestartCode.WOULD_HELP.value,
                f"Deployment/{namespace}/{name}",
                f"a restart would leave its constraints an excess of {max(0, now - gained)}, evictions "
                f"leave {stays}: it places all pods anew, takes no budget into account, and deploys what its "
                "image tag means now",
                f"see it first: rebalancer simulate --restart {namespace}/{name}\n"
                f"then: kubectl rollout restart deployment/{name} -n {namespace}",
                numbers={"after_restart": max(0, now - gained), "after_evictions": stays},
            )
