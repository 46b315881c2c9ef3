"""Nodes: the taints that their state brings, and what becomes of their pods.

Rule: pkg/controller/nodelifecycle, tainteviction, podgc.
"""

from __future__ import annotations

from typing import Any

from rebalancer.model.node import Taint, Toleration
from rebalancer.sandbox.api.objects import Object, condition, is_ready, set_condition
from rebalancer.sandbox.api.resources import NODES, PODS
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.kubelet import NODE_NOT_READY
from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Event

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_OURS = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)


class Nodes(Controller):
    """`patience` caps how long a pod tolerates a NoExecute taint, in seconds: 300 would be upstream's."""

    def __init__(self, store: Store, loop: Loop, patience: float) -> None:
        super().__init__(store, loop)
        self.patience = patience
        self._since: dict[str, float] = {}

    def notice(self, event: Event) -> None:
        if event.resource is NODES:
            self.loop.add(self, event.obj["metadata"]["name"])
        elif event.resource is PODS and event.type != "DELETED":
            node = event.obj["spec"].get("nodeName")
            if node and node in self._since:
                self.loop.add(self, node)

    def sync(self, key: str) -> None:
        node = self.store.find(NODES, key)
        here = self.store.list(PODS, where=lambda p: p["spec"].get("nodeName") == key)
        if node is None:
            self._since.pop(key, None)
            for pod in here:
                # podgc: nobody is left to end them.
                self.store.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
            return
        taints = self._tainted(node)
        if (condition(node, "Ready") or {}).get("status") == "Unknown":
            for pod in here:
                if is_ready(pod):
                    self.store.modify(
                        PODS,
                        pod["metadata"]["name"],
                        pod["metadata"]["namespace"],
                        self._silenced,
                        subresource="status",
                    )
        self._expel(key, here, [t for t in taints if t.get("effect") == "NoExecute"])

    def _tainted(self, node: Object) -> list[dict[str, Any]]:
        """The node's taints, after those that its state brings were set."""
        ready = (condition(node, "Ready") or {}).get("status", "True")
        spec = node.get("spec") or {}
        wanted: list[dict[str, Any]] = []
        if spec.get("unschedulable"):
            wanted.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
        if ready != "True":
            key = UNREACHABLE if ready == "Unknown" else NOT_READY
            wanted += ({"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute"))
        old = spec.get("taints") or []
        named = {(t["key"], t["effect"]) for t in wanted}
        have = {(t["key"], t.get("effect")) for t in old}
        # What a snapshot came with stays in its place; what its state does not bring goes.
        new = [t for t in old if t["key"] not in _OURS or (t["key"], t.get("effect")) in named]
        new += [t for t in wanted if (t["key"], t["effect"]) not in have]
        if new != old:

            def change(obj: Object) -> None:
                obj.setdefault("spec", {})["taints"] = new
                if not new:
                    del obj["spec"]["taints"]

            self.store.modify(NODES, node["metadata"]["name"], None, change)
        return new

    def _silenced(self, pod: Object) -> None:
        verdict = {"type": "Ready", "status": "False", "reason": NODE_NOT_READY}
        set_condition(pod, verdict, self.store.now())

    def _expel(self, name: str, here: list[Object], taints: list[dict[str, Any]]) -> None:
        """Deletes the pods that do not tolerate the taints any longer."""
        if not taints:
            self._since.pop(name, None)
            return
        now = self.loop.now()
        since = self._since.setdefault(name, now)
        for pod in here:
            metadata = pod["metadata"]
            wait = _tolerated_for(pod, taints)
            if wait is None or pods.terminating(pod) or pods.finished(pod):
                continue
            left = since + min(wait, self.patience) - now
            if left > 0:
                self.loop.after(left, self, name)
            else:
                self.store.delete(PODS, metadata["name"], metadata["namespace"])


def _tolerated_for(pod: Object, taints: list[dict[str, Any]]) -> float | None:
    """Seconds until the pod must go; None = never."""
    least: float | None = None
    tolerations = [
        (
            Toleration(t.get("key", ""), t.get("operator", "Equal"), t.get("value", ""), t.get("effect", "")),
            t.get("tolerationSeconds"),
        )
        for t in pod["spec"].get("tolerations") or ()
    ]
    for raw in taints:
        taint = Taint(raw["key"], raw["effect"], raw.get("value", ""))
        fitting = [seconds for toleration, seconds in tolerations if toleration.tolerates(taint)]
        if not fitting:
            return 0.0
        limited = [float(s) for s in fitting if s is not None]
        if limited:
            least = min([*limited, *(() if least is None else (least,))])
    return least
