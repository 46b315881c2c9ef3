"""The plugins that the engine knows, by upstream's names."""

from __future__ import annotations

from rebalancer.engine.node_affinity import NodeAffinity
from rebalancer.engine.node_name import NodeName
from rebalancer.engine.node_resources_fit import NodeResourcesFit
from rebalancer.engine.node_unschedulable import NodeUnschedulable
from rebalancer.engine.plugin import Plugin
from rebalancer.engine.pod_topology_spread import PodTopologySpread
from rebalancer.engine.taint_toleration import TaintToleration

_TYPES: tuple[type[Plugin], ...] = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodeResourcesFit,
    PodTopologySpread,
)

PLUGINS: dict[str, type[Plugin]] = {p.name: p for p in _TYPES}
