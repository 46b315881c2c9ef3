"""StatefulSets: pods with names, in order or in parallel, with claims that stay.

Rule: pkg/controller/statefulset/stateful_set_control.go, stateful_set_utils.go.
"""

from __future__ import annotations

import re
from typing import Any

from rebalancer.sandbox.api.objects import Object, copied, is_ready
from rebalancer.sandbox.api.resources import PODS, resolve
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.workloads.owner import OwnerController
from rebalancer.sandbox.controllers.workloads.revisions import REVISION, Revisions

SETS = resolve("StatefulSet")
CLAIMS = resolve("PersistentVolumeClaim")
_ORDINAL = re.compile(r"^(.*)-([0-9]+)$")
Slots = dict[int, Object]


class StatefulSets(OwnerController):
    """A pod's successor has its name, so it is made when the pod is gone, not when it terminates."""

    resource = SETS

    def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        revisions = Revisions.of(self.store, owner)
        if not pods.terminating(owner):
            self._update(owner, revisions)
        self._status(key, revisions)

    def _slots(self, owner: Object) -> tuple[Slots, Slots]:
        """(pods of wanted ordinals, pods beyond them)."""
        wanted = _ordinals(owner)
        inside: Slots = {}
        beyond: Slots = {}
        for pod in pods.owned_pods(self.store, owner):
            found = _ORDINAL.match(pod["metadata"]["name"])
            if found and found[1] == owner["metadata"]["name"]:
                number = int(found[2])
                (inside if number in wanted else beyond)[number] = pod
        return inside, beyond

    def _update(self, owner: Object, revisions: Revisions) -> None:
        ordered = owner["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        inside, beyond = self._slots(owner)
        for number in _ordinals(owner):
            pod = inside.get(number)
            if pod is None:
                self._create(owner, number, revisions)
                if ordered:
                    return
            elif pods.finished(pod) and not pods.terminating(pod):
                self._delete(pod)
                if ordered:
                    return
            elif ordered and (pods.terminating(pod) or not _healthy(pod)):
                return
        for number in sorted(beyond, reverse=True):
            pod = beyond[number]
            if pods.terminating(pod):
                if ordered:
                    return
                continue
            self._delete(pod)
            if ordered:
                return
        self._roll(owner, inside, revisions)

    def _roll(self, owner: Object, inside: Slots, revisions: Revisions) -> None:
        """RollingUpdate: from the last ordinal down to the partition, one at a time."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        for number in reversed(_ordinals(owner)):
            if number < partition:
                return
            pod = inside.get(number)
            if pod is None:
                return
            if revisions.of_pod(pod) != revisions.update and not pods.terminating(pod):
                self._delete(pod)
                return
            if not _healthy(pod):
                return

    def _delete(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self.store.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    def _create(self, owner: Object, number: int, revisions: Revisions) -> None:
        name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
        revision, template = revisions.for_ordinal(owner, number)
        pod = pods.pod_of(owner, template, name=f"{name}-{number}")
        labels = pod["metadata"].setdefault("labels", {})
        labels |= {
            REVISION: revision,
            "statefulset.kubernetes.io/pod-name": f"{name}-{number}",
            "apps.kubernetes.io/pod-index": str(number),
        }
        spec = pod["spec"]
        spec["hostname"] = f"{name}-{number}"
        if service := owner["spec"].get("serviceName"):
            spec["subdomain"] = service
        volumes: dict[str, Any] = {v["name"]: v for v in spec.get("volumes") or ()}
        for claim in owner["spec"].get("volumeClaimTemplates") or ():
            volume = claim["metadata"]["name"]
            named = f"{volume}-{name}-{number}"
            volumes[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": named}}
            self._claim(owner, claim, named)
        if volumes:
            spec["volumes"] = list(volumes.values())
        self.store.create(pod, namespace=namespace)

    def _claim(self, owner: Object, template: dict[str, Any], name: str) -> None:
        namespace = owner["metadata"]["namespace"]
        if self.store.find(CLAIMS, name, namespace) is not None:
            return
        labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
        labels = {**(template["metadata"].get("labels") or {}), **labels}
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        spec = copied(template.get("spec") or {})
        self.store.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata,
                "spec": spec,
                "status": {"phase": "Pending"},
            }
        )

    def _status(self, key: str, revisions: Revisions) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        inside, beyond = self._slots(owner)
        there = [*inside.values(), *beyond.values()]
        live = [p for p in there if not pods.terminating(p)]
        pause, now = int(owner["spec"].get("minReadySeconds") or 0), self.store.clock()
        ready = sum(map(is_ready, there))
        updated = sum(revisions.of_pod(p) == revisions.update for p in live)
        current = revisions.current
        wanted = pods.replicas_of(owner)
        rolling = (owner["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
        if rolling and updated == wanted == ready == len(there):
            current = revisions.update
        counts = {
            "replicas": len(there),
            "readyReplicas": ready,
            "availableReplicas": sum(pods.available(p, pause, now) for p in there),
            "currentReplicas": sum(revisions.of_pod(p) == current for p in live),
            "updatedReplicas": updated,
        }
        if counts["availableReplicas"] < ready:
            self.loop.after(min(pause, 1.0), self, key)

        def change(new: Object) -> None:
            status = {k: v for k, v in (new.get("status") or {}).items() if k not in counts}
            status |= {k: v for k, v in counts.items() if v or k in ("replicas", "availableReplicas")}
            status |= {"currentRevision": current, "updateRevision": revisions.update}
            status["observedGeneration"] = int(owner["metadata"].get("generation", 0))
            status.setdefault("collisionCount", 0)
            new["status"] = status

        self.modify_status(key, change)


def _ordinals(owner: Object) -> range:
    start = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
    return range(start, start + pods.replicas_of(owner))


def _healthy(pod: Object) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and is_ready(pod) and not pods.terminating(pod)
