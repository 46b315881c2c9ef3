"""The scale subresource of a workload."""

from __future__ import annotations

from rebalancer.sandbox.api.objects import Object, copied
from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.registry.store import Store


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
