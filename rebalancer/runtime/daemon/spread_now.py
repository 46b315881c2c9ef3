"""How much of the spread is violated now, as the watches tell of it: known between cycles, too.

The daemon follows pods and nodes (`spread.index`) about once a second. A pod costs microseconds. When labels
or taints of nodes change, each constraint is asked once more which nodes count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.store import Change
from rebalancer.model.node import Node, is_leaving
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.constraint import SELECTING, Constraint
from rebalancer.spread.index import SpreadIndex

_SHARE = 10
"""What is made anew is made again at the earliest after so many times what it took."""


class Spread(Struct, frozen=True):
    """What the index goes by. `scheduler`: None for its defaults; `soft`: whether soft constraints count."""

    scheduler: SchedulerConfig | None = None
    soft: bool = False

    @property
    def defaults(self) -> bool:
        """Whether pods without constraints of their own are given some that count."""
        kinds = ("DoNotSchedule", "ScheduleAnyway") if self.soft else ("DoNotSchedule",)
        profiles = (self.scheduler or DEFAULT_CONFIG).profiles
        return any(c.when_unsatisfiable in kinds for p in profiles for c in p.default_constraints)


class SpreadNow:
    """What is violated as of the last `look`. `rules` gives what is set now.

    `touched`: namespaces of which pods may have changed, `freed`: nodes on which pods may have ended, until
    somebody clears them.
    """

    def __init__(
        self,
        cache: WatchCache,
        rules: Callable[[], Spread],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.touched = set[str]()
        self.freed = set[str]()
        self._now: Mapping[str, Mapping[Constraint, int]] | None = None
        self._cache = cache
        self._feed = cache.follow_pods()
        self._asked = rules
        self._monotonic = monotonic
        self._index: SpreadIndex | None = None
        self._rules = Spread()
        self._nodes: tuple[Node, ...] = ()
        self._facts: dict[str, tuple[object, ...]] = {}
        self._selecting: tuple[int, ...] = ()
        self._not_before = 0.0

    def violated(self) -> list[Constraint]:
        """The constraints with an excess, as far as known."""
        return [c for of in (self._now or {}).values() for c in of]

    def excess(self, in_view: Callable[[str], bool]) -> dict[str, int] | None:
        """The excess by namespace, of those in view that have constraints; None where it is not known."""
        now = self._now
        return None if now is None else {n: sum(of.values()) for n, of in now.items() if in_view(n)}

    def look(self) -> None:
        """Takes over what has happened since the last look."""
        changes, lost = self._feed.take()
        if lost:
            self.forget()
        changed = self._take(changes)
        try:
            self._cache.check()
            began = self._monotonic()
            if began >= self._not_before and self._renewed():
                changed, ended = True, self._monotonic()
                self._not_before = ended + _SHARE * (ended - began)
        except CacheNotReadyError:
            # What comes meanwhile is not lost, and nothing is said until all of it is there.
            self._now = None
            return
        if self._index is not None and (changed or self._now is None):
            self._now = self._index.excess()

    def forget(self) -> None:
        """Begins anew at the next look."""
        self._index = self._now = None

    def _take(self, changes: list[Change]) -> bool:
        if self._index is None:
            return False
        for (namespace, name, *_), pod, _ in changes:
            there = isinstance(pod, Pod) and not pod.finished and pod.node_name
            before = self._index.put(pod) if isinstance(pod, Pod) else self._index.drop(namespace, name)
            self.touched.add(namespace)
            if before is not None and before.node_name and before.node_name != there:
                self.freed.add(before.node_name)
        return bool(changes)

    def _renewed(self) -> bool:
        """Whether nodes, or what pods are counted by, have changed, and it is known by now what that means.

        Rules that were asked about many pods that are gone are made anew as well.
        """
        nodes, index = self._cache.nodes(), self._index
        if index is None or self._asked() != self._rules or self._selecting != self._generations():
            self._build(nodes)
            return True
        if nodes is self._nodes and not index.outdated:
            return False
        facts, before = facts_of(nodes), self._facts
        self._nodes, self._facts = nodes, facts
        changed = {n for n in facts.keys() | before.keys() if facts.get(n) != before.get(n)}
        if changed or index.outdated:
            index.move(self._state(), changed)
            return True
        return False

    def _build(self, nodes: tuple[Node, ...]) -> None:
        """Counts all pods. What changes meanwhile is told once more by the feed; that does no harm."""
        self._rules = self._asked()
        self._selecting = self._generations()
        self._nodes, self._facts = nodes, facts_of(nodes)
        index = SpreadIndex(self._state(), soft=self._rules.soft)
        pods = self._cache.pods()
        for pod in pods.values():
            index.put(pod)
        if self._index is None:
            self.touched.update(namespace for namespace, *_ in pods)
            self.freed.update(self._facts)
        self._index = index

    def _state(self) -> ClusterState:
        """The nodes without any pod, and what default constraints select by."""
        only = Snapshot(nodes=self._nodes, pods=(), now=0.0)
        if self._rules.defaults:
            every = self._cache.snapshot(0.0)
            only = replace(only, services=every.services, workloads=every.workloads)
        return ClusterState(only, self._rules.scheduler or DEFAULT_CONFIG)

    def _generations(self) -> tuple[int, ...]:
        return tuple(self._cache.generation(kind) for kind in SELECTING) if self._rules.defaults else ()


def facts_of(nodes: Iterable[Node]) -> dict[str, tuple[object, ...]]:
    """What a plan rests on of each node; heartbeats change nothing of it."""
    return {n.name: (n.ready, is_leaving(n), n.labels, sorted(map(str, n.spec.taints))) for n in nodes}
