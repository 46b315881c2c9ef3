"""Nodes on which there is room now for what the last plan found no node for.

A pod that ends anywhere is no event. It is one if it was on a node that a blocked move waits for, and if the
replacement did not fit there before and does now, by the scheduler's own filters.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from msgspec.structs import replace

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Identity, Snapshot
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.runtime.daemon.events.happening import Happening
from rebalancer.spread.arrays import Bools

_FOR_ROOM = frozenset({ReasonCode.NO_FEASIBLE_NODE, ReasonCode.NEEDS_PREEMPTION, ReasonCode.PENDING_PODS})
"""Reasons that may end when a pod goes away."""
_MOST = 20
"""Templates that are waited for; more of them hardly fit anywhere else."""
_EVERY, _SHARE = 1.0, 20
"""Seconds between two looks at least, and so many times what a look took."""


class Watched(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here. Raises CacheNotReadyError."""

    def pods(self) -> Mapping[Identity, Pod]:
        """All pods by namespace and name."""
        ...

    def snapshot(self, now: float) -> Snapshot:
        """Everything."""
        ...

    def generation(self, kind: str) -> int:
        """A number that differs whenever the objects of the kind do."""
        ...


class RoomEvents(Observer):
    """`scheduler`: its configuration, None for its defaults. `wall`: seconds of the epoch."""

    def __init__(
        self,
        watched: Watched,
        scheduler: Callable[[], SchedulerConfig | None],
        *,
        wall: Callable[[], float],
    ) -> None:
        self._watched = watched
        self._scheduler = scheduler
        self._wall = wall
        self._wanted: dict[int, tuple[PodTemplate, frozenset[str]]] = {}
        self._there: dict[str, dict[Identity, Pod]] = {}
        self._generation: int | None = None
        self._not_before = 0.0

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Takes down for which pods there was no room, and on which nodes there should be."""
        left = [c for c in plan.constraints if c.in_scope and c.residual_excess]
        self._wanted = {}
        for b in plan.blocked:
            t = b.pod.template
            if b.reason.code in _FOR_ROOM and id(t) not in self._wanted and len(self._wanted) < _MOST:
                lowest = [c for c in left if c.constraint.counts(b.pod.namespace, t.labels)]
                self._wanted[id(t)] = t, frozenset(_nodes(snapshot.nodes, lowest))
        self._there = self._on_nodes(((p.namespace, p.name), p) for p in snapshot.pods)
        self._generation = None

    def news(self, now: float) -> Iterator[Happening]:
        """A happening for each kind of pod for which there is room from now."""
        if not self._there or now < self._not_before or self._generation == self._watched.generation("Pod"):
            return
        self._generation = self._watched.generation("Pod")
        began = time.monotonic()
        before, self._there = self._there, self._on_nodes(self._watched.pods().items())
        less = {n for n, pods in before.items() if pods.keys() - self._there[n].keys()}
        found = list(self._fits(less, before)) if less else []
        self._not_before = now + max(_EVERY, _SHARE * (time.monotonic() - began))
        yield from found

    def _on_nodes(self, pods: Iterable[tuple[Identity, Pod]]) -> dict[str, dict[Identity, Pod]]:
        """The pods that take room on the nodes that are waited for."""
        found: dict[str, dict[Identity, Pod]] = {n: {} for _, names in self._wanted.values() for n in names}
        for identity, pod in pods if found else ():
            if pod.node_name in found and not pod.finished:
                found[pod.node_name][identity] = pod
        return found

    def _fits(self, less: set[str], before: dict[str, dict[Identity, Pod]]) -> Iterator[Happening]:
        snapshot = self._watched.snapshot(self._wall())
        nodes = tuple(n for n in snapshot.nodes if n.name in less)
        config = self._scheduler() or DEFAULT_CONFIG

        def state(there: dict[str, dict[Identity, Pod]]) -> ClusterState:
            pods = tuple(p for n in nodes for p in there[n.name].values())
            return ClusterState.of(replace(snapshot, nodes=nodes, pods=pods), config)

        then, now = state(before), state(self._there)
        for template, names in self._wanted.values():
            fits = _alone(now, template) & ~_alone(then, template)
            open_ = [n for n, fit in zip(now.table.names, fits.tolist(), strict=True) if fit and n in names]
            if open_:
                key = (template.namespace, template.controller or id(template))
                yield Happening(key, f"there is room on {open_[0]}, for which a move waits")


def _nodes(nodes: Iterable[Node], violated: Iterable[ConstraintResult]) -> Iterator[str]:
    """The nodes of the domains with the fewest pods: where a pod would have to go."""
    lowest: dict[str, set[str]] = defaultdict(set)
    for c in violated:
        fewest = min(c.after.values(), default=0)
        lowest[c.constraint.topology_key] |= {d for d, n in c.after.items() if n == fewest}
    for node in nodes:
        if any(node.labels.get(key) in domains for key, domains in lowest.items()):
            yield node.name


def _alone(state: ClusterState, template: PodTemplate) -> Bools:
    """bool[N]: nodes that would take the pod, but for its spread: that is for the plan to say."""
    profile = state.config.profile(template.scheduler_name)
    skipped = "PodTopologySpread"
    return Framework(
        state,
        replace(
            profile,
            filters=tuple(f for f in profile.filters if f != skipped),
            pre_filters=tuple(f for f in profile.pre_filters if f != skipped),
        ),
    ).feasible(template)
