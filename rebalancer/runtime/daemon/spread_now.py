"""How much of the spread is violated now, as the watches tell of it: known between cycles, too.

A thread of its own follows pods and nodes (`spread.index`). A pod costs microseconds. When labels or taints
of nodes change, each constraint is asked once more which nodes count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.store import Change
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.runtime.live.cached import Follower
from rebalancer.spread.constraint import SELECTING, Constraint
from rebalancer.spread.index import SpreadIndex

_POLL = 0.25
_SHARE = 10
"""What is made anew is made again at the earliest after so many times what it took."""

_NodeFacts = dict[str, tuple[object, object]]


class Violations(Struct, frozen=True):
    """What is violated at one moment. `excess`: by namespace, of those with constraints; `by_constraint`: of
    each constraint that has an excess."""

    excess: Mapping[str, int]
    by_constraint: Mapping[Constraint, int]


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


class SpreadNow(Follower):
    """`now` is what is violated; None as long as that is not known. `rules` gives what is set now."""

    def __init__(
        self,
        cache: WatchCache,
        rules: Callable[[], Spread],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(cache, name="spread", poll=_POLL)
        self.now: Violations | None = None
        self._asked = rules
        self._monotonic = monotonic
        self._index: SpreadIndex | None = None
        self._rules = Spread()
        self._nodes: tuple[Node, ...] = ()
        self._facts: _NodeFacts = {}
        self._selecting: tuple[int, ...] = ()
        self._not_before = 0.0

    def violated(self) -> Mapping[Constraint, int] | None:
        """The constraints with an excess; None where that is not known."""
        return self.now.by_constraint if self.now is not None else None

    def excess(self, in_view: Callable[[str], bool]) -> dict[str, int] | None:
        """The excess by namespace, of those in view; None where it is not known."""
        now = self.now
        return None if now is None else {n: excess for n, excess in now.excess.items() if in_view(n)}

    def look(self) -> None:
        """Takes over what has happened since the last look."""
        changes, lost = self._feed.take()
        if lost:
            self._index = self.now = None
        changed = self._take(changes)
        try:
            self._cache.check()
            if self._index is None or self._asked() != self._rules or self._selects_anew():
                changed |= self._build()
            else:
                changed |= self._move()
        except CacheNotReadyError:
            # What comes meanwhile is not lost, and nothing is said until all of it is there.
            self.now = None
            return
        if changed or self.now is None:
            self._tell()

    def _forget(self) -> None:
        self._index = self.now = None

    def _build(self) -> bool:
        """Counts all pods. What changes meanwhile is told once more by the feed; that does no harm."""
        if self._monotonic() < self._not_before:
            return False
        began = self._monotonic()
        self._rules = self._asked()
        self._selecting = self._generations()
        self._nodes = self._cache.nodes()
        self._facts = _facts(self._nodes)
        index = SpreadIndex(self._state(), soft=self._rules.soft)
        for pod in self._cache.pods().values():
            index.put(pod)
        self._index = index
        self._rest(began)
        return True

    def _take(self, changes: list[Change]) -> bool:
        if self._index is None:
            return False
        for identity, pod, _ in changes:
            if isinstance(pod, Pod):
                self._index.put(pod)
            else:
                self._index.drop(identity[0], identity[1])
        return bool(changes)

    def _move(self) -> bool:
        """Takes over labels and taints of nodes, and forgets what the rules know of pods that are gone."""
        index = self._index
        assert index is not None
        nodes = self._cache.nodes()
        if (nodes is self._nodes and not index.worn) or self._monotonic() < self._not_before:
            return False
        began, facts = self._monotonic(), _facts(nodes)
        self._nodes = nodes
        changed = {n for n in facts.keys() | self._facts.keys() if facts.get(n) != self._facts.get(n)}
        if not changed and not index.worn:
            return False
        self._facts = facts
        index.move(self._state(), changed)
        self._rest(began)
        return True

    def _rest(self, began: float) -> None:
        ended = self._monotonic()
        self._not_before = ended + _SHARE * (ended - began)

    def _state(self) -> ClusterState:
        """The nodes without any pod, and what default constraints select by."""
        if self._rules.defaults:
            every = self._cache.snapshot(0.0)
            only = Snapshot(
                nodes=self._nodes, pods=(), now=0.0, services=every.services, workloads=every.workloads
            )
        else:
            only = Snapshot(nodes=self._nodes, pods=(), now=0.0)
        return ClusterState(only, self._rules.scheduler or DEFAULT_CONFIG)

    def _selects_anew(self) -> bool:
        return self._rules.defaults and self._selecting != self._generations()

    def _generations(self) -> tuple[int, ...]:
        return tuple(self._cache.generation(kind) for kind in SELECTING) if self._rules.defaults else ()

    def _tell(self) -> None:
        if self._index is None:
            return
        found = self._index.excess()
        self.now = Violations(
            {namespace: sum(of.values()) for namespace, of in found.items()},
            {c: n for of in found.values() for c, n in of.items()},
        )


def _facts(nodes: tuple[Node, ...]) -> _NodeFacts:
    """What decides which nodes are eligible; heartbeats change nothing of it."""
    return {n.name: (n.labels, n.spec.taints) for n in nodes}
