"""The scheduler's configuration, as far as it changes a verdict or a score. `config_file` reads it.

Rule: pkg/scheduler/apis/config/v1 (default_plugins.go, defaults.go).
"""

from __future__ import annotations

from msgspec import Struct

from rebalancer.model.pod import NodeAffinity, TopologySpreadConstraint
from rebalancer.spread.defaults import SYSTEM_DEFAULTS

DEFAULT_SCHEDULER = "default-scheduler"

FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
"""Plugins that filter, in the order of the default profile."""

SCORES = (
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodeResourcesFit", 1),
    ("VolumeBinding", 1),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
)
"""Plugins that score, in the order of the default profile, with their weights."""


class ResourceWeight(Struct, frozen=True):
    """A resource that a score looks at."""

    name: str
    weight: int = 1


class ShapePoint(Struct, frozen=True):
    """A point of RequestedToCapacityRatio's curve: utilization 0–100, score 0–10."""

    utilization: int
    score: int


MIN_NODES_TO_FIND, MIN_PERCENTAGE = 100, 5
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


EMPTIEST = (ShapePoint(0, 10), ShapePoint(100, 0))
"""The broken line of VolumeBinding's score by default."""


class Profile(Struct, frozen=True, eq=False, kw_only=True):
    """One profile: its plugins by extension point, in order, and their arguments.

    `unknown`: enabled plugins that the engine does not have; `percentage_of_nodes_to_score` 0 = adaptive.
    """

    scheduler_name: str = DEFAULT_SCHEDULER
    pre_filters: tuple[str, ...] = FILTERS
    filters: tuple[str, ...] = FILTERS
    scores: tuple[tuple[str, int], ...] = SCORES
    unknown: tuple[str, ...] = ()
    percentage_of_nodes_to_score: int = 0
    system_defaulted: bool = True
    default_constraints: tuple[TopologySpreadConstraint, ...] = SYSTEM_DEFAULTS
    added_affinity: NodeAffinity | None = None
    fit_strategy: str = "LeastAllocated"
    fit_resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    fit_shape: tuple[ShapePoint, ...] = ()
    storage_shape: tuple[ShapePoint, ...] = EMPTIEST
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
    balanced_resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def nodes_to_find(self, nodes: int) -> int:
        """After how many feasible nodes the search stops, of `nodes` in all; only these are scored.

        Rule: pkg/scheduler/schedule_one.go, ``numFeasibleNodesToFind``.
        """
        percentage = self.percentage_of_nodes_to_score or max(MIN_PERCENTAGE, 50 - nodes // 125)
        return min(nodes, max(MIN_NODES_TO_FIND, nodes * percentage // 100))


class SchedulerConfig(Struct, frozen=True, eq=False, kw_only=True):
    """The scheduler's configuration; at least one profile."""

    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def places(self, scheduler_name: str) -> bool:
        """Whether a profile is responsible for pods of this schedulerName."""
        return any(p.scheduler_name == scheduler_name for p in self.profiles)

    def profile(self, scheduler_name: str) -> Profile:
        """The profile of a schedulerName; the first one stands in for a foreign scheduler."""
        return next((p for p in self.profiles if p.scheduler_name == scheduler_name), self.profiles[0])


DEFAULT_CONFIG = SchedulerConfig()
