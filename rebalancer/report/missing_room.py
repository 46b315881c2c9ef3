"""What room is missing, in a sentence."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import ROOM
from rebalancer.model.reason import listing, plural
from rebalancer.report.formats import quantities
from rebalancer.report.text import short_key
from rebalancer.report.words import workload_name
from rebalancer.room.kinds import NEW
from rebalancer.room.search import NewNodes, Room

_NAMED = 4
_PLACES = ("zone", "region")


def headline(room: Room) -> str:
    """The advice, and what it mends."""
    if not room.excess:
        return "No room is missing: the plan leaves no excess."
    if not room.nodes:
        known = "More nodes would not help" if room.proved else "No nodes were found that would help"
        return f"{known}: an excess of {room.excess:,} stays for other reasons{_cut(room)}."
    said = " and ".join(map(_nodes, room.nodes))
    if room.instead is not None:
        more = _amounts(quantities(room.instead.more))
        names = room.instead.nodes
        said += f", or {more} more on " + (
            names[0] if len(names) == 1 else f"any of {listing(names, _NAMED)}"
        )
    said += f": mends {listing(map(workload_name, room.mends), _NAMED)}" if room.mends else ""
    if room.proved or (room.number == 1 and not room.left):
        return f"{said}."
    unproved = "Fewer were not proved impossible" if room.number > 1 else "More may do better"
    return f"{said}. {unproved}{_cut(room)}."


def _cut(room: Room) -> str:
    return "" if room.searched else ", and it was not searched to the end"


def section(room: Room) -> Iterator[str]:
    """The lines of a section of the report."""
    yield headline(room)
    yield from details(room)
    if try_it := command(room):
        yield f"see it first: {try_it}"


def details(room: Room) -> list[str]:
    """What it comes to, and what was left out."""
    if not room.nodes:
        return []
    leave = "leaves" if room.evictions == 1 else "leave"
    after = f"an excess of {room.left:,}" if room.left else "no excess"
    lines = [
        f"with {'it' if room.number == 1 else 'them'}, {plural(room.evictions, 'eviction')} {leave} {after}"
    ]
    if room.left > room.least:
        lines.append(f"a placement with {room.least:,} exists, but single evictions do not lead there")
    if room.waiting:
        lines.append(f"{plural(room.waiting, 'Pending pod')} may take this room, and are not counted")
    return lines


def command(room: Room) -> str:
    """How to see the effect first; "" where the nodes are of several kinds."""
    if len(room.nodes) != 1:
        return ""
    new = room.nodes[0]
    labels = "".join(f" --label {shlex.quote(f'{short_key(k)}={new.domains[k]}')}" for k in new.unlike)
    return f"rebalancer simulate --add-nodes {room.number} --like {shlex.quote(new.like)}{labels}"


def _nodes(new: NewNodes) -> str:
    where = ", ".join(_named(new.domains))
    free = _amounts({r: q for r, q in quantities(new.free).items() if r != "pods"})
    return (
        plural(new.number, "node")
        + (f" in {where}" if where else "")
        + (f" with {free} free" + (" each" if new.number > 1 else "") if free else "")
        + (f" and {_tainted(new)}" if new.taints else "")
        + f", like {new.like}"
    )


def _named(domains: Mapping[str, str]) -> list[str]:
    """The finest place alone says where: a zone's region goes without saying."""
    known = {short_key(k): v for k, v in domains.items()}
    if "zone" in known:
        known.pop("region", None)
    return [
        f"a {k} of its own" if v.startswith(NEW) else v if k in _PLACES else f"{k} {v}"
        for k, v in known.items()
    ]


def _tainted(new: NewNodes) -> str:
    return (
        f"the taint {new.taints[0]}"
        if len(new.taints) == 1
        else f"the taints {', '.join(map(str, new.taints))}"
    )


def _amounts(quantities: Mapping[str, str]) -> str:
    """`2 cpu` is clear, `2` is not."""
    return " and ".join(f"{q} {r}" for r, q in quantities.items())


# Missing room as objects that have an autoscaler hold it ready: CapacityBuffers, or Deployments of pods that
# do nothing, for one that knows no buffers (Karpenter 1.13 does not).
#
# Rule: kubernetes/autoscaler, apis/capacitybuffer/autoscaling.x-k8s.io/v1beta1. A buffer names a
# PodTemplate of its namespace: so much room, `replicas` times. Here that is what each new node must have
# free, tied to its zone by a nodeSelector; several of one kind keep off each other's node. An autoscaler
# counts room that is there first, which the plan may use itself: so much is asked for beside it.

Json = dict[str, Any]
API_VERSION = "autoscaling.x-k8s.io/v1beta1"
STRATEGY = "buffer.x-k8s.io/active-capacity"
_MANAGED = {"app.kubernetes.io/managed-by": "rebalancer"}
_IMAGE = "registry.k8s.io/pause:3.10"
_POD_SECURITY: Json = {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}}
_SECURITY: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What a namespace that enforces `restricted` asks for."""
BUFFER_NOTES = (
    "Apply it, wait until the nodes are Ready, and delete it right before the repair, at the latest after.",
    "While it is there, the autoscaler buys again what the repair uses. If nothing comes: its conditions.",
    "Karpenter 1.13 serves no CapacityBuffers: for it, see rebalancer room -o placeholder.",
)
PLACEHOLDER_NOTES = (
    "kubectl apply -f FILE     wait until its pods run, that is until the nodes are Ready",
    "kubectl delete -f FILE    right before the repair: no move of the plan preempts anybody, not even these",
)


def to_buffers(room: Room) -> tuple[list[Json], list[str]]:
    """The objects; and what cannot be said so, in sentences. Each buffer comes before its template: where the
    cluster knows no buffers nothing is left behind."""
    return _each(room, _buffer)


def to_placeholders(room: Room) -> tuple[list[Json], list[str]]:
    """The missing room as Deployments of pods that hold it."""
    return _each(room, _placeholder)


def _each(room: Room, made: Callable[[Json, Json, int], list[Json]]) -> tuple[list[Json], list[str]]:
    objects: list[Json] = []
    left_out: list[str] = []
    for i, new in enumerate(room.nodes, 1):
        if any(value.startswith(NEW) for value in new.domains.values()):
            left_out.append(
                "a domain that does not exist yet has no name to ask for: add its node pool yourself"
            )
        elif not new.free or not new.pods:
            left_out.append(f"a node like {new.like} is needed for the way only: nothing says how large")
        else:
            labels = {**_MANAGED, ROOM: f"rebalancer-room-{i}"}
            namespace = new.pods[0].workload.split("/")[1]
            metadata: Json = {"name": labels[ROOM], "namespace": namespace, "labels": labels}
            objects += made(metadata, _template(labels, new), new.number + new.already)
    return objects, left_out


def _template(labels: Mapping[str, str], new: NewNodes) -> Json:
    requests = {r: q for r, q in quantities(new.free).items() if r != "pods"}
    container = {"name": "room", "image": _IMAGE, "securityContext": _SECURITY}
    spec: Json = {
        "nodeSelector": dict(new.domains),
        "securityContext": _POD_SECURITY,
        "containers": [{**container, "resources": {"requests": requests}}],
    }
    if new.taints:
        spec["tolerations"] = [_toleration(str(t)) for t in new.taints]
    if new.number + new.already > 1:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {ROOM: labels[ROOM]}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def _buffer(metadata: Json, template: Json, replicas: int) -> list[Json]:
    spec = {"podTemplateRef": {"name": metadata["name"]}, "replicas": replicas}
    spec["provisioningStrategy"] = STRATEGY
    return [
        {"apiVersion": API_VERSION, "kind": "CapacityBuffer", "metadata": metadata, "spec": spec},
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template},
    ]


def _placeholder(metadata: Json, template: Json, replicas: int) -> list[Json]:
    template["spec"]["terminationGracePeriodSeconds"] = 0
    selector = {"matchLabels": {ROOM: metadata["name"]}}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}]


def _toleration(taint: str) -> Json:
    """Of `key=value:effect`, or `key:effect`."""
    left, _, effect = taint.rpartition(":")
    key, equals, value = left.partition("=")
    made: Json = {"key": key, "operator": "Equal" if equals else "Exists", "effect": effect}
    return {**made, "value": value} if equals else made
