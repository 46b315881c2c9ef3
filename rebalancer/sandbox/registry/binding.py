"""The binding subresource: a pod gets its node."""

from __future__ import annotations

from rebalancer.admission.pod import add_topology_labels
from rebalancer.sandbox.api.errors import bad_request, conflict
from rebalancer.sandbox.api.objects import copied, set_condition
from rebalancer.sandbox.api.resources import NODES, PODS
from rebalancer.sandbox.registry.store import Store


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
