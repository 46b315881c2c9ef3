"""The plugins that the engine knows, by upstream's names."""

from __future__ import annotations

from rebalancer.engine.image_locality import ImageLocality
from rebalancer.engine.inter_pod_affinity import InterPodAffinity
from rebalancer.engine.node_affinity import NodeAffinity
from rebalancer.engine.node_name import NodeName
from rebalancer.engine.node_ports import NodePorts
from rebalancer.engine.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from rebalancer.engine.node_resources_fit import NodeResourcesFit
from rebalancer.engine.node_unschedulable import NodeUnschedulable
from rebalancer.engine.node_volume_limits import NodeVolumeLimits
from rebalancer.engine.plugin import Plugin
from rebalancer.engine.pod_topology_spread import PodTopologySpread
from rebalancer.engine.taint_toleration import TaintToleration
from rebalancer.engine.volume_binding import VolumeBinding
from rebalancer.engine.volume_restrictions import VolumeRestrictions
from rebalancer.engine.volume_zone import VolumeZone

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
