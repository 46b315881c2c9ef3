"""The scheduler over a state: Pending pods are placed by filter and score, one after the other.

Equal scores go to the first node by name. A pod that finds no node is asked about again after a placement
that can have opened one to it: only counts of its spread constraints do that, and pods that it wants to
be near. Many pods of one template without such ties are placed by few rounds of scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from rebalancer.engine.framework import Frameworks
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import can_open
from rebalancer.planner.cluster.simulation import key_of
from rebalancer.spread.arrays import Bools, Ints, Rows

_NOTHING: Mapping[str, Ints] = {}
_FEW = 20
"""So many pods of a template are placed one by one in any case."""


class Waits(Struct, frozen=True, eq=False):
    """Pending pods of one template, in order of arrival. `keys`: under which the state shall hold them."""

    template: PodTemplate
    keys: tuple[Hashable, ...]


def by_template(pods: Iterable[tuple[Hashable, PodTemplate]]) -> list[Waits]:
    """Pods in order of arrival, those of one template together."""
    found: dict[int, tuple[PodTemplate, list[Hashable]]] = {}
    for key, template in pods:
        found.setdefault(id(template), (template, []))[1].append(key)
    return [Waits(template, tuple(keys)) for template, keys in found.values()]


class _Left:
    """Pods that found no node, by template in order, and by where a placement can matter to them."""

    def __init__(self) -> None:
        self._all: dict[int, Waits] = {}
        self._in_namespace: dict[str, dict[int, None]] = {}

    def put(self, waits: Waits) -> None:
        """What is left of this template now."""
        key, namespace = id(waits.template), self._in_namespace.setdefault(waits.template.namespace, {})
        if waits.keys:
            self._all[key] = waits
            namespace[key] = None
        else:
            self._all.pop(key, None)
            namespace.pop(key, None)

    def beside(self, placed: PodTemplate, state: ClusterState) -> list[Waits]:
        """Pods that a placed one may concern: of its namespace, or such as want to be near others."""
        near = [k for k, w in self._all.items() if state.terms.of(w.template).required]
        return [self._all[k] for k in dict.fromkeys((*self._in_namespace.get(placed.namespace, ()), *near))]

    def all(self) -> list[Waits]:
        """All of them."""
        return list(self._all.values())


class Placing:
    """The scheduler. `down`: bool[N], nodes that do not exist for it any more. `order`: all nodes; of equally
    good ones it takes the first in it. `kept`: int64[N] by resource, what it leaves free of a node that has
    all of it now."""

    def __init__(
        self,
        state: ClusterState,
        down: Bools | None = None,
        order: Rows | None = None,
        *,
        kept: Mapping[str, Ints] = _NOTHING,
    ) -> None:
        self.state = state
        there = [state.left(r) >= amounts for r, amounts in kept.items()]
        self._kept = {r: n * np.logical_and.reduce(there) for r, n in kept.items()}
        self._order = np.arange(state.table.size) if order is None else order
        self.frameworks = Frameworks(state)
        self._down = down
        self.placed: dict[Hashable, int] = {}

    def feasible(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that take the pod now."""
        mask = self.frameworks.of(template).feasible(template)
        for resource, amount in self.state.holds(template) if self._kept else ():
            if (kept := self._kept.get(resource)) is not None:
                mask &= (kept == 0) | (self.state.left(resource) - amount >= kept)
        return mask if self._down is None else mask & ~self._down

    def place(self, every: Sequence[Waits], others: Iterable[Waits] = ()) -> list[Waits]:
        """Places what finds a node, higher priorities first; returns what does not. `others` found none
        before, and are asked again where a placement may have opened one."""
        left = _Left()
        for waits in others:
            left.put(waits)
        together = by_template((key, waits.template) for waits in every for key in waits.keys)
        for waits in sorted(together, key=lambda w: -w.template.priority):
            before = len(self.placed)
            left.put(self._some(waits))
            if len(self.placed) > before:
                self._again(left, waits.template)
        return left.all()

    def _again(self, left: _Left, placed: PodTemplate) -> None:
        """Tries those again to which the last placements may have opened a node."""
        opened = [placed]
        while opened:
            at = opened.pop()
            for waits in left.beside(at, self.state):
                if can_open(self.state, at, waits.template):
                    before = len(self.placed)
                    left.put(self._some(waits))
                    if len(self.placed) > before:
                        opened.append(waits.template)

    def _some(self, waits: Waits) -> Waits:
        """Places pods of one template until no node takes one; what is left."""
        template, keys = waits.template, list(waits.keys)
        tied = bool(
            self.state.constraints(template, hard=True)
            or template.host_ports
            or template.attaches
            or self.state.terms.of(template).required
            or self.state.terms.of(template).required_anti
        )
        while keys:
            mask = self.feasible(template)
            number = int(np.count_nonzero(mask))
            if not number:
                break
            totals = self.frameworks.of(template).score(template, mask).totals if number > 1 else None
            at_once = 1 if tied or len(keys) <= _FEW else max(1, min(len(keys), number // 4))
            rows = self._order[mask[self._order]]
            if totals is not None:
                rows = rows[np.argsort(-totals[rows], kind="stable")]
            for row in rows[:at_once].tolist():
                key = keys.pop(0)
                self.state.add(key, template, row)
                self.placed[key] = row
        return Waits(template, tuple(keys))


def at_rest(state: ClusterState, snapshot: Snapshot) -> tuple[Placing, list[Waits], list[Waits]]:
    """The state once nothing is under way: pods that terminate are gone, and what waits has a node if one
    takes it. Who placed them, what is left, and what is left of pods that wait for their own node
    (DaemonSets).
    """
    for key in list(state.nominated):
        state.unnominate(key)
    waiting = [p for p in snapshot.pods if p.waits]
    for pod in waiting:
        state.drop(("placed", key_of(pod)))
    nodes, index = state.table.nodes, state.table.index
    for pod in snapshot.over:
        if not pod.finished and pod.node_name in index and nodes[index[pod.node_name]].ready:
            state.remove(key_of(pod))
    placing = Placing(state)
    waiting.sort(key=lambda p: (p.created or 0.0, p.key))
    left = placing.place(by_template((key_of(p), p.template) for p in waiting))
    its_own = {key_of(p) for p in waiting if p.owner is not None and p.owner.kind == "DaemonSet"}
    every = [(k, w.template) for w in left for k in w.keys]
    return (
        placing,
        by_template((k, t) for k, t in every if k not in its_own),
        by_template((k, t) for k, t in every if k in its_own),
    )
