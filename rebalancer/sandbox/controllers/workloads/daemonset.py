"""DaemonSets: one pod on each node that may have one. No rolling updates.

Rule: pkg/controller/daemon/daemon_controller.go (``NodeShouldRunDaemonPod``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rebalancer.model.pod import Pod
from rebalancer.sandbox.api.objects import Object, is_ready
from rebalancer.sandbox.api.resources import PODS, resolve
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.live_state import LiveState, is_node_change
from rebalancer.sandbox.controllers.loop import Loop
from rebalancer.sandbox.controllers.workloads.owner import OwnerController
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Event
from rebalancer.spread.nodes import tolerated

SETS = resolve("DaemonSet")
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSets(OwnerController):
    """Its pods go through the scheduler, each tied to its node by affinity."""

    resource = SETS

    def __init__(self, store: Store, loop: Loop, live: LiveState) -> None:
        super().__init__(store, loop)
        self._live = live

    def notice(self, event: Event) -> None:
        super().notice(event)
        if is_node_change(event):
            for record in self.store.collection(SETS).scan():
                self.loop.add(self, record.key)

    def sync(self, key: str) -> None:
        namespace, name = pods.split(key)
        owner = self.owner(key)
        if owner is None or pods.terminating(owner):
            return
        wanted, kept = self._nodes(owner)
        there: dict[str, list[Object]] = {}
        for pod in pods.owned_pods(self.store, owner):
            there.setdefault(_node_of(pod), []).append(pod)
        for node in wanted:
            if not any(not pods.finished(p) for p in there.get(node, ())):
                self.store.create(_tied(pods.pod_of(owner, _template(owner), generateName=f"{name}-"), node))
        for node, found in there.items():
            for pod in found:
                if (node not in kept or pods.finished(pod)) and not pods.terminating(pod):
                    self.store.delete(PODS, pod["metadata"]["name"], namespace, uid=pod["metadata"]["uid"])
        self._status(owner, wanted)

    def _nodes(self, owner: Object) -> tuple[list[str], set[str]]:
        """Nodes that shall have a pod, and those on which one may stay: there only NoExecute matters."""
        table = self._live.state.table
        decoded: Pod = self._live.decoded_pod(_tolerant(pods.pod_of(owner, _template(owner), name="x")))
        template = decoded.template
        admitted, refused = table.admitted(template), table.untolerated(template.tolerations)
        wanted = [table.names[i] for i in np.flatnonzero(admitted & ~refused).tolist()]
        kept = (
            table.names[i]
            for i in np.flatnonzero(admitted & refused).tolist()
            if all(
                t.effect != "NoExecute" or tolerated(t, template.tolerations)
                for t in table.nodes[i].spec.taints
            )
        )
        return wanted, {*wanted, *kept}

    def _status(self, owner: Object, wanted: list[str]) -> None:
        live = [p for p in pods.owned_pods(self.store, owner) if pods.active(p)]
        ready = sum(map(is_ready, live))
        counts = {
            "currentNumberScheduled": len({_node_of(p) for p in live} & set(wanted)),
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": 0,
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": max(len(wanted) - ready, 0),
            "updatedNumberScheduled": len(live),
            "observedGeneration": int(owner["metadata"].get("generation", 0)),
        }

        def change(obj: Object) -> None:
            obj["status"] = {**(obj.get("status") or {}), **counts}

        metadata = owner["metadata"]
        self.store.modify(SETS, metadata["name"], metadata["namespace"], change, subresource="status")


def _template(owner: Object) -> dict[str, Any]:
    return owner["spec"].get("template") or {}


def _tolerant(pod: Object) -> Object:
    tolerations = pod["spec"].setdefault("tolerations", [])
    tolerations += ({"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED)
    return pod


def _tied(pod: Object, node: str) -> Object:
    """The pod as one for this node only, which its own node affinity is known to admit."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = _tolerant(pod)["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    required["nodeSelectorTerms"] = [{"matchFields": [field]}]
    return pod


def _node_of(pod: Object) -> str:
    """Where the pod is, or is to be."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""
