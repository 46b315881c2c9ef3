"""What room is missing, in a sentence."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rebalancer.model.pod import ROOM
from rebalancer.report.formats import quantities
from rebalancer.report.text import listing, plural, short_key
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
    return " and ".join(q if r in ("cpu", "memory") else f"{q} {r}" for r, q in _units(quantities).items())


def _units(quantities: Mapping[str, str]) -> dict[str, str]:
    """`2 cpu` is clear, `2` is not."""
    return {
        r: f"{q} cpu" if r == "cpu" else f"{q} memory" if r == "memory" else q for r, q in quantities.items()
    }


# Missing room as CapacityBuffers, which ask an autoscaler to hold it ready.
#
# Rule: kubernetes/autoscaler, apis/capacitybuffer/autoscaling.x-k8s.io/v1beta1. A buffer names a
# PodTemplate of its namespace: so much room, `replicas` times. Here that is what each new node must have
# free, tied to its zone by a nodeSelector; several of one kind keep off each other's node.

Json = dict[str, Any]
API_VERSION = "autoscaling.x-k8s.io/v1beta1"
STRATEGY = "buffer.x-k8s.io/active-capacity"
_MANAGED = {"app.kubernetes.io/managed-by": "rebalancer"}
_IMAGE = "registry.k8s.io/pause:3.10"
_HOSTNAME = "kubernetes.io/hostname"


def to_buffers(room: Room) -> tuple[list[Json], list[str]]:
    """The objects; and what cannot be said so, in sentences. Each buffer comes before its template: where the
    cluster knows no buffers nothing is left behind."""
    objects: list[Json] = []
    left_out: list[str] = []
    for i, new in enumerate(room.nodes, 1):
        if any(value.startswith(NEW) for value in new.domains.values()):
            left_out.append(
                "a domain that does not exist yet has no name to ask for: add its node pool yourself"
            )
        elif not new.free or not new.pods:
            left_out.append(f"a node like {new.like} is needed for the way only: no buffer says how large")
        else:
            objects += _objects(f"rebalancer-room-{i}", new)
    return objects, left_out


def _objects(name: str, new: NewNodes) -> list[Json]:
    namespace = new.pods[0].workload.split("/")[1]
    metadata: Json = {"name": name, "namespace": namespace, "labels": {**_MANAGED, ROOM: name}}
    requests = {r: q for r, q in quantities(new.free).items() if r != "pods"}
    spec: Json = {
        "nodeSelector": dict(new.domains),
        "containers": [{"name": "room", "image": _IMAGE, "resources": {"requests": requests}}],
    }
    if new.taints:
        spec["tolerations"] = [_toleration(str(t)) for t in new.taints]
    if new.number > 1:
        term = {"topologyKey": _HOSTNAME, "labelSelector": {"matchLabels": {ROOM: name}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = {"metadata": {"labels": {**_MANAGED, ROOM: name}}, "spec": spec}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "CapacityBuffer",
            "metadata": metadata,
            "spec": {
                "podTemplateRef": {"name": name},
                "replicas": new.number,
                "provisioningStrategy": STRATEGY,
            },
        },
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template},
    ]


def _toleration(taint: str) -> Json:
    """Of `key=value:effect`, or `key:effect`."""
    left, _, effect = taint.rpartition(":")
    key, equals, value = left.partition("=")
    made: Json = {"key": key, "operator": "Equal" if equals else "Exists", "effect": effect}
    return {**made, "value": value} if equals else made
