"""The scheduler: one Pending pod after the other, on the engine that the planner predicts with.

Rule: pkg/scheduler/schedule_one.go. No preemption, no backoff: what found no node is tried again as soon as
something changed.
"""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import ClassVar

import numpy as np

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.framework import Framework, nobody_preempted, summary
from rebalancer.model.pod import Pod
from rebalancer.sandbox.controllers.infrastructure import bind_claims
from rebalancer.sandbox.controllers.loop import Controller, LiveState, Loop
from rebalancer.sandbox.objects import Object, set_condition
from rebalancer.sandbox.registry import Store, bind
from rebalancer.sandbox.resources import PODS, ApiError
from rebalancer.sandbox.storage import Event
from rebalancer.spread.arrays import Bools


class Scheduler(Controller):
    """Places pods in order of priority, then of arrival. `seed` decides between equally good nodes."""

    late: ClassVar[bool] = True

    def __init__(
        self,
        store: Store,
        loop: Loop,
        *,
        seed: int = 0,
        config: SchedulerConfig = DEFAULT_CONFIG,
        version: str = "",
    ) -> None:
        super().__init__(store, loop)
        self.live = LiveState(store, config, version)
        self._rng = random.Random(seed)
        self._names = {p.scheduler_name for p in config.profiles}
        self._number = count()
        self._queue: list[tuple[int, int, str]] = []
        self._pending: dict[str, int] = {}
        self._unschedulable: set[str] = set()
        self._seen = 0
        self._start = 0

    def notice(self, event: Event) -> None:
        pod = self.live.notice(event)
        if event.resource is PODS:
            uid = event.obj["metadata"]["uid"]
            waits = pod is not None and self._waits(pod)
            if waits and uid not in self._pending:
                assert pod is not None
                self._pending[uid] = next(self._number)
                self._push(pod)
            elif not waits and self._pending.pop(uid, None) is not None:
                self._unschedulable.discard(uid)
        if self._pending and (self._queue or self.live.changes != self._seen):
            self.loop.add(self)

    def sync(self, key: str) -> None:  # noqa: ARG002
        if self.live.changes != self._seen:
            self._seen = self.live.changes
            for uid in self._unschedulable:
                if (again := self.live.pod(uid)) is not None:
                    self._push(again)
            self._unschedulable.clear()
        while self._queue:
            uid = heapq.heappop(self._queue)[2]
            pod = self.live.pod(uid)
            if uid in self._pending and pod is not None:
                self._schedule(pod)
                break
        if self._queue or self.live.changes != self._seen:
            self.loop.add(self)

    def _waits(self, pod: Pod) -> bool:
        return pod.waits and pod.template.scheduler_name in self._names

    def _push(self, pod: Pod) -> None:
        heapq.heappush(self._queue, (-pod.template.priority, self._pending[pod.uid], pod.uid))

    def _schedule(self, pod: Pod) -> None:
        framework = self.live.framework(pod.template.scheduler_name)
        with framework.state.unhindered(pod.uid):
            feasible = framework.feasible(pod.template)
            if not feasible.any():
                self._fail(pod, framework)
                return
            row = self._choose(pod, framework, feasible)
        found = self.store.find(PODS, pod.name, pod.namespace)
        if found is None or found["metadata"]["uid"] != pod.uid:
            return  # its end is among the changes to come
        node = framework.state.table.names[row]
        try:
            bind_claims(self.store, found, node)
            bind(self.store, pod.namespace, pod.name, node)
        except ApiError:
            return  # deleted or bound meanwhile: the change that says so follows
        self._pending.pop(pod.uid, None)
        self.live.assume(pod, row)

    def _choose(self, pod: Pod, framework: Framework, feasible: Bools) -> int:
        """The row of one of the best nodes."""
        candidates = self._sampled(framework, feasible)
        if np.count_nonzero(candidates) == 1:
            return int(np.flatnonzero(candidates)[0])  # upstream scores nothing then
        totals = framework.score(pod.template, candidates).totals
        best = totals.max(where=candidates, initial=-1)
        rows = np.flatnonzero(candidates & (totals == best))
        return int(rows[self._rng.randrange(len(rows))])

    def _sampled(self, framework: Framework, feasible: Bools) -> Bools:
        """The nodes at which the search stops, ``numFeasibleNodesToFind``: it goes on where it last ended."""
        size = len(feasible)
        if (most := framework.profile.nodes_to_find(size)) == size:
            return feasible
        order = np.roll(framework.state.table.searched, -self._start)
        found = np.flatnonzero(feasible[order])[:most]
        looked = int(found[-1]) + 1 if len(found) == most else size
        self._start = (self._start + looked) % size
        kept = np.zeros(size, dtype=np.bool_)
        kept[order[found]] = True
        return kept

    def _fail(self, pod: Pod, framework: Framework) -> None:
        self._unschedulable.add(pod.uid)
        diagnosis, size = framework.diagnose(pod.template), framework.state.table.size
        message = summary(diagnosis, size, nobody_preempted(diagnosis, size))

        def explain(new: Object) -> None:
            verdict = {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "reason": "Unschedulable",
                "message": message,
            }
            set_condition(new, verdict, self.store.now())

        with self.store.lock:
            found = self.store.find(PODS, pod.name, pod.namespace)
            if found is not None and found["metadata"]["uid"] == pod.uid:
                self.store.modify(PODS, pod.name, pod.namespace, explain, subresource="status")
