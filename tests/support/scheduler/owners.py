"""What owners do: who may be evicted at all, and what pod comes after an evicted one."""

from __future__ import annotations

from tests.support.scheduler.budget import Ledger
from tests.support.scheduler.plain import (
    Json,
    controller_of,
    finished,
    labels_of,
    namespace_of,
    node_of,
    selects,
    terminating,
)
from tests.support.scheduler.state import State

REPLICATED = ("ReplicaSet", "ReplicationController", "StatefulSet")


def owner_of(state: State, pod: Json) -> Json | None:
    """The controller, if the state has it."""
    ref = controller_of(pod)
    if ref is None:
        return None
    found = state.others.get((ref["kind"], f"{namespace_of(pod)}/{ref['name']}"))
    return found if found is not None and found["metadata"].get("uid") == ref.get("uid") else None


def protection(state: State, pod: Json) -> str:
    """Why the pod must not be evicted by default, budgets aside; "" if it may be."""
    if not node_of(pod) or finished(pod) or terminating(pod) or pod["status"].get("phase") != "Running":
        return "not running"
    if "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {}):
        return "mirror"
    if namespace_of(pod) == "kube-system":
        return "kube-system"
    owner = owner_of(state, pod)
    if owner is None or owner["kind"] not in REPLICATED:
        return "no replicated owner"
    return unsettled(state, owner)


def unsettled(state: State, owner: Json) -> str:
    """Why the owner's pods are to be left alone for now; "" if nothing is going on."""
    meta, spec, status = owner["metadata"], owner["spec"], owner.get("status") or {}
    if terminating(owner):
        return "owner terminating"
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        return "owner not observed"
    mine = [p for p in state.pods.values() if _is_owner(owner, p) and not finished(p) and not terminating(p)]
    if len(mine) != spec.get("replicas", 1):
        return "owner scaling"
    if owner["kind"] == "StatefulSet" and status.get("currentRevision") != status.get("updateRevision"):
        return "two revisions"
    parent = owner_of(state, owner)
    if parent is not None and parent["kind"] == "Deployment":
        now = parent.get("status") or {}
        wanted = parent["spec"].get("replicas", 1)
        if now.get("updatedReplicas", 0) != wanted or now.get("replicas", 0) != wanted:
            return "rollout"
        if now.get("observedGeneration", 0) < parent["metadata"].get("generation", 0):
            return "rollout not observed"
    return ""


def _is_owner(owner: Json, pod: Json) -> bool:
    ref = controller_of(pod)
    return (
        ref is not None
        and ref.get("uid") == owner["metadata"]["uid"]
        and namespace_of(pod) == namespace_of(owner)
    )


def evictable(state: State, pod: Json) -> bool:
    """Whether it may be evicted now, the budgets asked too."""
    return not protection(state, pod) and not Ledger(state).evict(pod)


def waits_for_end(pod: Json) -> bool:
    """Whether the owner replaces the pod only when it is gone: StatefulSets, under the same name."""
    ref = controller_of(pod)
    return ref is not None and ref["kind"] == "StatefulSet"


def replacement(state: State, pod: Json) -> Json:
    """The pod that the owner creates: its template, what the evicted pod had beyond it, no node."""
    owner = owner_of(state, pod)
    like_it = {"metadata": {"labels": labels_of(pod)}, "spec": {}}
    template = (owner or {}).get("spec", {}).get("template", like_it)
    same_name = waits_for_end(pod)
    name = pod["metadata"]["name"] if same_name else f"{pod['metadata']['name']}-next"
    labels = {**(labels_of(pod) if same_name else {}), **(template["metadata"].get("labels") or {})}
    made: Json = {"apiVersion": "v1", "kind": "Pod"}
    made["metadata"] = {
        **{k: v for k, v in pod["metadata"].items() if k in ("namespace", "ownerReferences", "annotations")},
        "name": name,
        "uid": f"{pod['metadata'].get('uid', '')}-next",
        "labels": labels,
        "creationTimestamp": "2026-06-01T00:00:00Z",
        "resourceVersion": "2",
    }
    made["spec"] = {**pod["spec"], **template["spec"]}
    for field in ("volumes", "tolerations"):
        written = list(template["spec"].get(field) or ())
        added = [x for x in pod["spec"].get(field) or () if x not in written]
        if written or added:
            made["spec"][field] = written + added
    made["spec"].pop("nodeName", None)
    made["status"] = {"phase": "Pending"}
    return made


def released(pod: Json, label: str) -> Json:
    """The pod without a label, and so without its ReplicaSet."""
    meta = {k: v for k, v in pod["metadata"].items() if k != "ownerReferences"}
    left = {k: v for k, v in labels_of(pod).items() if k != label}
    return {**pod, "metadata": {**meta, "labels": left}}


def adopters(state: State, pod: Json) -> list[str]:
    """The controllers that would take a pod over that has none, by kind and name."""
    return [
        f"{kind} {name}"
        for (kind, name), owner in sorted(state.others.items())
        if kind in (*REPLICATED, "DaemonSet", "Job")
        and namespace_of(owner) == namespace_of(pod)
        and selects(owner["spec"].get("selector") or {}, labels_of(pod))
    ]


def assigned(pod: Json, node: str) -> Json:
    """The pod running and Ready on a node."""
    conditions = [
        {"type": t, "status": "True", "lastTransitionTime": "2026-06-01T00:00:00Z"}
        for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    status = {"phase": "Running", "startTime": "2026-06-01T00:00:00Z", "conditions": conditions}
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def evicted(pod: Json) -> Json:
    """The pod while it terminates."""
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-06-01T00:00:01Z"}}
