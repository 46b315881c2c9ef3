"""Pods that wait for a node, and what they take when an eviction makes room or lowers a count.

A pod that is Pending because of a spread constraint or for lack of room becomes feasible when a victim goes,
and may be placed before the victim's replacement. A move must hold with it placed first.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.groups import Groups
from rebalancer.planner.simulation import Simulation

_TRIED = 16
"""Nodes tried for a waiting pod; one that could go to more of them counts as in the way."""


def waits(pod: Pod) -> bool:
    """Whether the scheduler is to place the pod: no node yet, not finished, not gated, not terminating."""
    return not (pod.node_name or pod.finished or pod.terminating or pod.template.scheduling_gates)


class Waiting:
    """The waiting pods of a snapshot, one for each template."""

    def __init__(self, simulation: Simulation, groups: Groups, pods: Iterable[Pod]) -> None:
        self._simulation = simulation
        self._groups = groups
        self._templates = list({id(p.template): p.template for p in pods if waits(p)}.values())

    def interferes(self, victim: Pod, replacement: PodTemplate) -> bool:
        """Whether a waiting pod could spoil the move: take the slot, or the last room, it makes."""
        if not self._templates:
            return False
        touched = {*self._groups.counted(replacement), *self._groups.carried(replacement)}
        simulation = self._simulation
        with simulation.without(victim) as held:
            for gone in (False, True):
                if gone:
                    held.let_go()
                for t in self._templates:
                    nodes = np.flatnonzero(simulation.framework(t).feasible(t))
                    if len(nodes) and (
                        len(nodes) > _TRIED
                        or touched.intersection(self._groups.counted(t))
                        or not all(self._leaves_room(t, int(n), replacement) for n in nodes)
                    ):
                        return True
        return False

    def _leaves_room(self, waiting: PodTemplate, row: int, replacement: PodTemplate) -> bool:
        state = self._simulation.state
        state.add("waiting", waiting, row)
        try:
            return bool(self._simulation.framework(replacement).feasible(replacement).any())
        finally:
            state.remove("waiting")
