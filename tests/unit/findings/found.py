"""Findings of built clusters, in short."""

from __future__ import annotations

from typing import Any

from rebalancer.findings import findings
from rebalancer.model.reason import Finding
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from tests.support.build import NodeBuilder, OwnerBuilder, deployment, nodes, pdb, snapshot

THREE = {"a-0": 1, "b-0": 1, "c-0": 1}


def found(*things: Any, policy: PolicyOptions | None = None) -> tuple[Finding, ...]:
    """All findings of a cluster."""
    cluster = snapshot(*things)
    return findings(Simulation(cluster, None), Evictable(cluster, policy or PolicyOptions()))


def named(code: str, *things: Any) -> list[Finding]:
    """Those of one code."""
    return [f for f in found(*things) if f.code == code]


def zones(**per_zone: int) -> list[NodeBuilder]:
    """Two nodes in each of three zones, if nothing else is said."""
    return nodes(**(per_zone or {"a": 2, "b": 2, "c": 2}))


def sound(name: str = "web") -> OwnerBuilder:
    """A Deployment of three pods with nothing to be said of it, but for its budget."""
    return deployment(name).spread("zone", 1, match_label_keys=("pod-template-hash",)).placed(THREE)


def budget(name: str = "web", selector: dict[str, str] | None = None, **limits: Any) -> Any:
    """A budget for the workload of that name."""
    return pdb(name, selector or {"app": name}, **(limits or {"max_unavailable": 1}))
