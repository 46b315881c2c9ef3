"""What `rebalancer prevent` does: shows the deletion costs that would be written, or takes all back."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.patch.deletion_cost import CostWriter
from rebalancer.kube.read.objects import Objects
from rebalancer.model.pod import Pod
from rebalancer.outcome.steering import CostOutcome, CostResult
from rebalancer.prevention.scale_in.steering import CostChange
from rebalancer.runtime.cycle.clock import Clock

_PER_SECOND = 25.0
"""Somebody waits for it."""
_ROUNDS = 5
"""A pod that has changed meanwhile is looked at again."""


def take_back(
    connection: Connection, namespace: str, clock: Clock, tell: Callable[[CostOutcome], None]
) -> tuple[int, int]:
    """Removes every deletion cost that this tool has written: (how many, how many are left).

    `namespace`: "" for all. Raises KubeError.
    """
    objects, writer = Objects(connection, wait=clock.wait), CostWriter(connection)
    removed = 0
    left: list[Pod] = []
    for _ in range(_ROUNDS):
        left = [p for p in objects.pods(namespace) if p.own_cost is not None]
        if not left:
            break
        for pod in left:
            outcome = writer.write(CostChange(pod, 0, pod.own_cost))
            removed += outcome.result is CostResult.WRITTEN
            tell(outcome)
            if clock.wait(1.0 / _PER_SECOND):
                return removed, len(left)
    return removed, len(left)
