"""Claims: bound to a volume that exists, or to one made for them.

Rule, as far as a sandbox needs it: pkg/controller/volume/persistentvolume (``findBestMatchForClaim``), and
for WaitForFirstConsumer the scheduler's volume binder: once a node is chosen.
"""

from __future__ import annotations

from typing import Any

from rebalancer.engine.plugins.volumes.volume_binding import NO_PROVISIONER
from rebalancer.engine.state.storage import BETA_CLASS, BIND_COMPLETED, WAIT
from rebalancer.model.amounts.quantity import units
from rebalancer.sandbox.api.objects import Object
from rebalancer.sandbox.api.resources import NODES, resolve
from rebalancer.sandbox.api.selectors import from_object, matches
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.loop import Controller
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Event

CLAIMS = resolve("PersistentVolumeClaim")
VOLUMES = resolve("PersistentVolume")
CLASSES = resolve("StorageClass")
CSI_NODES = resolve("CSINode")
_ZONE = "topology.kubernetes.io/zone"
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
        namespace, name = pods.split(key)
        claim = self.store.find(CLAIMS, name, namespace)
        if claim is None or _is_bound(claim) or pods.terminating(claim):
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
    keys = _topology(store, kind["provisioner"], node) or [_ZONE]
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
