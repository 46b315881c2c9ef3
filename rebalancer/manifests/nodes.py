"""Nodes to judge manifests by: from a file, or counted by zone (`a=3,b=3`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.manifests.reading import field_error, read_objects
from rebalancer.model.decode import MALFORMED, Decoder
from rebalancer.model.node import Node

_COUNTED = re.compile(r"[^=,\s]+=\d+(,[^=,\s]+=\d+)*")
_MOST = 15_000
_FORMS = "give a file with what `kubectl get nodes -o yaml` prints, or nodes by zone: a=3,b=3,c=3"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


class GivenNodes(Struct, frozen=True, eq=False):
    """`counted`: only zones are known of them, and that they are many enough; they have room for anything."""

    nodes: tuple[Node, ...]
    counted: bool


def given_nodes(value: str, resources: Iterable[str] = ()) -> GivenNodes:
    """The nodes that a person means. `resources`: what counted nodes shall have plenty of.

    Raises UserError.
    """
    if not value.strip():
        raise UserError("no nodes are named", _FORMS)
    if _COUNTED.fullmatch(value):
        return GivenNodes(_decoded(_counted(value, resources), value), True)
    found = [o for o in read_objects([value]) if o["kind"] == "Node"]
    if not found:
        raise UserError(f"no node in {value}", _FORMS)
    return GivenNodes(_decoded(found, value), False)


def _counted(value: str, resources: Iterable[str]) -> list[dict[str, Any]]:
    number: dict[str, int] = {}
    for part in value.split(","):
        zone, _, count = part.partition("=")
        number[zone] = number.get(zone, 0) + int(count)
    if not 0 < sum(number.values()) <= _MOST:
        raise UserError(
            f"{value} stands for {sum(number.values()):,} nodes", f"1 to {_MOST:,} can be judged by"
        )
    plenty = dict.fromkeys(("cpu", "memory", "ephemeral-storage", *resources), "1000000000")
    status = {
        "allocatable": {**plenty, "pods": "1000000"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    names = [(zone, f"{zone}-{i}") for zone, count in number.items() for i in range(count)]
    return [
        {"kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone, HOSTNAME: name}}, "status": status}
        for zone, name in names
    ]


def _decoded(found: list[dict[str, Any]], source: str) -> tuple[Node, ...]:
    decoder = Decoder()
    made = {}
    for o in found:
        try:
            node = decoder.decode("Node", msgspec.json.encode(o))
        except MALFORMED as e:
            name = o["metadata"]["name"]
            raise UserError(f"{source}: Node {name}: {field_error(e)}", _FORMS) from e
        assert isinstance(node, Node)
        made[node.name] = node
    return tuple(made.values())
