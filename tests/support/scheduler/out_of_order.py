"""A scheduler whose bindings arrive out of order, and a watch of what it does.

It decides about one pod after the other. A pod that it has placed counts for it at once; its binding reaches
the API server some time later, and what others do to pods reaches the scheduler some time after the API
server. The watch sees everything in the order in which the API server has it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import numpy as np
from msgspec.structs import replace

from rebalancer.engine.agreement import Agreement, Comparison
from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.framework import Frameworks, nobody_preempted, summary
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.version import Change, ServerVersion
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot

SETTLED = 3.0


class OtherVersion(ServerVersion, frozen=True):
    """A version in which one change is otherwise than in the version of these numbers."""

    other: Change | None = None

    def has(self, change: Change) -> bool:
        """As the version has it, but for one."""
        return super().has(change) != (change is self.other)


class OutOfOrder:
    """`other`: a change that it has and the engine has not, or the other way round; `sees`: pods as it sees
    them; `late`: seconds that a binding takes at most; `behind`: those by which the scheduler is behind."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        config: SchedulerConfig = DEFAULT_CONFIG,
        other: Change | None = None,
        sees: Callable[[PodTemplate], PodTemplate] | None = None,
        late: float = 0.5,
        behind: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.state = ClusterState(snapshot, config)
        if other is not None:
            version = self.state.version
            fields = {f: getattr(version, f) for f in version.__struct_fields__}
            changed = OtherVersion(**fields, other=other)
            altered = ClusterState(snapshot, config)
            altered.version = changed
            altered.ports._version = altered.terms._version = changed
            self.state = altered
        self._sees, self._seen_as = sees, dict[int, tuple[PodTemplate, PodTemplate]]()
        for pod in snapshot.pods:
            self.state.put(self.its(pod), pod.key)
        self.state.attach(snapshot.attachments)
        self.agreement = Agreement(snapshot)
        self.found: list[Comparison] = []
        self._frameworks = Frameworks(self.state)
        self._random = random.Random(seed)
        self._late, self._behind = late, behind
        self._pods = {p.key: p for p in snapshot.pods}
        self._queue: list[str] = []
        self._refused: list[str] = []
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self._deciding = False

    def at(self, when: float, do: Callable[[float], None]) -> None:
        heapq.heappush(self._due, (when, next(self._number), do))

    def its(self, pod: Pod) -> Pod:
        """The pod as the scheduler sees it."""
        if self._sees is None:
            return pod
        if id(pod.template) not in self._seen_as:
            self._seen_as[id(pod.template)] = pod.template, self._sees(pod.template)
        return replace(pod, template=self._seen_as[id(pod.template)][1])

    def run(self, until: Callable[[Comparison], bool] = lambda _: False) -> list[Comparison]:
        """Until nothing happens any more, or until such a comparison; all of them."""
        now = 0.0
        while self._due and not (self.found and until(self.found[-1])):
            now, _, do = heapq.heappop(self._due)
            do(now)
            self.found += self.agreement.settled(now - SETTLED)
        return [*self.found, *self.agreement.settled()]

    def create(self, pods: Iterable[Pod], when: Callable[[int], float]) -> None:
        for number, pod in enumerate(pods):
            self.at(when(number), lambda now, pod=pod: self._made(pod, now))  # type: ignore[misc]

    def delete(self, key: str, now: float) -> None:
        """The pod ends: at first it is terminating, and then gone."""
        pod = self._pods.get(key)
        if pod is None:
            return
        self._seen(replace(pod, deleted=now + 1.0), now)
        self.at(now + 1.0, lambda later: self._gone(key, later))

    def _gone(self, key: str, now: float) -> None:
        self._pods.pop(key, None)
        self.agreement.gone(key)
        self.at(now + self._lag(), lambda later: self._heard(key, None, later))

    def _made(self, pod: Pod, now: float) -> None:
        self._seen(pod, now)

    def _seen(self, pod: Pod, now: float) -> None:
        """The API server has the pod so."""
        self._pods[pod.key] = pod
        self.agreement.seen(pod, now)
        self.at(now + self._lag(), lambda later: self._heard(pod.key, pod, later))

    def _lag(self) -> float:
        return self._behind

    def _heard(self, key: str, pod: Pod | None, now: float) -> None:
        """The scheduler hears of it."""
        if pod is not None and pod.waits:
            if not pod.unschedulable:
                self._queue.append(key)
                self._wake(now)
            return
        if pod is not None and key in self.state.pods and not pod.terminating:
            return
        self.state.drop(key)
        if pod is not None:
            self.state.put(self.its(pod), key)
        self._queue += self._refused
        self._refused.clear()
        self._wake(now)

    def _wake(self, now: float) -> None:
        if not self._deciding and self._queue:
            self._deciding = True
            self.at(now + 0.002, self._decide)

    def _decide(self, now: float) -> None:
        self._deciding = False
        key = self._queue.pop(0)
        pod = self._pods.get(key)
        pod = self.its(pod) if pod is not None else None
        if pod is not None and pod.waits and key not in self.state.pods:
            framework = self._frameworks.of(pod.template)
            feasible = framework.feasible(pod.template)
            if feasible.any():
                totals = framework.score(pod.template, feasible).totals
                rows = np.flatnonzero(feasible & (totals == totals[feasible].max()))
                row = int(rows[self._random.randrange(len(rows))])
                self.state.put(replace(pod, node_name=self.state.table.names[row]), key)
                self.at(now + self._random.random() * self._late, lambda t: self._bind(key, row, t))
            else:
                diagnosis, size = framework.diagnose(pod.template), self.state.table.size
                said = summary(diagnosis, size, nobody_preempted(diagnosis, size))
                self._refused.append(key)
                self.at(now + self._random.random() * 0.05, lambda t: self._refuse(key, said, t))
        self._wake(now)

    def _bind(self, key: str, row: int, now: float) -> None:
        pod = self._pods.get(key)
        if pod is not None and not pod.terminating:
            self._seen(replace(pod, node_name=self.state.table.names[row], unschedulable=""), now)
        else:
            self.state.drop(key)

    def _refuse(self, key: str, said: str, now: float) -> None:
        pod = self._pods.get(key)
        if pod is not None and pod.waits and pod.unschedulable != said:
            self._seen(replace(pod, unschedulable=said), now)


def pods_like(pod: Pod, number: int, **fields: Any) -> list[Pod]:
    """So many more of its template."""
    return [
        replace(pod, name=f"{pod.name}-{i}", uid=f"{pod.name}-{i}", node_name="", unschedulable="", **fields)
        for i in range(number)
    ]
