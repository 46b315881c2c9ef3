"""Pods that wait for a node, and what they take when an eviction makes room or lowers a count.

What the scheduler can place by now it is about to place: the plan starts from there. A pod that is Pending
because of a spread constraint, or for lack of room, becomes feasible when a victim goes, and may be placed
before the victim's replacement: a move must hold with it placed first.
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
    """The waiting pods of a snapshot that find no node, one for each template."""

    def __init__(self, simulation: Simulation, groups: Groups, pods: Iterable[Pod]) -> None:
        """Places what can be placed, in the scheduler's order; keeps the rest."""
        self._simulation = simulation
        self._groups = groups
        stuck: dict[int, PodTemplate] = {}
        for pod in sorted(pods, key=lambda p: (-p.template.priority, p.created or 0.0, p.key)):
            t = pod.template
            if id(t) in stuck:
                continue
            nodes = np.flatnonzero(simulation.framework(t).feasible(t))
            if len(nodes):
                simulation.state.add(("placed", pod.uid or pod.key), t, simulation.favourite(t, nodes))
            else:
                stuck[id(t)] = t
        self._stuck = tuple(stuck.values())

    def interferes(self, victim: Pod, replacement: PodTemplate) -> bool:
        """Whether a waiting pod could spoil the move: take the slot, or the last room, it makes."""
        row = self._simulation.state.pods[victim.uid or victim.key].row
        concerned = [t for t in self._stuck if self._concerned(t, victim.template, row)]
        if not concerned:
            return False
        touched = {*self._groups.counted(replacement), *self._groups.carried(replacement)}
        simulation = self._simulation
        with simulation.without(victim) as leaving:
            for gone in (False, True):
                if gone:
                    leaving.let_go()
                for t in concerned:
                    nodes = np.flatnonzero(simulation.framework(t).feasible(t))
                    if len(nodes) and (
                        len(nodes) > _TRIED
                        or touched.intersection(self._groups.counted(t))
                        or not all(self._leaves_room(t, int(n), replacement) for n in nodes)
                    ):
                        return True
        return False

    def _concerned(self, waiting: PodTemplate, victim: PodTemplate, row: int) -> bool:
        """Whether the victim's end could make a node feasible: by a count, by affinity, or by its room."""
        if set(self._groups.carried(waiting)).intersection(self._groups.counted(victim)):
            return True
        a = waiting.affinity
        if (
            (a is not None and (a.pod_affinity or a.pod_anti_affinity))
            or waiting.host_ports
            or waiting.claims
        ):
            return True
        if (a := victim.affinity) is not None and a.pod_anti_affinity:
            return True
        state = self._simulation.state
        return bool(self._simulation.static(waiting)[row]) and all(
            amount <= state.allocatable(r)[row] - state.requested[r][row] + victim.requests.get(r, 0)
            for r, amount in waiting.requests.items()
        )

    def _leaves_room(self, waiting: PodTemplate, row: int, replacement: PodTemplate) -> bool:
        state = self._simulation.state
        state.add("waiting", waiting, row)
        try:
            return bool(self._simulation.framework(replacement).feasible(replacement).any())
        finally:
            state.remove("waiting")
