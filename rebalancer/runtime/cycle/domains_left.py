"""The domains that a pod leaves. Caps count by them, and the ledger records them."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan


def domains_left(snapshot: Snapshot, plan: Plan) -> Callable[[Move], list[str]]:
    """For a move of the plan: the domains (key=value) that the pod leaves, by the constraints that the move
    mends."""
    labels = {n.name: n.labels for n in snapshot.nodes}

    def left(move: Move) -> list[str]:
        here = labels.get(move.pod.node_name, {})
        keys = (plan.constraints[i].constraint.topology_key for i in move.fixes)
        return [f"{k}={here[k]}" for k in dict.fromkeys(keys) if k in here]

    return left
