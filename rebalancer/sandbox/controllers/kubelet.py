"""Kubelets: assigned pods run after a while, deleted ones end after their grace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rebalancer.sandbox.api.objects import Object, condition, is_ready, set_condition
from rebalancer.sandbox.api.resources import NODES, PODS
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Event

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
        ending = pods.terminating(pod)
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
        self.loop.after(wait, self, pods.key_of(pod))

    def sync(self, key: str) -> None:
        namespace, name = pods.split(key)
        pod = self.store.find(PODS, name, namespace)
        if pod is None:
            return
        metadata, ending = pod["metadata"], pods.terminating(pod)
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
    if pods.finished(pod) or is_ready(pod):
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
