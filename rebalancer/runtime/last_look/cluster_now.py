"""The engine's state of the cluster as it is watched now.

It follows the watch pod by pod, which costs milliseconds. It is built again, which takes a second for 150,000
pods, when a node says something else than before to anything that was asked of it (`NodeTable.follow`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from rebalancer.engine.config import SchedulerConfig
from rebalancer.model.kinds import Object
from rebalancer.model.node import Node, NodeClaim
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Identity, Snapshot, build_snapshot, going, to_be_replaced
from rebalancer.model.workload import Namespace, VerticalPodAutoscaler
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.replacement import VerticalAutoscalers


class Watched(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here. Raises CacheNotReadyError."""

    def nodes(self) -> tuple[Node, ...]:
        """All nodes; the same tuple as long as none of them changes."""
        ...

    def pods(self) -> Mapping[Identity, Pod]:
        """All pods by namespace and name."""
        ...

    def vertical_autoscalers(self, namespace: str) -> Sequence[VerticalPodAutoscaler]:
        """All of a namespace."""
        ...

    def node_claims(self) -> tuple[NodeClaim, ...]:
        """All of Karpenter's."""
        ...

    def classes(self) -> Collection[Object]:
        """All StorageClasses, CSINodes, CSIDrivers and PriorityClasses."""
        ...

    def namespaces(self) -> Collection[Namespace]:
        """All of them."""
        ...

    def snapshot(self, now: float) -> Snapshot:
        """Everything."""
        ...


class ClusterNow:
    """Begins as `snapshot`. `config`: the scheduler's, None for its defaults."""

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig | None, watched: Watched) -> None:
        self._config = config
        self._watched = watched
        self._planned = {n.name: n for n in snapshot.nodes}
        self.nodes = snapshot.nodes
        self._claims = snapshot.node_claims
        self._now = snapshot.now
        self._pods: Mapping[Identity, Pod] = {}
        self._classes: dict[int, Object] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self._groups: dict[str, Groups] = {}
        self._templates: dict[str, dict[int, tuple[PodTemplate, int]]] = {}
        self.simulation = self._begin(snapshot)

    def catch_up(self) -> None:
        """Takes over what has changed since the last time. Raises CacheNotReadyError."""
        nodes, claims = self._watched.nodes(), self._watched.node_claims()
        renewed = claims != self._claims and self._renewed(nodes, claims)
        renewed = renewed or {id(o) for o in self._watched.classes()} != self._classes.keys()
        # Affinity may mean pods of the namespaces that have certain labels.
        renewed = renewed or _labels(self._watched.namespaces()) != self._labels
        if nodes is not self.nodes or renewed:
            # Volumes attach, and new pods are ranked, by what seldom changes.
            if renewed or not self.simulation.state.table.follow(nodes):
                self.simulation = self._begin(self._watched.snapshot(self._now))
            self.nodes = nodes
        self._claims = claims
        live = self._watched.pods()
        known = self._pods
        for key in known.keys() - live.keys():
            self._take(known[key])
        for key, pod in live.items():
            before = known.get(key)
            if before is not pod:
                if before is not None:
                    self._take(before)
                self._put(pod)
        self._pods = live

    def _renewed(self, nodes: Iterable[Node], claims: Collection[NodeClaim]) -> bool:
        """Whether other nodes than before are about to be replaced."""
        planned = self.simulation.snapshot
        now = to_be_replaced(claims, planned.node_pools, nodes, self._watched.pods().values())
        return going(now, self._now) != planned.going

    def pod(self, planned: Pod) -> Pod | None:
        """The pod as it is now; None if it is gone, or no longer on a node."""
        live = self._pods.get((planned.namespace, planned.name))
        there = (
            live is not None
            and live.uid == planned.uid
            and (live.uid or live.key) in self.simulation.state.pods
        )
        return live if there else None

    def changed_nodes(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Which of these nodes of the plan are gone; and which say something else than they did to anything
        that was asked of them."""
        table = self.simulation.state.table
        planned = sorted(n for n in names if n in self._planned)
        there = [n for n in planned if n in table.index]
        return (
            [n for n in planned if n not in table.index],
            [n for n in there if table.differs(self._planned[n])],
        )

    def autoscalers(self, namespace: str) -> VerticalAutoscalers:
        """What sets the requests of pods that are made in a namespace now."""
        return VerticalAutoscalers(build_snapshot(self._watched.vertical_autoscalers(namespace), now=0.0))

    @property
    def pods(self) -> Collection[Pod]:
        """All pods as they are now."""
        return self._pods.values()

    def templates(self, namespace: str) -> list[PodTemplate]:
        """Of the pods of a namespace that may still come again."""
        return [t for t, _ in self._templates[namespace].values()]

    def groups(self, namespace: str) -> Groups:
        """The hard constraints of the pods of a namespace, which are all that count such pods."""
        found = self._groups.get(namespace)
        if found is None:
            found = self._groups[namespace] = Groups(self.simulation.state, self.templates(namespace))
        return found

    def _begin(self, snapshot: Snapshot) -> Simulation:
        self._pods = {(p.namespace, p.name): p for p in snapshot.pods}
        by_class = (
            snapshot.storage_classes,
            snapshot.csi_nodes,
            snapshot.csi_drivers,
            snapshot.priority_classes,
        )
        self._labels = _labels(snapshot.namespaces.values())
        self._classes = {id(o): o for objects in by_class for o in objects.values()}
        self._groups = {}
        self._templates = defaultdict(dict)
        for pod in snapshot.pods:
            self._count(pod, 1)
        return Simulation(snapshot, self._config)

    def _put(self, pod: Pod) -> None:
        self.simulation.state.put(pod)
        self._count(pod, 1)

    def _take(self, pod: Pod) -> None:
        self.simulation.state.take(pod)
        self._count(pod, -1)

    def _count(self, pod: Pod, by: int) -> None:
        """Keeps how many pods of each template there are that may still come again."""
        if pod.finished or pod.terminating:
            return
        template, there = pod.template, self._templates[pod.namespace]
        _, count = there.get(id(template), (template, 0))
        if count == 0 or count + by == 0:
            self._groups.pop(pod.namespace, None)
        if count + by:
            there[id(template)] = template, count + by
        else:
            del there[id(template)]


def _labels(namespaces: Iterable[Namespace]) -> dict[str, dict[str, str]]:
    return {n.metadata.name: n.metadata.labels for n in namespaces}
