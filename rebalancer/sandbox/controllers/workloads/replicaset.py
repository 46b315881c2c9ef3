"""ReplicaSets and ReplicationControllers: as many pods as they want.

Rule: pkg/controller/replicaset/replica_set.go; whom it deletes: pkg/controller/controller_utils.go
(ActivePodsWithRanks).
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cmp_to_key
from typing import Any

from rebalancer.model.deletion_cost import DELETION_COST, cost_of
from rebalancer.sandbox.api.errors import ApiError
from rebalancer.sandbox.api.objects import Object, condition, is_ready, seconds_of
from rebalancer.sandbox.api.resources import PODS, resolve
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.loop import Loop
from rebalancer.sandbox.controllers.workloads.owner import OwnerController
from rebalancer.sandbox.registry.store import Store

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(OwnerController):
    """`kind`: ReplicaSet or ReplicationController."""

    def __init__(self, store: Store, loop: Loop, kind: str = "ReplicaSet") -> None:
        super().__init__(store, loop)
        self.resource = resolve(kind)

    def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        trouble: ApiError | None = None
        if not pods.terminating(owner):
            try:
                self._scale(owner)
            except ApiError as error:
                trouble = error
        self._status(key)
        if trouble is not None:
            raise trouble

    def _scale(self, owner: Object) -> None:
        live = [p for p in pods.owned_pods(self.store, owner) if pods.active(p)]
        missing = pods.replicas_of(owner) - len(live)
        name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
        template = owner["spec"].get("template") or {}
        for _ in range(missing):
            self.store.create(pods.pod_of(owner, template, generateName=f"{name}-"), namespace=namespace)
        if missing < 0:
            for pod in victims(live, self._related(owner, live), self.store.clock())[:-missing]:
                metadata = pod["metadata"]
                self.store.delete(PODS, metadata["name"], namespace, uid=metadata["uid"])

    def _related(self, owner: Object, own: list[Object]) -> list[Object]:
        """The pods of all sets of the same Deployment."""
        deployment = pods.controller_of(owner)
        if deployment is None:
            return own
        found: list[Object] = []
        for resource, sibling in self.store.owned(deployment["uid"]):
            if resource is self.resource:
                found += pods.owned_pods(self.store, sibling)
        return [p for p in found if pods.active(p)]

    def _status(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        mine = pods.owned_pods(self.store, owner)
        live = [p for p in mine if pods.active(p)]
        pause = int(owner["spec"].get("minReadySeconds") or 0)
        now = self.store.clock()
        wanted = (owner["spec"].get("template") or {}).get("metadata", {}).get("labels") or {}
        counts = {
            "replicas": len(live),
            "fullyLabeledReplicas": sum(
                wanted.items() <= (p["metadata"].get("labels") or {}).items() for p in live
            ),
            "readyReplicas": sum(map(is_ready, live)),
            "availableReplicas": sum(pods.available(p, pause, now) for p in live),
            "terminatingReplicas": sum(pods.terminating(p) and not pods.finished(p) for p in mine),
        }
        if counts["availableReplicas"] < counts["readyReplicas"]:
            self.loop.after(min(pause, 1.0), self, key)

        def change(new: Object) -> None:
            new["status"] = merged(new.get("status"), counts, owner)

        self.modify_status(key, change)


def merged(status: dict[str, Any] | None, counts: dict[str, int], owner: Object) -> dict[str, Any]:
    """A status with new counts: zeros are left out but for `replicas`, as Go does."""
    result = dict(status or {})
    for field, value in counts.items():
        if value or field == "replicas":
            result[field] = value
        else:
            result.pop(field, None)
    result["observedGeneration"] = int(owner["metadata"].get("generation", 0))
    return result


def victims(candidates: list[Object], related: list[Object], now: float) -> list[Object]:
    """The candidates in the order in which they would be deleted. `now` in seconds of the epoch."""
    crowd = Counter((p.get("spec") or {}).get("nodeName", "") for p in related)

    def rank(pod: Object) -> tuple[Any, ...]:
        node = (pod.get("spec") or {}).get("nodeName", "")
        phase = (pod.get("status") or {}).get("phase", "")
        cost = cost_of((pod["metadata"].get("annotations") or {}).get(DELETION_COST))
        return bool(node), _PHASES.get(phase, 2), is_ready(pod), cost, -crowd[node]

    def compare(one: Object, other: Object) -> int:
        first, second = rank(one), rank(other)
        if first != second:
            return -1 if first < second else 1
        ready = [(condition(p, "Ready") or {}).get("lastTransitionTime") for p in (one, other)]
        if is_ready(one) and ready[0] != ready[1]:
            return _younger(ready, one, other, now)
        restarts = _restarts(one), _restarts(other)
        if restarts[0] != restarts[1]:
            return restarts[1] - restarts[0]
        return _younger([p["metadata"].get("creationTimestamp") for p in (one, other)], one, other, now)

    return sorted(candidates, key=cmp_to_key(compare))


def _younger(times: list[str | None], one: Object, other: Object, now: float) -> int:
    """Which of two pods is the younger by these times.

    LogarithmicScaleDown: ages of one power of two count as equal, and then it is the uid that decides.
    """
    if times[0] == times[1]:
        return 0
    if None in times:
        return -1 if times[0] is None else 1
    first, second = (_magnitude(now - seconds_of(t)) for t in times)
    if first != second:
        return first - second
    return -1 if one["metadata"].get("uid", "") < other["metadata"].get("uid", "") else 1


def _magnitude(seconds: float) -> int:
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1


def _restarts(pod: Object) -> int:
    """Of the container that was restarted most often."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(s.get("restartCount") or 0) for s in statuses), default=0)
