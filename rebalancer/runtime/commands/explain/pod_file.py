"""A pod that does not exist yet, from a manifest: as the API server would store it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec

from rebalancer.admission.pod import NotAdmittedError, admit_pod
from rebalancer.errors import UserError
from rebalancer.manifests import read_objects
from rebalancer.model.decode import Decoder
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot

_TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job")


def read_pods(path: str | os.PathLike[str], snapshot: Snapshot, stdin: BinaryIO | None = None) -> list[Pod]:
    """The pods in a manifest: of kind Pod, or as workloads in it would make them.

    Defaults, tolerations and priority are added as admission does; what it would refuse, and a file without
    a pod, raise UserError.
    """
    classes: dict[str, dict[str, Any]] = {
        name: {"metadata": {"name": name}, "value": c.value, "globalDefault": c.global_default}
        | {"preemptionPolicy": c.preemption_policy}
        for name, c in snapshot.priority_classes.items()
    }
    found = []
    for obj in read_objects([path], stdin):
        pod = _pod(obj)
        if pod is None:
            continue
        named = pod["spec"].get("priorityClassName")
        if named and "PriorityClass" not in snapshot.kinds:
            # Unknown, not absent: what the file itself says of the priority has to do.
            value = pod["spec"].get("priority", 0)
            classes.setdefault(named, {"metadata": {"name": named}, "value": value})
        try:
            admit_pod(pod, classes, None)
            value = Decoder().decode("Pod", msgspec.json.encode(pod))
        except (NotAdmittedError, msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError) as e:
            raise UserError(f"{os.fspath(path)}: {obj['kind']} {pod['metadata'].get('name')}: {e}") from e
        assert isinstance(value, Pod)
        found.append(value)
    if not found:
        kinds = ", ".join(("Pod", *_TEMPLATED))
        raise UserError(f"{os.fspath(path)}: no pod in it", f"one of {kinds} is expected")
    return found


def choose(pods: Iterable[Pod], name: str, path: str) -> Pod:
    """The pod of that name ("" = the only one). Raises UserError naming what there is."""
    every = list(pods)
    chosen = [p for p in every if name in ("", p.name, p.key)]
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(p.key for p in every)
    what = f"no pod {name}" if name else f"{len(every)} pods"
    raise UserError(f"{path}: {what} in it", f"name one of {there}")


def _pod(obj: dict[str, Any]) -> dict[str, Any] | None:
    """A new object for the pod that this one is, or would make; None for other kinds."""
    kind, metadata = obj["kind"], obj["metadata"]
    spec = obj.get("spec") if isinstance(obj.get("spec"), dict) else {}
    assert isinstance(spec, dict)
    if kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    elif kind not in ("Pod", *_TEMPLATED):
        return None
    made: dict[str, Any] = {"name": metadata["name"], "namespace": metadata.get("namespace") or "default"}
    if kind == "Pod":
        made |= {k: metadata[k] for k in ("labels", "annotations", "ownerReferences") if k in metadata}
        return {"metadata": made, "spec": {k: v for k, v in spec.items() if k != "nodeName"}}
    template = spec.get("template") or {}
    made |= {k: v for k, v in (template.get("metadata") or {}).items() if k in ("labels", "annotations")}
    if kind in ("ReplicaSet", "StatefulSet", "ReplicationController"):
        # Default constraints depend on the owner, where it exists.
        owner = {"kind": kind, "name": metadata["name"], "apiVersion": obj.get("apiVersion", "apps/v1")}
        made["ownerReferences"] = [{**owner, "uid": metadata.get("uid", ""), "controller": True}]
    return {"metadata": made, "spec": template.get("spec") or {}}
