"""The other subresources that do something: a pod's binding, a workload's scale."""

from __future__ import annotations

from rebalancer.sandbox.admission import add_topology_labels
from rebalancer.sandbox.errors import bad_request, conflict
from rebalancer.sandbox.objects import Object, copied, set_condition
from rebalancer.sandbox.resources import NODES, PODS, Resource
from rebalancer.sandbox.store import Store


def bind(store: Store, namespace: str, name: str, node: str, *, dry_run: bool = False) -> None:
    """What the scheduler does: assign a pod to a node. ApiError 409 where it has one already."""
    with store.lock:
        record = store.record(PODS, name, namespace)
        pod = record.obj
        if not node:
            raise bad_request("must specify the node in target.name")
        if taken := pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{taken}"'
            raise conflict(PODS, name, why, sub="binding")
        if "deletionTimestamp" in pod["metadata"]:
            raise conflict(
                PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", sub="binding"
            )
        if pod["spec"].get("schedulingGates"):
            raise conflict(PODS, name, f"pod {name} has non-empty .spec.schedulingGates", sub="binding")
        new = copied(pod)
        new["spec"]["nodeName"] = node
        add_topology_labels(new, store.find(NODES, node))
        new.setdefault("status", {}).pop("nominatedNodeName", None)
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        for old in new["status"].get("conditions") or ():
            if old.get("type") == "PodScheduled":
                old.pop("reason", None)
                old.pop("message", None)
        set_condition(new, scheduled, store.now())
        if not dry_run:
            store.commit(PODS, record, new)


def scale_of(obj: Object) -> Object:
    """The autoscaling/v1 Scale of a workload."""
    metadata = {
        key: obj["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in obj["metadata"]
    }
    selector = obj["spec"].get("selector") or {}
    words = [
        f"{k}={v}"
        for k, v in sorted((selector.get("matchLabels", selector) or {}).items())
        if isinstance(v, str)
    ]
    for term in selector.get("matchExpressions") or ():
        values = ",".join(term.get("values") or ())
        word = {"In": f"{term['key']} in ({values})", "NotIn": f"{term['key']} notin ({values})",
                "Exists": term["key"], "DoesNotExist": f"!{term['key']}"}  # fmt: skip
        words.append(word[term["operator"]])
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": obj["spec"].get("replicas", 1)},
        "status": {"replicas": (obj.get("status") or {}).get("replicas", 0), "selector": ",".join(words)},
    }


def set_scale(store: Store, resource: Resource, scale: Object, *, dry_run: bool = False) -> Object:
    """Store the replicas of a Scale; the new Scale."""
    metadata = scale["metadata"]
    replicas = int((scale.get("spec") or {}).get("replicas") or 0)
    with store.lock:
        new = copied(store.get(resource, metadata["name"], metadata.get("namespace")))
        new["spec"]["replicas"] = replicas
        if version := metadata.get("resourceVersion"):
            new["metadata"]["resourceVersion"] = version
        return scale_of(store.update(new, resource=resource, dry_run=dry_run))
