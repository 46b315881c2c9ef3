"""Deployments: one ReplicaSet for each template, scaled up and down during a rollout.

Rule, without proportional scaling and rollbacks: pkg/controller/deployment (rolling.go, recreate.go).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, ClassVar

from rebalancer.model.pod import DELETION_COST, cost_of
from rebalancer.sandbox.controllers import kubelet
from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.creation import defaulted_spec
from rebalancer.sandbox.objects import (
    Object,
    condition,
    copied,
    from_object,
    is_ready,
    matches,
    seconds_of,
    set_condition,
)
from rebalancer.sandbox.registry import Store, disown
from rebalancer.sandbox.resources import PODS, ApiError, Resource, resolve
from rebalancer.sandbox.storage import Event

# What the controllers of all owners do alike: they work when an owner, or what it owns, has changed.


class OwnerController(Controller):
    """`resource`: the owners; `owned`: what they make."""

    resource: Resource
    owned: ClassVar[Resource] = PODS

    def notice(self, event: Event) -> None:
        if event.resource is self.resource:
            if event.type != "DELETED":
                self.loop.add(self, event.record.key)
        elif event.resource is self.owned:
            for key in kubelet.owner_keys(event, self.resource.kind):
                self.loop.add(self, key)

    def sync(self, key: str) -> None:
        with self.store.lock:  # the owner must not end meanwhile: nobody would collect what is made for it
            owner = self.owner(key)
            if owner is not None:
                self.manage(key, owner)

    def manage(self, key: str, owner: Object) -> None:
        """Brings in order what is the owner's. The lock is held."""
        raise NotImplementedError

    def owner(self, key: str) -> Object | None:
        """The owner of that key, if it is still there."""
        namespace, name = kubelet.split(key)
        return self.store.find(self.resource, name, namespace)

    def modify_status(self, key: str, change: Callable[[Object], None]) -> None:
        """Changes the owner's status."""
        namespace, name = kubelet.split(key)
        self.store.modify(self.resource, name, namespace, change, subresource="status")


# ReplicaSets and ReplicationControllers: as many pods as they want.
#
# Rule: pkg/controller/replicaset/replica_set.go; whom it deletes: pkg/controller/controller_utils.go
# (ActivePodsWithRanks).

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(OwnerController):
    """`kind`: ReplicaSet or ReplicationController."""

    def __init__(self, store: Store, loop: Loop, kind: str = "ReplicaSet") -> None:
        super().__init__(store, loop)
        self.resource = resolve(kind)
        self._bare: dict[str, None] = {}
        """Keys of pods that nobody controls."""

    def notice(self, event: Event) -> None:
        super().notice(event)
        if event.resource is not PODS:
            return
        if event.type == "DELETED" or kubelet.controller_of(event.obj) is not None:
            self._bare.pop(event.record.key, None)
            return
        self._bare[event.record.key] = None
        for record in self.store.collection(self.resource).scan(event.obj["metadata"]["namespace"]):
            if self._selects(record.obj, event.obj):
                self.loop.add(self, record.key)

    def _selects(self, owner: Object, pod: Object) -> bool:
        selector = owner["spec"].get("selector")
        found = from_object(selector if self.resource is REPLICA_SETS else {"matchLabels": selector})
        return found is not None and found != () and matches(found, pod["metadata"].get("labels"))

    def manage(self, key: str, owner: Object) -> None:
        trouble: ApiError | None = None
        if not kubelet.terminating(owner):
            try:
                self._scale(owner)
            except ApiError as error:
                trouble = error
        self._status(key)
        if trouble is not None:
            raise trouble

    def _claimed(self, owner: Object) -> list[Object]:
        """Its active pods, after it has let go what it does not select and adopted what is nobody's.

        Rule: pkg/controller/controller_ref_manager.go (ClaimPods).
        """
        namespace = owner["metadata"]["namespace"]
        own = filter(kubelet.active, kubelet.owned_pods(self.store, owner))
        for pod in own if owner["spec"].get("selector") else ():
            if not self._selects(owner, pod):
                disown(self.store, PODS, pod, owner["metadata"]["uid"])

        def adopt(new: Object) -> None:
            new["metadata"].setdefault("ownerReferences", []).insert(0, kubelet.reference(owner))

        for key in self._bare:
            space, name = kubelet.split(key)
            found = self.store.find(PODS, name, namespace) if space == namespace else None
            if found is None or kubelet.controller_of(found) is not None or not kubelet.active(found):
                continue
            if self._selects(owner, found):
                self.store.modify(PODS, name, namespace, adopt)
        return [p for p in kubelet.owned_pods(self.store, owner) if kubelet.active(p)]

    def _scale(self, owner: Object) -> None:
        live = self._claimed(owner)
        missing = kubelet.replicas_of(owner) - len(live)
        name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
        template = owner["spec"].get("template") or {}
        for _ in range(missing):
            self.store.create(kubelet.pod_of(owner, template, generateName=f"{name}-"), namespace=namespace)
        if missing < 0:
            for pod in victims(live, self._related(owner, live), self.store.clock())[:-missing]:
                metadata = pod["metadata"]
                self.store.delete(PODS, metadata["name"], namespace, uid=metadata["uid"])

    def _related(self, owner: Object, own: list[Object]) -> list[Object]:
        """The pods of all sets of the same Deployment."""
        deployment = kubelet.controller_of(owner)
        if deployment is None:
            return own
        found: list[Object] = []
        for resource, sibling in self.store.owned(deployment["uid"]):
            if resource is self.resource:
                found += kubelet.owned_pods(self.store, sibling)
        return [p for p in found if kubelet.active(p)]

    def _status(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        mine = kubelet.owned_pods(self.store, owner)
        live = [p for p in mine if kubelet.active(p)]
        pause = int(owner["spec"].get("minReadySeconds") or 0)
        now = self.store.clock()
        wanted = (owner["spec"].get("template") or {}).get("metadata", {}).get("labels") or {}
        counts = {
            "replicas": len(live),
            "fullyLabeledReplicas": sum(
                wanted.items() <= (p["metadata"].get("labels") or {}).items() for p in live
            ),
            "readyReplicas": sum(map(is_ready, live)),
            "availableReplicas": sum(kubelet.available(p, pause, now) for p in live),
            "terminatingReplicas": sum(kubelet.terminating(p) and not kubelet.finished(p) for p in mine),
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


DEPLOYMENTS = resolve("Deployment")
REPLICA_SETS = resolve("ReplicaSet")
REVISION = "deployment.kubernetes.io/revision"


class Deployments(OwnerController):
    """A ReplicaSet belongs to the template if it has the same one but for the label pod-template-hash."""

    resource = DEPLOYMENTS
    owned = REPLICA_SETS

    def manage(self, key: str, owner: Object) -> None:
        if not kubelet.terminating(owner):
            new, old = self._sets(owner)
            paused = bool(owner["spec"].get("paused"))
            waits = _recreates(owner) and not paused and not self._emptied(old)
            if new is None and not paused and not waits:
                new = self._made(owner, old)
            if new is not None and not waits:
                self._scale(owner, new, old, paused=paused)
                self._clean(owner)
        self._status(key)

    def _sets(self, owner: Object) -> tuple[Object | None, list[Object]]:
        """(the present template's ReplicaSet, the others oldest first)."""
        wanted = _template(owner)
        mine = sorted(
            (obj for r, obj in self.store.owned(owner["metadata"]["uid"]) if r is REPLICA_SETS),
            key=lambda s: (s["metadata"].get("creationTimestamp", ""), _revision(s), s["metadata"]["name"]),
        )
        new = next((s for s in mine if _template(s) == wanted), None)
        return new, [s for s in mine if s is not new]

    def _made(self, owner: Object, old: list[Object]) -> Object:
        template = copied(owner["spec"]["template"])
        value = kubelet.hash_of(_template(owner))
        template.setdefault("metadata", {}).setdefault("labels", {})[kubelet.HASH] = value
        selector = copied(owner["spec"].get("selector") or {})
        selector.setdefault("matchLabels", {})[kubelet.HASH] = value
        revision = str(max(map(_revision, old), default=0) + 1)
        metadata = {
            "name": f"{owner['metadata']['name']}-{value}",
            "namespace": owner["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision},
            "ownerReferences": [kubelet.reference(owner)],
        }
        spec = {"replicas": 0, "selector": selector, "template": template}
        if pause := owner["spec"].get("minReadySeconds"):
            spec["minReadySeconds"] = pause
        made = self.store.create(
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
        )
        self._annotate(owner, revision)
        return made

    def _annotate(self, owner: Object, revision: str) -> None:
        def change(obj: Object) -> None:
            obj["metadata"].setdefault("annotations", {})[REVISION] = revision

        self.store.modify(DEPLOYMENTS, owner["metadata"]["name"], owner["metadata"]["namespace"], change)

    def _emptied(self, old: list[Object]) -> bool:
        """Whether they want no pods and none of theirs is left; else their status tells when."""
        busy = [s for s in old if kubelet.replicas_of(s)]
        for found in busy:
            self._resize(found, 0)
        there = (p for s in old for p in kubelet.owned_pods(self.store, s))
        return not busy and all(map(kubelet.finished, there))

    def _scale(self, owner: Object, new: Object, old: list[Object], *, paused: bool) -> None:
        wanted = kubelet.replicas_of(owner)
        busy = [s for s in old if kubelet.replicas_of(s)]
        if not busy:
            self._resize(new, wanted)
            return
        if paused:
            return
        surge, away = _limits(owner, wanted)
        total = kubelet.replicas_of(new) + sum(map(kubelet.replicas_of, busy))
        target = min(kubelet.replicas_of(new) + max(wanted + surge - total, 0), wanted)
        if target != kubelet.replicas_of(new):
            self._resize(new, target)
            return
        fresh = int((new.get("status") or {}).get("availableReplicas", 0))
        spare = total - (wanted - away) - (kubelet.replicas_of(new) - fresh)
        for found in busy:  # what is not available helps nobody
            sick = kubelet.replicas_of(found) - int((found.get("status") or {}).get("availableReplicas", 0))
            less = min(spare, max(sick, 0))
            if less > 0:
                self._resize(found, kubelet.replicas_of(found) - less)
                return
        available = fresh + sum(int((s.get("status") or {}).get("availableReplicas", 0)) for s in busy)
        spare = available - (wanted - away)
        for found in busy:
            less = min(spare, kubelet.replicas_of(found))
            if less > 0:
                self._resize(found, kubelet.replicas_of(found) - less)
                return

    def _resize(self, found: Object, replicas: int) -> None:
        if kubelet.replicas_of(found) == replicas:
            return

        def change(obj: Object) -> None:
            obj["spec"]["replicas"] = replicas

        self.store.modify(REPLICA_SETS, found["metadata"]["name"], found["metadata"]["namespace"], change)

    def _clean(self, owner: Object) -> None:
        """Forgets the oldest empty ReplicaSets beyond the history that is kept."""
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        _, old = self._sets(owner)
        empty = [s for s in old if not kubelet.replicas_of(s) and not (s.get("status") or {}).get("replicas")]
        for found in empty[: max(len(empty) - int(limit), 0)]:
            self.store.delete(REPLICA_SETS, found["metadata"]["name"], found["metadata"]["namespace"])

    def _status(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        new, old = self._sets(owner)
        every = [*old, *([new] if new is not None else [])]

        def total(field: str, sets: list[Object]) -> int:
            return sum(int((s.get("status") or {}).get(field, 0)) for s in sets)

        wanted, available = kubelet.replicas_of(owner), total("availableReplicas", every)
        updated = total("replicas", [new] if new is not None else [])
        counts = {
            "replicas": total("replicas", every),
            "updatedReplicas": updated,
            "readyReplicas": total("readyReplicas", every),
            "availableReplicas": available,
            "unavailableReplicas": max(sum(map(kubelet.replicas_of, every)) - available, 0),
        }
        # A Recreate has no maxUnavailable, although it takes all away at once.
        enough = available >= wanted - (_limits(owner, wanted)[1] if not _recreates(owner) else 0)
        complete = updated == wanted == counts["replicas"] == available
        now = self.store.now()

        def change(obj: Object) -> None:
            obj["status"] = merged(obj.get("status"), counts, owner)
            if not counts["replicas"]:
                obj["status"].pop("replicas")
            has = {
                "type": "Available",
                "status": "True" if enough else "False",
                "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            }
            set_condition(obj, has, now)
            if owner["spec"].get("paused"):
                paused = {"type": "Progressing", "status": "Unknown", "reason": "DeploymentPaused"}
                set_condition(obj, {**paused, "message": "Deployment is paused"}, now)
                return
            before = (condition(obj, "Progressing") or {}).get("reason")
            if before == "NewReplicaSetAvailable" and 0 < updated == counts["replicas"]:
                return  # a pod that is gone or ill is no rollout
            made = (new or owner)["metadata"]["name"]
            how = "has successfully progressed" if complete else "is progressing"
            moves = {
                "type": "Progressing",
                "status": "True",
                "reason": "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated",
                "message": f'ReplicaSet "{made}" {how}.',
            }
            set_condition(obj, moves, now)

        self.modify_status(key, change)


def _template(obj: Object) -> dict[str, Any]:
    """The pod template with the server's defaults and without the hash label."""
    whole = defaulted_spec(
        {
            "kind": "ReplicaSet",
            "metadata": {},
            "spec": {"template": copied(obj["spec"].get("template") or {})},
        }
    )
    template: dict[str, Any] = whole["spec"]["template"]
    labels = template["metadata"].get("labels")
    if labels is not None:
        template["metadata"]["labels"] = {k: v for k, v in labels.items() if k != kubelet.HASH}
    template["metadata"].pop("creationTimestamp", None)
    return template


def _revision(found: Object) -> int:
    return int((found["metadata"].get("annotations") or {}).get(REVISION, 0))


def _recreates(owner: Object) -> bool:
    return (owner["spec"].get("strategy") or {}).get("type") == "Recreate"


def _limits(owner: Object, wanted: int) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as pods."""
    strategy = owner["spec"].get("strategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return 0, wanted
    rolling = strategy.get("rollingUpdate") or {}
    surge = kubelet.scaled(rolling.get("maxSurge", "25%"), wanted, up=True)
    away = kubelet.scaled(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return surge, away if surge or away else 1
