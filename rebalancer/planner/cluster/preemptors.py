"""Pods that could preempt others: these would lose their nodes by a move, or find no other after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

import numpy as np

from rebalancer.bulk_work import remembered
from rebalancer.engine.framework import would_preempt
from rebalancer.engine.state.cluster import PODS
from rebalancer.model.node import OF_ITS_NODE
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import among
from rebalancer.planner.cluster.enough_room import EnoughRoom
from rebalancer.planner.cluster.groups import can_conflict, can_open
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.spread.arrays import Ints, Rows, first_places, numbered

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
        able = list(filter(self.may_preempt, without))
        # Of each kind one that has no place by preemption, and that has not been tried.
        able.sort(key=lambda p: (key_of(p) not in simulation.state.nominated, not p.unschedulable))
        self.pods, self.number = list({id(p.template): p for p in able}.values()), len(able)

    def may_preempt(self, pod: Pod) -> bool:
        """Whether there are pods of lower priority, and it preempts."""
        return pod.template.preempts and self._simulation.state.lowest_priority < pod.template.priority

    @property
    def _simulation(self) -> Simulation:
        return self._over()

    @remembered()
    def rows(self, template: PodTemplate) -> Rows:
        """Nodes that had room for it without the pods of lower priority when the plan was begun."""
        return np.flatnonzero(self._simulation.room(template, self._below(template.priority), ended=True) > 0)

    @remembered(by=int)
    def _below(self, priority: int) -> dict[str, Ints]:
        """int64[N] by resource: what pods of lower priority hold."""
        simulation = self._simulation
        on = simulation.state.table.index
        lower = (
            (pod.template, on[pod.node_name], 1)
            for some in among(simulation.snapshot.live, on)
            if some.template.priority < priority
            for pod in some.pods
        )
        return simulation.held_by(lower)

    def at_once(self) -> Iterator[Pod]:
        """Those that will preempt within seconds, as they can, and the scheduler has not tried them yet."""
        for pod in self.pods:
            tried = pod.unschedulable or key_of(pod) in self._simulation.state.nominated
            if not tried and self._preempts(pod.template, self.rows(pod.template)):
                yield pod

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
        if not self.pods or key_of(victim) not in self._simulation.state.pods:
            return None
        for pod in self.pods:
            rows = self._opened(pod, victim, replacement)
            if len(rows) and self._can(pod.template, rows, victim, replacement, nodes):
                return pod
        return None

    def crowded(self, nodes: Rows) -> Pod | None:
        """One that finds a node by preempting only, on few nodes, of which a replacement could take one: then
        it preempts the replacement as well, or finds none."""
        for pod in self.pods:
            rows = self.rows(pod.template)
            if len(rows) <= TRIED and self._preempts(pod.template, rows[np.isin(rows, nodes)]):
                return pod
        return None

    def _opened(self, pod: Pod, victim: Pod, replacement: PodTemplate) -> Rows:
        """The nodes that the move may open to it. Room matters to one alone that has no place yet."""
        simulation, template = self._simulation, pod.template
        at = simulation.state.pods[key_of(victim)].row
        freed = victim.template.priority >= template.priority and simulation.static(template)[at]
        own = np.array([at] if freed and key_of(pod) not in simulation.state.nominated else [], np.intp)
        if self.tied(template, victim.template, replacement):
            return np.union1d(own, self.rows(template))
        return own

    @remembered(by=lambda *templates: tuple(map(id, templates)))
    def tied(self, template: PodTemplate, victim: PodTemplate, replacement: PodTemplate) -> bool:
        """Whether the move can open more to it than the room of the victim."""
        opens = can_open(self._simulation.state, replacement, template)
        return opens or ties(self._simulation, template, victim)

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


class PushedOut:
    """Pods that will be preempted with or without a move, and then look for another node."""

    def __init__(
        self,
        preemptors: Preemptors,
        simulation: Simulation,
        enough: EnoughRoom,
        given: Mapping[str, Ints],
        moving: Mapping[str, int],
    ) -> None:
        """By pods that come and find no node in another way. `given`: int64[N] by resource, what those that
        end hold; `moving`: what all that come, and all replacements, may hold together."""
        self._preemptors, self._simulation, self._given = preemptors, simulation, given
        self._lost = self._find(enough, Counter(moving))
        alike = {
            (id(simulation.static(p.template)), simulation.state.asks(p.template)): p for p in self._lost
        }
        self._by_room = list(alike.values())

    def _find(self, enough: EnoughRoom, coming: Counter[str]) -> list[Pod]:
        """One of each template of whom these may preempt, or such as have lost their nodes in turn, and who
        may then find no node, wherever the others go."""
        simulation, found = self._simulation, dict[int, Pod]()
        names, on = simulation.state.table.names, simulation.state.table.index

        def homeless(pods: Iterable[Pod]) -> list[Pod]:
            every = {id(p.template): p for p in pods}
            templates = [p.template for p in every.values()]
            lost = enough.scarce(templates, self._given, coming, plenty=1, in_each=1, others=coming[PODS])
            return [p for i, p in every.items() if i in lost]

        first, number = self._preemptors.pods, self._preemptors.number
        while first:
            highest = max(p.template.priority for p in first)
            rows = chain.from_iterable(self._preemptors.rows(p.template).tolist() for p in first)
            every = [
                some
                for some in among(simulation.snapshot.live, {names[row] for row in rows})
                if some.template.priority < highest
                and some.owner is not None
                and some.owner.kind not in OF_ITS_NODE
            ]
            places = [(p.template, on[p.node_name], 1) for some in every for p in some.pods]
            # Each clears one node at most.
            held = simulation.held_by(places)
            coming.update({r: int(min(number * n.max(), n.sum())) for r, n in held.items()})
            number = min(number * max(Counter(at for _, at, _ in places).values(), default=0), len(places))
            new = [some.one for some in every if id(some.template) not in found]
            found |= {id(p.template): p for p in new}
            first = list(filter(self._preemptors.may_preempt, homeless(new)))
        return homeless(found.values())

    def homeless(self, victim: Pod, replacement: PodTemplate, nodes: Rows) -> Pod | None:
        """One to which the move may close nodes, or for which one of these has room: it may find no other."""
        for pod in self._lost:
            if self._preemptors.tied(pod.template, victim.template, replacement):
                return pod
        free: dict[str, Ints] = {}
        for pod in self._by_room:
            fits = self._simulation.static(pod.template)[nodes]
            for r, amount in self._simulation.state.asks(pod.template):
                if r not in free:
                    free[r] = (self._simulation.free(r, ended=True) + self._given.get(r, 0))[nodes]
                fits &= free[r] >= amount
            if fits.any():
                return pod
        return None
