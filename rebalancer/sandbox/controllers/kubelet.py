"""Kubelets: assigned pods run after a while, deleted ones end after their grace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.objects import Object, condition, copied, is_ready, seconds_of, set_condition
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import NODES, PODS, of_object
from rebalancer.sandbox.storage import Event

# What several controllers know of pods and their owners.

HASH = "pod-template-hash"
# As Kubernetes encodes hashes: no vowels.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def split(key: str) -> tuple[str, str]:
    """namespace/name → (namespace, name)."""
    namespace, _, name = key.partition("/")
    return namespace, name


def key_of(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def controller_of(obj: Object) -> dict[str, Any] | None:
    """The ownerReference of the controller, if any."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def owner_keys(event: Event, kind: str) -> list[str]:
    """Keys of the controllers of that kind that an object had before or has after a change."""
    found: dict[str, None] = {}
    for record in (event.record, event.old):
        owner = controller_of(record.obj) if record is not None else None
        if owner is not None and owner.get("kind") == kind:
            found[f"{event.obj['metadata']['namespace']}/{owner['name']}"] = None
    return list(found)


def owned_pods(store: Store, owner: Object) -> list[Object]:
    """Pods that the owner controls, in order of their names."""
    uid = owner["metadata"]["uid"]
    return [
        obj
        for resource, obj in store.owned(uid)
        if resource is PODS and (controller_of(obj) or {}).get("uid") == uid
    ]


def terminating(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def active(pod: Object) -> bool:
    """Counts as a replica."""
    return not finished(pod) and not terminating(pod)


def available(pod: Object, min_ready_seconds: int, now: float) -> bool:
    """Ready, and for long enough."""
    if not is_ready(pod):
        return False
    since = (condition(pod, "Ready") or {}).get("lastTransitionTime")
    return not min_ready_seconds or seconds_of(since) + min_ready_seconds <= now


def replicas_of(obj: Object) -> int:
    wanted = (obj.get("spec") or {}).get("replicas")
    return 1 if wanted is None else int(wanted)


def reference(owner: Object) -> dict[str, Any]:
    """The ownerReference that makes `owner` the controller."""
    resource = of_object(owner)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(owner: Object, template: Mapping[str, Any], **metadata: Any) -> Object:
    """A new pod of the owner's template; `metadata` has its name or generateName."""
    wanted = copied(dict(template))
    given = wanted.get("metadata") or {}
    kept = {k: given[k] for k in ("labels", "annotations", "finalizers") if given.get(k)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            **metadata,
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [reference(owner)],
        },
        "spec": wanted.get("spec") or {},
    }


def hash_of(value: Any) -> str:
    """Ten characters that stand for a JSON value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])


def scaled(value: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total` rounded up or down, as intstr.GetScaledValueFromIntOrPercent."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        return int(value)
    product = int(value[:-1]) * total
    return -(-product // 100) if up else product // 100


ReadyAfter = float | Callable[[Object], float | None]
"""Seconds from a pod's assignment until it is Ready; a function may say so per pod, None = never."""

NODE_NOT_READY = "NodeNotReady"
"""Why a pod counts as not Ready whose node went silent: it comes back with the node."""


class Kubelet(Controller):
    """All nodes' kubelets. `grace` caps the grace period of every pod, in seconds.

    A pod that was loaded Running and not Ready stays so: it is somebody's broken pod, not a new one.
    """

    def __init__(self, store: Store, loop: Loop, ready_after: ReadyAfter, grace: float) -> None:
        super().__init__(store, loop)
        self.ready_after = ready_after
        self.grace = grace
        self._due: dict[tuple[str, bool], float] = {}

    def notice(self, event: Event) -> None:
        if event.resource is NODES:
            was, now = (
                _answers(event.old.obj) if event.old else True,
                event.type != "DELETED" and _answers(event.obj),
            )
            if now and not was:
                name = event.obj["metadata"]["name"]
                for pod in self.store.list(PODS, where=lambda p: p["spec"].get("nodeName") == name):
                    self._plan(pod)
        elif event.resource is PODS:
            if event.type == "DELETED":
                for ending in (False, True):
                    self._due.pop((event.obj["metadata"]["uid"], ending), None)
            else:
                self._plan(event.obj)

    def _plan(self, pod: Object) -> None:
        """Sets the time of what the pod's kubelet does next, once."""
        spec, metadata = pod.get("spec") or {}, pod["metadata"]
        ending = terminating(pod)
        if (
            not spec.get("nodeName")
            or (metadata["uid"], ending) in self._due
            or (not ending and not _starts(pod))
        ):
            return
        wait: float | None
        if ending:
            wait = min(float(metadata.get("deletionGracePeriodSeconds") or 0), self.grace)
        else:
            wait = self.ready_after(pod) if callable(self.ready_after) else self.ready_after
        if wait is None:
            return
        self._due[metadata["uid"], ending] = self.loop.now() + wait
        self.loop.after(wait, self, key_of(pod))

    def sync(self, key: str) -> None:
        namespace, name = split(key)
        pod = self.store.find(PODS, name, namespace)
        if pod is None:
            return
        metadata, ending = pod["metadata"], terminating(pod)
        due = self._due.get((metadata["uid"], ending))
        if due is None or due > self.loop.now():
            return
        del self._due[metadata["uid"], ending]
        node = self.store.find(NODES, pod["spec"].get("nodeName", ""))
        if node is not None and not _answers(node):
            return  # asked again when the node answers
        if ending:
            self.store.delete(PODS, name, namespace, grace=0, uid=metadata["uid"])
        elif _starts(pod):
            self.store.modify(PODS, name, namespace, self._started, subresource="status")

    def _started(self, pod: Object) -> None:
        now = self.store.now()
        status = pod.setdefault("status", {})
        status["phase"] = "Running"
        status.setdefault("startTime", now)
        status.setdefault("podIP", _address(pod["metadata"]["uid"]))
        status["podIPs"] = [{"ip": status["podIP"]}]
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
            for old in status.get("conditions") or ():
                if old.get("type") == kind:
                    old.pop("reason", None)
                    old.pop("message", None)
            set_condition(pod, {"type": kind, "status": "True", "lastProbeTime": None}, now)
        status["containerStatuses"] = [_running(c, now) for c in pod["spec"].get("containers") or ()]


def _starts(pod: Object) -> bool:
    """Whether its kubelet still has to start it."""
    if finished(pod) or is_ready(pod):
        return False
    if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
        return True
    return (condition(pod, "Ready") or {}).get("reason") == NODE_NOT_READY


def _answers(node: Object) -> bool:
    return (condition(node, "Ready") or {}).get("status") != "Unknown"


def _address(uid: str) -> str:
    number = int(uid.replace("-", "")[:6] or "0", 16)
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _running(container: dict[str, Any], now: str) -> dict[str, Any]:
    image = container.get("image", "")
    return {
        "name": container.get("name", ""),
        "image": image,
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
        "lastState": {},
    }
