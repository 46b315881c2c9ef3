"""The plugins that the engine knows, by upstream's names."""

from __future__ import annotations

from rebalancer.engine.plugins.image_locality import ImageLocality
from rebalancer.engine.plugins.inter_pod_affinity import InterPodAffinity
from rebalancer.engine.plugins.node_affinity import NodeAffinity
from rebalancer.engine.plugins.node_name import NodeName
from rebalancer.engine.plugins.node_ports import NodePorts
from rebalancer.engine.plugins.node_unschedulable import NodeUnschedulable
from rebalancer.engine.plugins.plugin import Plugin
from rebalancer.engine.plugins.pod_topology_spread import PodTopologySpread
from rebalancer.engine.plugins.resources.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from rebalancer.engine.plugins.resources.node_resources_fit import NodeResourcesFit
from rebalancer.engine.plugins.taint_toleration import TaintToleration
from rebalancer.engine.plugins.volumes.node_volume_limits import NodeVolumeLimits
from rebalancer.engine.plugins.volumes.volume_binding import VolumeBinding
from rebalancer.engine.plugins.volumes.volume_restrictions import VolumeRestrictions
from rebalancer.engine.plugins.volumes.volume_zone import VolumeZone

_TYPES: tuple[type[Plugin], ...] = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    NodeResourcesBalancedAllocation,
    ImageLocality,
)

PLUGINS: dict[str, type[Plugin]] = {p.name: p for p in _TYPES}
