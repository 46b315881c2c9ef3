"""What the sandbox makes of the failure of a domain: how many pods its scheduler leaves Pending."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

from rebalancer.sandbox import Cluster
from rebalancer.sandbox.resources import RESOURCES
from tests.support.scheduler.plain import HOSTNAME, Json, finished, node_of, terminating

VERSION = "v1.36.2"
_KINDS = frozenset(
    {
        "Node",
        "Pod",
        "Namespace",
        "Service",
        "Deployment",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "DaemonSet",
        "Job",
        "PodDisruptionBudget",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
        "ControllerRevision",
    }
)


class Failed(NamedTuple):
    """`at_rest`: the cluster's objects before the failure. `pending`: pods without a node after it."""

    at_rest: list[Json]
    pending: int


def failed(
    objects: list[Json],
    key: str,
    value: str,
    seed: int = 0,
    patience: float = 60.0,
    *,
    one_by_one: bool = False,
    deleted: bool = False,
) -> Failed:
    """Lets the nodes with that label fall silent, in a cluster that has come to rest, and waits for rest: all
    at once, or `one_by_one` with a rest after each. `deleted`: they are removed from the API instead."""
    made = Cluster(
        with_classes(objects), seed=seed, patience=0.05, grace=0.01, ready_after=0.01, version=VERSION
    )
    with made as cluster:
        cluster.settle(patience)
        at_rest = [o for r in RESOURCES if r.kind in _KINDS for o in cluster.store.list(r)]
        nodes = (n["metadata"] for n in cluster.store.list("Node"))
        named = {m["name"]: m["labels"] for m in nodes if m["labels"].get(key) == value}
        hosts = [(HOSTNAME, named[name][HOSTNAME]) for name in sorted(named)]
        for at, (label, host) in enumerate(hosts if one_by_one else [(key, value)]):
            if not deleted:
                cluster.fail_domain(label, host)
            for name in (sorted(named)[at : at + 1] if one_by_one else sorted(named)) if deleted else ():
                cluster.store.delete("Node", name)
            cluster.settle(patience)
        return Failed(at_rest, sum(map(_waits, cluster.store.list("Pod"))))


def with_classes(objects: list[Json]) -> list[Json]:
    """The objects with a PriorityClass for each priority: the API server computes that of a new pod by its
    class, and without one it is 0."""
    made = deepcopy(objects)
    pods = [o for o in made if o["kind"] == "Pod"]
    values = set()
    for namespace, labels, spec in _pod_specs(made):
        alike = (
            p["spec"].get("priority")
            for p in pods
            if p["metadata"].get("namespace") == namespace
            and labels.items() <= p["metadata"].get("labels", {}).items()
        )
        if value := spec.get("priority", next(alike, None)):
            spec["priorityClassName"] = f"priority-{value}"
            values.add(value)
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return [*made, *({**kind, "metadata": {"name": f"priority-{v}"}, "value": v} for v in sorted(values))]


def _pod_specs(objects: list[Json]) -> Iterator[tuple[str | None, Json, Json]]:
    """Namespace, labels and spec of each pod and each template."""
    for o in objects:
        made = o if o["kind"] == "Pod" else (o.get("spec") or {}).get("template") or {}
        if "spec" in made:
            yield o["metadata"].get("namespace"), made.get("metadata", {}).get("labels", {}), made["spec"]


def _waits(pod: Json) -> bool:
    """One of a DaemonSet waits for its own node, and is deleted when that fails."""
    of_node = any(o["kind"] == "DaemonSet" for o in pod["metadata"].get("ownerReferences") or ())
    return not (node_of(pod) or finished(pod) or terminating(pod) or of_node)
