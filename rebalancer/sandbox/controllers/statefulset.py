"""StatefulSets: pods with names, in order or in parallel, with claims that stay.

Rule: pkg/controller/statefulset/stateful_set_control.go, stateful_set_utils.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.model.pod import Pod
from rebalancer.sandbox.controllers import kubelet
from rebalancer.sandbox.controllers.deployment import OwnerController
from rebalancer.sandbox.controllers.loop import LiveState, Loop, is_node_change
from rebalancer.sandbox.objects import Object, copied, is_ready
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import PODS, resolve
from rebalancer.sandbox.storage import Event
from rebalancer.spread.nodes import tolerated

# The two revisions of a StatefulSet's template: the one it has, and the one it goes to.

REVISION = "controller-revision-hash"
REVISIONS = resolve("ControllerRevision")
Template = dict[str, Any]


@dataclass(frozen=True)
class Revisions:
    """Names of the revisions with their templates. `current` and `update` are the same but in an update."""

    current: str
    update: str
    templates: dict[str, Template]

    @staticmethod
    def of(store: Store, owner: Object) -> Revisions:
        """Read from the set's ControllerRevisions; the one for its present template is made if missing.

        A set that was loaded without them, or with their metadata alone, keeps the names that its status has;
        so does one whose controller has seen its present generation, as it knows best.
        """
        template = owner["spec"].get("template") or {}
        known = {
            obj["metadata"]["name"]: obj
            for resource, obj in store.owned(owner["metadata"]["uid"])
            if resource is REVISIONS
        }
        templates = {name: _template(obj) for name, obj in known.items() if _template(obj)}
        status = owner.get("status") or {}
        current, update = status.get("currentRevision") or "", status.get("updateRevision") or ""
        same = next((name for name, t in sorted(templates.items()) if t == template), "")
        generation = int(owner["metadata"].get("generation", 0))
        observed = int(status.get("observedGeneration", 0)) >= generation
        if same:
            update = same
        elif not update or not observed or (update in templates and not generation):
            update = f"{owner['metadata']['name']}-{kubelet.hash_of(template)}"
        if update not in known:
            _make(store, owner, update, template, len(known) + 1)
        templates[update] = template
        return Revisions(current or update, update, templates)

    def of_pod(self, pod: Object) -> str:
        """A pod without the label (a hand-written snapshot) counts as up to date."""
        return (pod["metadata"].get("labels") or {}).get(REVISION) or self.update

    def for_ordinal(self, owner: Object, number: int) -> tuple[str, Template]:
        """Revision and template of a pod that is made now."""
        strategy = owner["spec"].get("updateStrategy") or {}
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        start = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
        old = strategy.get("type", "RollingUpdate") == "RollingUpdate" and number < start + partition
        name = self.current if old else self.update
        return name, self.templates.get(name, self.templates[self.update])


def _template(revision: Object) -> Template:
    """Without the directive of the patch that the controller keeps."""
    data = revision.get("data") or {}
    template = (data.get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def _make(store: Store, owner: Object, name: str, template: Template, number: int) -> None:
    metadata = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": {**((template.get("metadata") or {}).get("labels") or {}), REVISION: name},
        "ownerReferences": [kubelet.reference(owner)],
    }
    store.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": metadata,
            "data": {"spec": {"template": copied(template)}},
            "revision": number,
        }
    )


SETS = resolve("StatefulSet")
CLAIMS = resolve("PersistentVolumeClaim")
_ORDINAL = re.compile(r"^(.*)-([0-9]+)$")
Slots = dict[int, Object]


class StatefulSets(OwnerController):
    """A pod's successor has its name, so it is made when the pod is gone, not when it terminates."""

    resource = SETS

    def manage(self, key: str, owner: Object) -> None:
        revisions = Revisions.of(self.store, owner)
        if not kubelet.terminating(owner):
            self._update(owner, revisions)
        self._status(key, revisions)

    def _slots(self, owner: Object) -> tuple[Slots, Slots]:
        """(pods of wanted ordinals, pods beyond them)."""
        wanted = _ordinals(owner)
        inside: Slots = {}
        beyond: Slots = {}
        for pod in kubelet.owned_pods(self.store, owner):
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
            elif kubelet.finished(pod) and not kubelet.terminating(pod):
                self._delete(pod)
                if ordered:
                    return
            elif ordered and (kubelet.terminating(pod) or not _healthy(pod)):
                return
        for number in sorted(beyond, reverse=True):
            pod = beyond[number]
            if kubelet.terminating(pod):
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
            if revisions.of_pod(pod) != revisions.update and not kubelet.terminating(pod):
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
        pod = kubelet.pod_of(owner, template, name=f"{name}-{number}")
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
        live = [p for p in there if not kubelet.terminating(p)]
        pause, now = int(owner["spec"].get("minReadySeconds") or 0), self.store.clock()
        ready = sum(map(is_ready, there))
        updated = sum(revisions.of_pod(p) == revisions.update for p in live)
        current = revisions.current
        wanted = kubelet.replicas_of(owner)
        rolling = (owner["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
        if rolling and updated == wanted == ready == len(there):
            current = revisions.update
        counts = {
            "replicas": len(there),
            "readyReplicas": ready,
            "availableReplicas": sum(kubelet.available(p, pause, now) for p in there),
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
    return range(start, start + kubelet.replicas_of(owner))


def _healthy(pod: Object) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and is_ready(pod) and not kubelet.terminating(pod)


# DaemonSets: one pod on each node that may have one. No rolling updates.
#
# Rule: pkg/controller/daemon/daemon_controller.go (``NodeShouldRunDaemonPod``).

DAEMON_SETS = resolve("DaemonSet")
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

    resource = DAEMON_SETS

    def __init__(self, store: Store, loop: Loop, live: LiveState) -> None:
        super().__init__(store, loop)
        self._live = live

    def notice(self, event: Event) -> None:
        super().notice(event)
        if is_node_change(event):
            for record in self.store.collection(DAEMON_SETS).scan():
                self.loop.add(self, record.key)

    def manage(self, key: str, owner: Object) -> None:
        namespace, name = kubelet.split(key)
        if kubelet.terminating(owner):
            return
        wanted, kept = self._nodes(owner)
        there: dict[str, list[Object]] = {}
        for pod in kubelet.owned_pods(self.store, owner):
            there.setdefault(_node_of(pod), []).append(pod)
        for node in wanted:
            if not any(not kubelet.finished(p) for p in there.get(node, ())):
                pod = _tied(kubelet.pod_of(owner, _daemon_template(owner), generateName=f"{name}-"), node)
                pod["metadata"].setdefault("labels", {})[REVISION] = kubelet.hash_of(_daemon_template(owner))
                self.store.create(pod)
        for node, found in there.items():
            for pod in found:
                if (node not in kept or kubelet.finished(pod)) and not kubelet.terminating(pod):
                    self.store.delete(PODS, pod["metadata"]["name"], namespace, uid=pod["metadata"]["uid"])
        self._status(owner, wanted)

    def _nodes(self, owner: Object) -> tuple[list[str], set[str]]:
        """Nodes that shall have a pod, and those on which one may stay: there only NoExecute matters."""
        table = self._live.state.table
        decoded: Pod = self._live.decoded_pod(
            _tolerant(kubelet.pod_of(owner, _daemon_template(owner), name="x"))
        )
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
        live = [p for p in kubelet.owned_pods(self.store, owner) if kubelet.active(p)]
        ready, revision = sum(map(is_ready, live)), kubelet.hash_of(_daemon_template(owner))
        revisions = [(p["metadata"].get("labels") or {}).get(REVISION) for p in live]
        counts = {
            "currentNumberScheduled": len({_node_of(p) for p in live} & set(wanted)),
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": 0,
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": max(len(wanted) - ready, 0),
            "updatedNumberScheduled": revisions.count(revision),
            "observedGeneration": int(owner["metadata"].get("generation", 0)),
        }

        def change(obj: Object) -> None:
            obj["status"] = {**(obj.get("status") or {}), **counts}

        metadata = owner["metadata"]
        self.store.modify(DAEMON_SETS, metadata["name"], metadata["namespace"], change, subresource="status")


def _daemon_template(owner: Object) -> dict[str, Any]:
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
