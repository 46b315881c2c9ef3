"""The status of PodDisruptionBudgets.

Rule: pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from typing import Any

from rebalancer.engine.state.storage import BETA_CLASS, BIND_COMPLETED, NO_PROVISIONER, WAIT
from rebalancer.model.node import ZONE, Taint, Toleration
from rebalancer.model.quantity import units
from rebalancer.sandbox.controllers import kubelet
from rebalancer.sandbox.controllers.kubelet import NODE_NOT_READY
from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.objects import (
    Object,
    condition,
    from_object,
    is_ready,
    matches,
    seconds_of,
    set_condition,
)
from rebalancer.sandbox.registry import Store, covers
from rebalancer.sandbox.resources import NODES, PDBS, PODS, resolve
from rebalancer.sandbox.storage import Event

DELETION_TIMEOUT = 120.0
"""Seconds for which an eviction that no deletion followed is counted against the budget."""

_SCALABLE = tuple(resolve(k) for k in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"))


class Disruption(Controller):
    """Counts healthy pods and tells how many may be disrupted."""

    def notice(self, event: Event) -> None:
        if event.resource is PDBS:
            if event.type != "DELETED":
                self.loop.add(self, event.record.key)
        elif event.resource is PODS or (event.resource in _SCALABLE and _rescaled(event)):
            namespace = event.obj["metadata"]["namespace"]
            for record in self.store.collection(PDBS).scan(namespace):
                if event.resource is not PODS or any(
                    covers(record.obj, r.obj) for r in (event.record, event.old) if r is not None
                ):
                    self.loop.add(self, record.key)

    def sync(self, key: str) -> None:
        namespace, name = kubelet.split(key)
        with self.store.lock:  # no eviction may charge the budget in between
            budget = self.store.find(PDBS, name, namespace)
            if budget is not None:
                self._sync(key, budget)

    def _sync(self, key: str, budget: Object) -> None:
        namespace, name = kubelet.split(key)
        covered = self.store.list(PODS, namespace, where=lambda p: covers(budget, p))
        expected, desired = self._wanted(budget, covered)
        disrupted = self._disrupted(key, budget, covered)
        healthy = sum(
            is_ready(p) and not kubelet.terminating(p) and p["metadata"]["name"] not in disrupted
            for p in covered
        )
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        generation = int(budget["metadata"].get("generation", 0))

        def change(new: Object) -> None:
            status = new.setdefault("status", {})
            status |= {
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
                "disruptionsAllowed": allowed,
                "observedGeneration": generation,
            }
            status.pop("disruptedPods", None)
            if disrupted:
                status["disruptedPods"] = disrupted
            verdict = {
                "type": "DisruptionAllowed",
                "status": "True" if allowed else "False",
                "reason": "SufficientPods" if allowed else "InsufficientPods",
                "message": "",
                "observedGeneration": generation,
            }
            set_condition(new, verdict, self.store.now())

        self.store.modify(PDBS, name, namespace, change, subresource="status")

    def _wanted(self, budget: Object, covered: list[Object]) -> tuple[int, int]:
        """(expected pods, healthy pods that must stay)."""
        spec = budget.get("spec") or {}
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most is not None:
            expected = self._scale(covered)
            return expected, max(expected - kubelet.scaled(most, expected, up=True), 0)
        if isinstance(least, str) and least.endswith("%"):
            expected = self._scale(covered)
            return expected, kubelet.scaled(least, expected, up=True)
        return len(covered), kubelet.scaled(least, 0, up=True)

    def _scale(self, covered: list[Object]) -> int:
        """What the owners of these pods want in all; pods without one that scales do not count."""
        found: dict[str, int] = {}
        for pod in covered:
            owner = self._scaled_by(pod)
            if owner is not None:
                found[owner["metadata"]["uid"]] = kubelet.replicas_of(owner)
        return sum(found.values())

    def _scaled_by(self, obj: Object) -> Object | None:
        """The topmost owner that has a scale."""
        reference = kubelet.controller_of(obj)
        if reference is None:
            return None
        for resource in _SCALABLE:
            if resource.kind == reference.get("kind"):
                owner = self.store.find(resource, reference["name"], obj["metadata"]["namespace"])
                if owner is not None and owner["metadata"].get("uid") == reference.get("uid"):
                    return self._scaled_by(owner) or owner
        return None

    def _disrupted(self, key: str, budget: Object, covered: list[Object]) -> dict[str, str]:
        """Evictions whose deletion is not seen yet, and not overdue."""
        noted = (budget.get("status") or {}).get("disruptedPods") or {}
        there = {p["metadata"]["name"] for p in covered if not kubelet.terminating(p)}
        now = self.store.clock()
        kept = {n: at for n, at in noted.items() if n in there and seconds_of(at) + DELETION_TIMEOUT > now}
        if kept:
            first = min(map(seconds_of, kept.values())) + DELETION_TIMEOUT - now
            self.loop.after(first, self, key, background=True)
        return kept


def _rescaled(event: Event) -> bool:
    return event.old is None or kubelet.replicas_of(event.old.obj) != kubelet.replicas_of(event.obj)


# Nodes: the taints that their state brings, and what becomes of their pods.
#
# Rule: pkg/controller/nodelifecycle, tainteviction, podgc.

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
            if wait is None or kubelet.terminating(pod) or kubelet.finished(pod):
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


# Claims: bound to a volume that exists, or to one made for them.
#
# Rule, as far as a sandbox needs it: pkg/controller/volume/persistentvolume (``findBestMatchForClaim``),
# and for WaitForFirstConsumer the scheduler's volume binder: once a node is chosen.

CLAIMS = resolve("PersistentVolumeClaim")
VOLUMES = resolve("PersistentVolume")
CLASSES = resolve("StorageClass")
CSI_NODES = resolve("CSINode")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class Volumes(Controller):
    """Binds what does not wait for a consumer."""

    def notice(self, event: Event) -> None:
        if event.resource is CLAIMS and event.type != "DELETED":
            self.loop.add(self, event.record.key)
        elif event.resource is VOLUMES and event.type == "ADDED":
            for record in self.store.collection(CLAIMS).scan():
                if not _is_bound(record.obj):
                    self.loop.add(self, record.key)

    def sync(self, key: str) -> None:
        namespace, name = kubelet.split(key)
        claim = self.store.find(CLAIMS, name, namespace)
        if claim is None or _is_bound(claim) or kubelet.terminating(claim):
            return
        volume = (claim.get("spec") or {}).get("volumeName")
        if volume:
            if self.store.find(VOLUMES, volume) is not None:
                _join(self.store, claim, volume)
            return
        kind = _class_of(self.store, claim)
        if kind is not None and kind.get("volumeBindingMode") == WAIT:
            return
        bind(self.store, claim, None)


def bind_claims(store: Store, pod: Object, node_name: str) -> None:
    """What the scheduler does before it binds a pod: its waiting claims get volumes that reach the node."""
    namespace = pod["metadata"]["namespace"]
    node = store.find(NODES, node_name)
    for volume in pod["spec"].get("volumes") or ():
        source = volume.get("persistentVolumeClaim") or {}
        name = source.get("claimName")
        if "ephemeral" in volume:
            name = f"{pod['metadata']['name']}-{volume['name']}"
        claim = store.find(CLAIMS, name, namespace) if name else None
        if claim is not None and not _is_bound(claim):
            bind(store, claim, node)


def bind(store: Store, claim: Object, node: Object | None) -> None:
    """To the smallest volume that fits (and reaches the node), else to a new one if the class makes any."""
    found = [v.obj for v in store.collection(VOLUMES).scan() if _fits(store, v.obj, claim, node)]
    if found:
        best = min(found, key=lambda v: (not _reserved(v, claim), _capacity(v), v["metadata"]["name"]))
        _join(store, claim, best["metadata"]["name"])
        return
    kind = _class_of(store, claim)
    if kind is not None and kind.get("provisioner", "") not in NO_PROVISIONER:
        made = store.create(_provisioned(store, claim, kind, node))
        _join(store, claim, made["metadata"]["name"])


def _join(store: Store, claim: Object, volume: str) -> None:
    metadata = claim["metadata"]

    def take(new: Object) -> None:
        new["spec"]["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        }

    def hold(new: Object) -> None:
        new["spec"]["volumeName"] = volume
        new["metadata"].setdefault("annotations", {})[BIND_COMPLETED] = "yes"

    def bound(new: Object) -> None:
        new["status"] = {**(new.get("status") or {}), "phase": "Bound"}

    with store.lock:
        store.modify(VOLUMES, volume, None, take)
        store.modify(VOLUMES, volume, None, bound, subresource="status")
        store.modify(CLAIMS, metadata["name"], metadata["namespace"], hold)
        store.modify(CLAIMS, metadata["name"], metadata["namespace"], bound, subresource="status")


def _fits(store: Store, volume: Object, claim: Object, node: Object | None) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    if not _reserved(volume, claim):
        if spec.get("claimRef") or (volume.get("status") or {}).get("phase", "Available") != "Available":
            return False
        selector = from_object(wanted.get("selector"))
        if selector and not matches(selector, volume["metadata"].get("labels")):
            return False
    return (
        (spec.get("storageClassName") or "") == _class_name(store, claim)
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and _capacity(volume) >= _requested(claim)
        and (node is None or _reaches(volume, node))
    )


def _reaches(volume: Object, node: Object) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms = required.get("nodeSelectorTerms")
    if not terms:
        return True
    labels = node["metadata"].get("labels") or {}
    for term in terms:
        selector = from_object({"matchExpressions": term.get("matchExpressions") or []})
        if selector is not None and matches(selector, labels):
            return True
    return False


def _provisioned(store: Store, claim: Object, kind: Object, node: Object | None) -> Object:
    """A volume as a zonal driver makes it: it reaches the chosen node's topology."""
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    made: dict[str, Any] = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": list(spec.get("accessModes") or ()),
        "storageClassName": kind["metadata"]["name"],
        "persistentVolumeReclaimPolicy": kind.get("reclaimPolicy", "Delete"),
        "csi": {"driver": kind["provisioner"], "volumeHandle": name},
    }
    labels = (node or {}).get("metadata", {}).get("labels") or {}
    keys = _topology(store, kind["provisioner"], node) or [ZONE]
    expressions = [{"key": k, "operator": "In", "values": [labels[k]]} for k in keys if k in labels]
    if expressions:
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": made}


def _topology(store: Store, driver: str, node: Object | None) -> list[str]:
    csi = store.find(CSI_NODES, node["metadata"]["name"]) if node is not None else None
    for found in ((csi or {}).get("spec") or {}).get("drivers") or ():
        if found.get("name") == driver:
            return list(found.get("topologyKeys") or ())
    return []


def _class_name(store: Store, claim: Object) -> str:
    annotated = (claim["metadata"].get("annotations") or {}).get(BETA_CLASS)
    name = annotated if annotated is not None else claim["spec"].get("storageClassName")
    if name is not None:
        return str(name)
    for kind in store.list(CLASSES):
        if (kind["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true":
            return str(kind["metadata"]["name"])
    return ""


def _class_of(store: Store, claim: Object) -> Object | None:
    name = _class_name(store, claim)
    return store.find(CLASSES, name) if name else None


def _is_bound(claim: Object) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return bool((claim.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in annotations


def _reserved(volume: Object, claim: Object) -> bool:
    """Whether the volume names this claim."""
    ref, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    return (
        ref.get("name") == metadata["name"]
        and ref.get("namespace") == metadata["namespace"]
        and ref.get("uid", "") in ("", metadata["uid"])
    )


def _capacity(volume: Object) -> int:
    return units(str((volume["spec"].get("capacity") or {}).get("storage", 0)))


def _requested(claim: Object) -> int:
    resources = (claim.get("spec") or {}).get("resources") or {}
    return units(str((resources.get("requests") or {}).get("storage", 0)))
