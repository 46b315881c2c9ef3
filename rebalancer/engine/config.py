"""The scheduler's configuration, as far as it changes a verdict or a score. `parse_config` reads it.

Rule: pkg/scheduler/apis/config/v1 (default_plugins.go, defaults.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.decode import without_nulls
from rebalancer.model.pod import NodeAffinity, TopologySpreadConstraint
from rebalancer.spread.constraint import SYSTEM_DEFAULTS

DEFAULT_SCHEDULER = "default-scheduler"


class Known(NamedTuple):
    """A plugin that the engine has: upstream's name, its file in `engine/plugins/`, words of the reasons that
    it gives, its weight in the default profile (0: it does not score), and whether it filters."""

    name: str
    file: str
    words: tuple[str, ...] = ()
    weight: int = 0
    filters: bool = True


PLUGINS = (
    Known("NodeUnschedulable", "node_unschedulable", ("were unschedulable",)),
    Known("NodeName", "node_name"),
    Known("TaintToleration", "taint_toleration", ("had untolerated taint",), 3),
    Known(
        "NodeAffinity",
        "node_affinity",
        ("node affinity/selector", "scheduler-enforced node affinity", "pod affinity terms"),
        2,
    ),
    Known("NodePorts", "node_ports", ("have free ports",)),
    Known("NodeResourcesFit", "node_resources", ("Insufficient ", "Too many pods"), 1),
    Known("VolumeRestrictions", "volume_restrictions", ("no available disk", "ReadWriteOncePod")),
    Known(
        "NodeVolumeLimits",
        "node_volume_limits",
        ("exceed max volume count", "CSI driver is not installed"),
    ),
    Known(
        "VolumeBinding",
        "volume_binding",
        (
            "volume node affinity",
            "PersistentVolume's node affinity",
            "unbound immediate",
            "persistent volumes to bind",
            "enough free storage",
            "persistentvolume",
        ),
        1,
    ),
    Known("VolumeZone", "volume_zone", ("no available volume zone",)),
    Known("PodTopologySpread", "pod_topology_spread", ("topology spread constraints",), 2),
    Known("InterPodAffinity", "inter_pod_affinity", ("pod affinity rules", "anti-affinity rules"), 2),
    Known("NodeResourcesBalancedAllocation", "node_resources", weight=1, filters=False),
    Known("ImageLocality", "image_locality", weight=1, filters=False),
)
"""All of them, in the order of the default profile."""

FILTERS = tuple(p.name for p in PLUGINS if p.filters)
SCORES = tuple((p.name, p.weight) for p in PLUGINS if p.weight)


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
    `digest`: of the configuration that it is from, "" where none was given.
    """

    scheduler_name: str = DEFAULT_SCHEDULER
    digest: str = ""
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

    @property
    def known_as(self) -> str:
        """By what evidence on it is remembered: with another configuration it is another profile."""
        return f"{self.scheduler_name} {self.digest}".rstrip()

    @property
    def keeps_spread(self) -> bool:
        """Whether hard topology spread constraints bind its pods."""
        return "PodTopologySpread" in self.filters

    @property
    def hard_defaults(self) -> bool:
        """Whether its pods without constraints of their own are given hard ones."""
        return any(c.when_unsatisfiable == "DoNotSchedule" for c in self.default_constraints)

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

    @property
    def hard_defaults(self) -> bool:
        """Whether one of the profiles has them."""
        return any(p.hard_defaults for p in self.profiles)

    def places(self, scheduler_name: str) -> bool:
        """Whether a profile is responsible for pods of this schedulerName."""
        return any(p.scheduler_name == scheduler_name for p in self.profiles)

    def profile(self, scheduler_name: str) -> Profile:
        """The profile of a schedulerName; the first one stands in for a foreign scheduler."""
        return next((p for p in self.profiles if p.scheduler_name == scheduler_name), self.profiles[0])


DEFAULT_CONFIG = SchedulerConfig()


class Witness(Struct, frozen=True):
    """What the scheduler's own decisions have shown, by the name of the profile and a branch
    (`engine/branches.py`). `doubted`: one was not as the engine said, with a sentence on it; `covered`:
    enough of those that show the branch were."""

    doubted: Mapping[tuple[str, str], str] = {}
    covered: frozenset[tuple[str, str]] = frozenset()


NO_WITNESS = Witness()


# KubeSchedulerConfiguration documents → `SchedulerConfig`.
#
# Rules: pkg/scheduler/apis/config/v1/default_plugins.go (``mergePluginSet``, ``getDefaultPlugins``) and
# defaults.go; pkg/scheduler/framework/runtime/framework.go (``expandMultiPointPlugins``,
# ``getScoreWeights``). v1beta1–v1beta3 are read as v1: the fields are the same, and where v1beta1 and
# v1beta2 list the default plugins by extension point the outcome is, too.

A = TypeVar("A", bound=Struct)

GROUP = "kubescheduler.config.k8s.io/"
VERSIONS = ("v1", "v1beta3", "v1beta2", "v1beta1")

MULTI_POINT = (
    "SchedulingGates",
    "PrioritySort",
    *FILTERS,
    "DynamicResources",
    "DefaultPreemption",
    *(p.name for p in PLUGINS if not p.filters),
    "DefaultBinder",
    "NodeDeclaredFeatures",
)
"""The default profile's plugins, in order."""

SAFE = frozenset({*MULTI_POINT, "EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"})
"""Plugins that are modelled, or reported elsewhere, or (limits of in-tree disks) no longer have an effect."""

_SCORING = dict(SCORES)


class ConfigError(ValueError):
    """The document is not a KubeSchedulerConfiguration that the engine can read; the message says where."""


class _Plugin(Struct, frozen=True):
    name: str
    weight: int = 0


class _PluginSet(Struct, frozen=True):
    enabled: tuple[_Plugin, ...] = ()
    disabled: tuple[_Plugin, ...] = ()


class _Plugins(Struct, frozen=True, rename="camel"):
    multi_point: _PluginSet = _PluginSet()
    pre_filter: _PluginSet = _PluginSet()
    filter: _PluginSet = _PluginSet()
    post_filter: _PluginSet = _PluginSet()
    pre_score: _PluginSet = _PluginSet()
    score: _PluginSet = _PluginSet()
    reserve: _PluginSet = _PluginSet()
    permit: _PluginSet = _PluginSet()
    pre_bind: _PluginSet = _PluginSet()
    bind: _PluginSet = _PluginSet()


class _PluginConfig(Struct, frozen=True):
    name: str
    args: dict[str, object] = {}


class _Profile(Struct, frozen=True, rename="camel"):
    scheduler_name: str = DEFAULT_SCHEDULER
    plugins: _Plugins = _Plugins()
    plugin_config: tuple[_PluginConfig, ...] = ()
    percentage_of_nodes_to_score: int | None = None


class _Extender(Struct, frozen=True, rename="camel"):
    url_prefix: str = ""


class _Configuration(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: Literal["KubeSchedulerConfiguration"]
    profiles: tuple[_Profile, ...] = ()
    extenders: tuple[_Extender, ...] = ()
    percentage_of_nodes_to_score: int | None = None


class _Shape(Struct, frozen=True):
    shape: tuple[ShapePoint, ...] = ()


class _Strategy(Struct, frozen=True, rename="camel"):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = ()
    requested_to_capacity_ratio: _Shape = _Shape()


class _FitArgs(Struct, frozen=True, rename="camel"):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: _Strategy = _Strategy()


class _BalancedArgs(Struct, frozen=True):
    resources: tuple[ResourceWeight, ...] = ()


class _SpreadArgs(Struct, frozen=True, rename="camel"):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"


class _PodAffinityArgs(Struct, frozen=True, rename="camel"):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _NodeAffinityArgs(Struct, frozen=True, rename="camel"):
    added_affinity: NodeAffinity | None = None


def parse_config(document: Mapping[str, object]) -> SchedulerConfig:
    """The configuration in a document (YAML or JSON, loaded). Raises ConfigError."""
    try:
        wire = msgspec.convert(without_nulls(dict(document)), _Configuration)
    except msgspec.ValidationError as e:
        raise ConfigError(str(e)) from e
    if wire.api_version.removeprefix(GROUP) not in VERSIONS:
        raise ConfigError(f"apiVersion {wire.api_version!r} is none of {GROUP}{{{','.join(VERSIONS)}}}")
    extenders = tuple(e.url_prefix for e in wire.extenders)
    percentage = wire.percentage_of_nodes_to_score or 0
    digest = blake2b(msgspec.json.encode(wire, order="sorted"), digest_size=4).hexdigest()
    profiles = tuple(replace(_profile(p, percentage), digest=digest) for p in wire.profiles) or (
        Profile(percentage_of_nodes_to_score=percentage, digest=digest),
    )
    warnings = [f"scheduler extender {url!r} is not asked" for url in extenders]
    for profile in profiles:
        warnings += [
            f"plugin {name!r} of profile {profile.scheduler_name!r} is unknown" for name in profile.unknown
        ]
    return SchedulerConfig(profiles=profiles, extenders=extenders, warnings=tuple(warnings))


def _profile(wire: _Profile, percentage: int) -> Profile:
    plugins = wire.plugins
    multi = _merged(plugins.multi_point)
    weights = {p.name: p.weight for p in multi}
    scores = _at_point(plugins.score, multi, tuple(_SCORING))
    # One that is enabled here goes by its weight here, which is 1 if it has none.
    weights.update({p.name: p.weight or 1 for p in plugins.score.enabled})
    fit = _args(wire, "NodeResourcesFit", _FitArgs)
    balanced = _args(wire, "NodeResourcesBalancedAllocation", _BalancedArgs)
    spread = _args(wire, "PodTopologySpread", _SpreadArgs)
    affinity = _args(wire, "InterPodAffinity", _PodAffinityArgs)
    added = _args(wire, "NodeAffinity", _NodeAffinityArgs).added_affinity
    if added is not None:
        terms = added.required.node_selector_terms if added.required is not None else ()
        for unread in (*(r for t in terms for r in t.unread), *added.unread):
            raise ConfigError(f"pluginConfig of NodeAffinity: addedAffinity does not parse ({unread})")
    volumes = _args(wire, "VolumeBinding", _Shape)
    system = spread.defaulting_type == "System"
    strategy = fit.scoring_strategy
    return Profile(
        scheduler_name=wire.scheduler_name,
        pre_filters=_at_point(plugins.pre_filter, multi, FILTERS),
        filters=_at_point(plugins.filter, multi, FILTERS),
        scores=tuple((name, weights.get(name, 0) or 1) for name in scores),
        unknown=_unknown(plugins, multi),
        percentage_of_nodes_to_score=(
            percentage if wire.percentage_of_nodes_to_score is None else wire.percentage_of_nodes_to_score
        ),
        system_defaulted=system,
        default_constraints=SYSTEM_DEFAULTS if system else spread.default_constraints,
        added_affinity=added,
        fit_strategy=strategy.type,
        fit_resources=_weighted(strategy.resources),
        fit_shape=strategy.requested_to_capacity_ratio.shape,
        storage_shape=volumes.shape or EMPTIEST,
        ignored_resources=frozenset(fit.ignored_resources),
        ignored_groups=frozenset(fit.ignored_resource_groups),
        balanced_resources=_weighted(balanced.resources),
        hard_pod_affinity_weight=affinity.hard_pod_affinity_weight,
        ignore_preferred_terms_of_existing_pods=affinity.ignore_preferred_terms_of_existing_pods,
    )


def _merged(custom: _PluginSet) -> list[_Plugin]:
    """The default plugins without the disabled ones, with reconfigured ones in their place, then the rest."""
    off = {p.name for p in custom.disabled}
    own = {p.name: p for p in custom.enabled}
    merged: list[_Plugin] = []
    if "*" not in off:
        merged = [own.pop(n, _Plugin(n, _SCORING.get(n, 0))) for n in MULTI_POINT if n not in off]
    return merged + list(own.values())


def _at_point(here: _PluginSet, multi: list[_Plugin], implementing: tuple[str, ...]) -> tuple[str, ...]:
    """The plugins of one extension point, in order, of those that implement it.

    First those of MultiPoint that the point configures again, in the point's order, then the others of
    MultiPoint, then what only the point enables.
    """
    off = {p.name for p in here.disabled}
    own = [p.name for p in here.enabled]
    general = [] if "*" in off else [p.name for p in multi if p.name not in off]
    order = [n for n in own if n in general] + [n for n in general if n not in own]
    order += [n for n in own if n not in general]
    return tuple(n for n in order if n in implementing)


def _unknown(plugins: _Plugins, multi: list[_Plugin]) -> tuple[str, ...]:
    """Enabled plugins that could reject or prefer nodes and are not known."""
    names = dict.fromkeys(p.name for p in multi)
    for point in plugins.__struct_fields__:
        if point != "multi_point":
            names |= dict.fromkeys(p.name for p in getattr(plugins, point).enabled)
    return tuple(n for n in names if n not in SAFE)


def _args(wire: _Profile, name: str, type_: type[A]) -> A:
    found = next((c.args for c in wire.plugin_config if c.name == name), {})
    try:
        return msgspec.convert(found, type_)
    except msgspec.ValidationError as e:
        raise ConfigError(f"pluginConfig of {name}: {e}") from e


def _weighted(resources: tuple[ResourceWeight, ...]) -> tuple[ResourceWeight, ...]:
    """The defaults where none is named; weight 1 where it is left out."""
    return tuple(ResourceWeight(r.name, r.weight or 1) for r in resources) or CPU_AND_MEMORY
