"""ReplicaSets and ReplicationControllers: as many pods as they want.

Rule: pkg/controller/replicaset/replica_set.go; whom it deletes: pkg/controller/controller_utils.go
(ActivePodsWithRanks).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from rebalancer.sandbox.api.errors import ApiError
from rebalancer.sandbox.api.objects import DELETION_COST, Object, condition, is_ready, seconds_of
from rebalancer.sandbox.api.resources import PODS, resolve
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Event

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(Controller):
    """`kind`: ReplicaSet or ReplicationController."""

    def __init__(self, store: Store, loop: Loop, kind: str = "ReplicaSet") -> None:
        super().__init__(store, loop)
        self.resource = resolve(kind)

    def notice(self, event: Event) -> None:
        if event.resource is self.resource:
            if event.type != "DELETED":
                self.loop.add(self, event.record.key)
        elif event.resource is PODS:
            for key in pods.owner_keys(event, self.resource.kind):
                self.loop.add(self, key)

    def sync(self, key: str) -> None:
        namespace, name = pods.split(key)
        owner = self.store.find(self.resource, name, namespace)
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
        namespace, name = pods.split(key)
        owner = self.store.find(self.resource, name, namespace)
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

        self.store.modify(self.resource, name, namespace, change, subresource="status")


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

    def age(text: str | None) -> int:
        # LogarithmicScaleDown: ages of one power of two count as equal.
        nanoseconds = (now - seconds_of(text)) * 1e9
        return int(math.log2(nanoseconds)) if nanoseconds >= 1 else 0

    def rank(pod: Object) -> tuple[Any, ...]:
        node = (pod.get("spec") or {}).get("nodeName", "")
        cost = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
        ready = is_ready(pod)
        since = (condition(pod, "Ready") or {}).get("lastTransitionTime") if ready else None
        return (
            bool(node),
            _PHASES.get((pod.get("status") or {}).get("phase", ""), 2),
            ready,
            int(cost) if cost.lstrip("-").isdigit() else 0,
            -crowd[node],
            age(since) if ready else 0,
            age(pod["metadata"].get("creationTimestamp")),
            pod["metadata"].get("uid", ""),
        )

    return sorted(candidates, key=rank)
