"""`explain --compare`: what the scheduler decided lately, or decides now, beside what the engine says."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec.structs import replace

from rebalancer.admission import NotAdmittedError, admit_pod
from rebalancer.engine.agreement import Agreement, Comparison
from rebalancer.engine.config import SchedulerConfig
from rebalancer.errors import UserError
from rebalancer.manifests import read_objects
from rebalancer.model.decode import Decoder
from rebalancer.model.pod import Pod
from rebalancer.model.selectors import Requirement, Selector
from rebalancer.model.snapshot import Snapshot, check_readable
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.runtime.commands.source import Source, connected

FRESH = 60.0
"""Seconds after which a refusal says too little of the cluster as it is now."""
_PATIENCE = 120.0
"""Seconds that the watch may take to begin."""


def compare_refusals(source: Source, config: SchedulerConfig | None) -> list[Comparison]:
    """The pods that the scheduler refused within the last minute and that still wait. Raises KubeError."""
    from rebalancer.kube.reading import read_snapshot, refusals

    wait = threading.Event().wait
    with connected(source) as connection:
        # The events first: what they say is then no newer than the cluster that they are judged by.
        said = refusals(connection, since=source.clock() - FRESH, wait=wait)
        snapshot = read_snapshot(connection, now=source.clock, wait=wait)
    check_readable(snapshot)
    pods = {p.key: p for p in snapshot.pods}
    agreement = Agreement(snapshot, config)
    found = []
    for refusal in said:
        pod = pods.get(f"{refusal.namespace}/{refusal.pod}")
        if pod is None or not pod.waits or refusal.uid not in ("", pod.uid):
            continue
        if agreement.state.config.places(pod.template.scheduler_name):
            found.append(agreement.refused(replace(pod, unschedulable=refusal.message)))
    return found


def compare_watched(
    source: Source,
    config: SchedulerConfig | None,
    seconds: float,
    tell: Callable[[Comparison], None],
) -> list[Comparison]:
    """What the scheduler decides in so many seconds; `tell` gets each once it is judged. Raises KubeError."""
    from rebalancer.kube.watch.cache import WatchCache
    from rebalancer.runtime.live.agreement import SETTLED, AgreementWatch

    found: list[Comparison] = []

    def told(comparison: Comparison) -> None:
        found.append(comparison)
        tell(comparison)

    with connected(source) as connection:
        cache = WatchCache(connection).start()
        try:
            if not cache.wait_ready(_PATIENCE):
                cache.check()
            watch = AgreementWatch(cache, lambda: config, told).start()
            try:
                threading.Event().wait(seconds + 4 * SETTLED)
            finally:
                watch.stop()
            watch.look()
        finally:
            cache.stop()
    return found


# Finds the pod that a person named, and suggests others if there is none.

_SIMILAR = 5


SHORT_KINDS = {
    "deploy": "deployment",
    "rs": "replicaset",
    "sts": "statefulset",
    "rc": "replicationcontroller",
    "po": "pod",
}
"""Kinds as kubectl abbreviates them."""
_WORKLOADS = frozenset({"deployment", "statefulset", "replicaset", "replicationcontroller"})


def _kind_and_name(text: str) -> tuple[str, str]:
    """Of deploy/web, deployments/web or deployment.apps/web."""
    kind, _, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    return SHORT_KINDS.get(kind, kind.removesuffix("s")), name


def is_workload(text: str) -> bool:
    """Whether it is KIND/NAME, as in deploy/web."""
    kind, name = _kind_and_name(text)
    return bool(name) and kind in _WORKLOADS


def pods_of(snapshot: Snapshot, text: str, namespace: str = "") -> list[Pod]:
    """The pods of the workload KIND/NAME, such as deploy/web. Raises UserError unless there is one."""
    (kind, name), owners = _kind_and_name(text), Owners(snapshot, PolicyOptions())
    found: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        own = owners.of(pod)
        if own is None or pod.finished or namespace not in ("", pod.namespace):
            continue
        for w in (own, owners.top(own)):
            if (w.kind.lower(), w.name) == (kind, name) and pod not in found.setdefault(w.key, []):
                found[w.key].append(pod)
    if len(found) > 1:
        spaces = ", ".join(sorted(key.split("/")[1] for key in found))
        raise UserError(f"several namespaces have {text}", f"say which: -n with one of {spaces}")
    if not found:
        where = f" in {namespace}" if namespace else ""
        known = f"names are those of `kubectl get {kind} {f'-n {namespace}' if namespace else '-A'}`"
        raise UserError(f"no pod of {text}{where} among {len(snapshot.pods):,}", known)
    return next(iter(found.values()))


def worst_pod(snapshot: Snapshot, pods: Sequence[Pod]) -> Pod:
    """One that is Pending, else one that is not Ready, else one in the domain that has most of them."""
    keys = [c.topology_key for c in pods[0].template.spread][:1]
    labels = {n.name: n.labels.get(keys[0], "") if keys else n.name for n in snapshot.nodes}
    crowd = Counter(labels.get(p.node_name, "") for p in pods)
    return min(pods, key=lambda p: (bool(p.node_name), p.ready, -crowd[labels.get(p.node_name, "")], p.name))


_REQUIREMENT = re.compile(
    r"\s*(!?)\s*([^\s!=,()]+)\s*(?:(==?|!=)\s*([^\s,()]*)|(in|notin)\s*\(([^)]*)\))?\s*(?:,|$)"
)


def parse_selector(text: str) -> Selector:
    """A selector of labels in the syntax of kubectl -l. Raises UserError."""
    found, at = [], 0
    while at < len(text):
        part = _REQUIREMENT.match(text, at)
        if part is None or (part[1] and (part[3] or part[5])):
            raise UserError(
                f"{text!r} is no label selector", "as in kubectl: app=web,tier!=db,'zone in (a,b)',!canary"
            )
        at, key = part.end(), part[2]
        if part[5]:
            values = tuple(v.strip() for v in part[6].split(","))
            found.append(Requirement(key, "In" if part[5] == "in" else "NotIn", values))
        elif part[3]:
            found.append(Requirement(key, "NotIn" if part[3] == "!=" else "In", (part[4],)))
        else:
            found.append(Requirement(key, "DoesNotExist" if part[1] else "Exists", ()))
    return Selector(tuple(found))


def find_pod(snapshot: Snapshot, text: str, namespace: str = "") -> Pod:
    """The pod `namespace/name`; or that name in `namespace`; or the only pod of that name in the cluster; or
    the worst one of a workload KIND/NAME.

    Raises UserError naming similar pods.
    """
    if is_workload(text) and not any(p.key == text for p in snapshot.pods):
        return worst_pod(snapshot, pods_of(snapshot, text, namespace))
    space, _, name = text.removeprefix("pod/").rpartition("/")
    space = space or namespace
    found = [p for p in snapshot.pods if p.name == name and space in ("", p.namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"several pods are named {name}", f"say which: {', '.join(p.key for p in found)}")
    similar = _similar(snapshot, space, name)
    wanted = f"{space}/{name}" if space else name
    raise UserError(
        f"no pod {wanted} among {len(snapshot.pods):,}",
        f"similar: {', '.join(similar)}" if similar else "pods are named as namespace/name",
    )


def _similar(snapshot: Snapshot, namespace: str, name: str) -> list[str]:
    """The same name in other namespaces, names that begin alike, then similar spellings."""
    keys = [p.key for p in snapshot.pods]
    first = [p.key for p in snapshot.pods if p.name == name]
    first += [p.key for p in snapshot.pods if name and p.name.startswith(name)]
    close = get_close_matches(f"{namespace}/{name}" if namespace else name, keys, _SIMILAR, 0.6)
    if not namespace:
        names = {p.name: p.key for p in snapshot.pods}
        close += [names[n] for n in get_close_matches(name, names, _SIMILAR, 0.6)]
    return list(dict.fromkeys((*first, *close)))[:_SIMILAR]


# A pod that does not exist yet, from a manifest: as the API server would store it.

_TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job")


def read_pods(path: str | os.PathLike[str], snapshot: Snapshot) -> list[Pod]:
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
    for obj in read_objects([path]):
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
