"""The snapshot as a plan leaves it: each replacement on its predicted node, in its victim's place."""

from __future__ import annotations

from msgspec.structs import replace

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.plan import Plan


def after_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot after all moves."""
    moved = {key_of(m.pod): m for m in plan.moves}
    if not moved:
        return snapshot
    pods = tuple(
        replace(p, template=moved[key_of(p)].replacement, node_name=moved[key_of(p)].predicted)
        if key_of(p) in moved
        else p
        for p in snapshot.pods
    )
    return replace(snapshot, pods=pods)
