"""The events of one cluster, as a daemon follows them between its cycles."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.outcome.observer import Observer
from rebalancer.planner.options import PlanOptions
from rebalancer.runtime.daemon.events.nodes import NodeEvents
from rebalancer.runtime.daemon.events.reaction import Reaction
from rebalancer.runtime.daemon.events.room import RoomEvents
from rebalancer.runtime.daemon.events.times import WaitsEnd
from rebalancer.runtime.daemon.events.workloads import WorkloadEvents
from rebalancer.settings.groups.operations import Schedule
from rebalancer.spread.constraint import Constraint


class Events:
    """`violated`: the constraints with an excess at this moment, None where that is not known. `planning`: as
    it is set now. `observers`: who has to hear of each cycle."""

    def __init__(
        self,
        cache: WatchCache,
        violated: Callable[[], Mapping[Constraint, int] | None],
        planning: Callable[[], PlanOptions],
    ) -> None:
        self._nodes = NodeEvents(cache.nodes)
        sources = (
            self._nodes,
            WaitsEnd(time.time),
            WorkloadEvents(cache, violated, lambda: planning().policy, wall=time.time),
            RoomEvents(cache, lambda: planning().scheduler, wall=time.time),
        )
        self._reaction = Reaction(sources, settling=self._nodes.settling)
        self.observers: tuple[Observer, ...] = (*sources, self._reaction)

    def due(self, schedule: Schedule) -> str:
        """Why a cycle is due now, "" if none is; told once."""
        if schedule.cron:
            return ""
        self._reaction.react, self._nodes.settle = schedule.react, schedule.node_settle
        try:
            return self._reaction.due()
        except CacheNotReadyError:
            return ""
