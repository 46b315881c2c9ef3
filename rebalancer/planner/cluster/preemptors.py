"""Pods that a move could let preempt others: these would lose their nodes by the move."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from rebalancer.bulk_work import remembered
from rebalancer.engine.framework import would_preempt
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import among
from rebalancer.planner.cluster.groups import can_conflict, can_open
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.spread.arrays import Rows, first_places, numbered

TRIED = 16
"""Nodes tried for a replacement; where more are in question, it counts as in the way."""


def ties(simulation: Simulation, template: PodTemplate, other: PodTemplate) -> bool:
    """Whether where the other is can matter to the pod beyond room."""
    near = template.affinity is not None and template.affinity.pod_affinity is not None
    asked = simulation.state.constraints(template, hard=True)
    counted = any(c.counts(other.namespace, other.labels) for c in asked)
    return near or counted or can_conflict(template, other)


def topology_keys(simulation: Simulation, template: PodTemplate) -> list[str]:
    """The topology keys of the pod's hard constraints and required terms."""
    keys = [c.topology_key for c in simulation.state.constraints(template, hard=True)]
    terms = simulation.state.terms.of(template)
    return keys + [term.topology_key for term, _ in (*terms.required, *terms.required_anti)]


class Preemptors:
    """Pods that could preempt others, and cannot as things stand."""

    def __init__(
        self, simulation: Simulation, without: Iterable[Pod], over: Callable[[], Simulation]
    ) -> None:
        """`without`: a node. `over`: the cluster in which they are asked about, as it is by then."""
        self._over, without = over, list(without)
        self._alone = len(without) < 2
        lowest = simulation.state.lowest_priority
        every = {id(p.template): p for p in without if p.template.preempts and lowest < p.template.priority}
        self._pods = list(every.values())
        self._several = sum(id(p.template) in every for p in without) > 1
        self._could: dict[tuple[int, int], bool] = {}

    @property
    def _simulation(self) -> Simulation:
        return self._over()

    @remembered()
    def _rows(self, template: PodTemplate) -> Rows:
        """Nodes that had room for it without the pods of lower priority when the plan was begun."""
        simulation = self._simulation
        on = simulation.state.table.index
        lower = (
            (pod.template, on[pod.node_name], 1)
            for some in among(simulation.snapshot.live, on)
            if some.template.priority < template.priority
            for pod in some.pods
        )
        return np.flatnonzero(simulation.room(template, simulation.held_by(lower), ended=True) > 0)

    def _preempts(self, template: PodTemplate, rows: Rows) -> bool:
        """Whether it may find no node as the simulation stands, as none takes it, or another that waits is
        first; but would, if pods of lower priority went."""
        framework = self._simulation.framework(template)
        takes = framework.feasible(template)
        if self._alone and takes.any():
            return False
        return would_preempt(framework, template, rows[~takes[rows]].tolist())

    def let_in(self, victim: Pod, replacement: PodTemplate, nodes: Rows) -> Pod | None:
        """One that could preempt others while or after the pod is moved to one of the nodes, and not before:
        who is preempted has lost its node by the move."""
        if not self._pods or key_of(victim) not in self._simulation.state.pods:
            return None
        for pod in self._pods:
            rows = self._opened(pod.template, victim, replacement)
            if (
                len(rows)
                # What one can do anyway, the next one may be able to do by the move alone.
                and (self._several or not self._could_before(pod.template))
                and self._can(pod.template, rows, victim, replacement, nodes)
            ):
                return pod
        return None

    def crowded(self, nodes: Rows) -> Pod | None:
        """One that finds a node by preempting only, on few nodes, of which a replacement could take one: then
        it preempts the replacement as well, or finds none."""
        for pod in self._pods:
            rows = self._rows(pod.template)
            if len(rows) <= TRIED and self._preempts(pod.template, rows[np.isin(rows, nodes)]):
                return pod
        return None

    def _opened(self, template: PodTemplate, victim: Pod, replacement: PodTemplate) -> Rows:
        """The nodes that the move may open to it."""
        simulation = self._simulation
        at = simulation.state.pods[key_of(victim)].row
        freed = victim.template.priority >= template.priority and simulation.static(template)[at]
        own = np.array([at] if freed else [], np.intp)
        if self._tied(template, victim.template, replacement):
            return np.union1d(own, self._rows(template))
        return own

    @remembered(by=lambda *templates: tuple(map(id, templates)))
    def _tied(self, template: PodTemplate, victim: PodTemplate, replacement: PodTemplate) -> bool:
        """Whether the move can open more to it than the room of the victim."""
        opens = can_open(self._simulation.state, replacement, template)
        return opens or ties(self._simulation, template, victim)

    def _could_before(self, template: PodTemplate) -> bool:
        """Whether it can without the move."""
        key = id(template), self._simulation.state.mark
        if key not in self._could:
            framework, rows = self._simulation.framework(template), self._rows(template)
            shut = rows[~framework.feasible(template)[rows]]  # on others it takes nobody's place
            self._could[key] = would_preempt(framework, template, shut.tolist())
        return self._could[key]

    def _can(
        self, template: PodTemplate, rows: Rows, victim: Pod, replacement: PodTemplate, nodes: Rows
    ) -> bool:
        simulation = self._simulation
        state = simulation.state
        with simulation.without(victim) as leaving:
            if self._preempts(template, rows):
                return True
            leaving.let_go()
            if self._preempts(template, rows):
                return True
            if not can_open(state, replacement, template):
                return False
            keys = topology_keys(simulation, template)
            columns = [state.table.domains(key).ids[nodes] for key in keys]
            each = nodes[first_places(numbered(np.zeros(len(nodes), np.int64), columns))]
            for row in each[:TRIED].tolist():
                with state.also([(("replacement", "tried"), replacement, row)]):
                    if self._preempts(template, rows):
                        return True
            return len(each) > TRIED
