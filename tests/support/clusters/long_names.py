"""The cluster of the demo with the names that nodes and zones have at providers and in one's own rooms."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from rebalancer.sandbox.cluster import ZONES, after_outage

PROVIDERS = {
    "eks": ("ip-10-{0}-{1}-17{0}.eu-central-1.compute.internal", "eu-central-1{}"),
    "gke": ("gke-prod-europe-default-pool-{1}f2a1b4c-x7k{0}", "europe-west3-{}"),
    "aks": ("aks-userpool{1}-31415926-vmss00000{0}", "westeurope-{}"),
    "own": ("k8s-worker-{1}{0}.fra1.prod.example.net", "rack-{}"),
}


@cache
def objects(provider: str) -> tuple[dict[str, Any], ...]:
    """All of its objects, as the API server has them."""
    node, zone = PROVIDERS[provider]
    nodes = sorted(o["metadata"]["name"] for o in after_outage() if o["kind"] == "Node")
    named = {old: node.format(i % 4, i // 4) for i, old in enumerate(nodes)}
    named |= {z: zone.format(z) for z in ZONES}

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: renamed(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [renamed(v) for v in value]
        return named.get(value, value) if isinstance(value, str) else value

    allows = {"disruptionsAllowed": 1, "currentHealthy": 4, "desiredHealthy": 3, "expectedPods": 4}
    found = [renamed(o) for o in after_outage()]
    return tuple({**o, "status": allows} if o["kind"] == "PodDisruptionBudget" else o for o in found)


def written(provider: str, folder: Path) -> Path:
    """A file with all of it, for --snapshot."""
    file = folder / f"{provider}.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(provider)}))
    return file
