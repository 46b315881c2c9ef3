"""Short names of topology keys, as people type them."""

from __future__ import annotations

_FULL = {
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "hostname": "kubernetes.io/hostname",
}


def full_key(key: str) -> str:
    """The key in full: "zone" and the like stand for the well-known ones. "zone=b" keeps its value."""
    name, equals, value = key.partition("=")
    return f"{_FULL.get(name, name)}{equals}{value}"
