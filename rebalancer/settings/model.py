"""Every setting: what it means, its unit, its default, and why that is the default.

The descriptions are what `rebalancer config show --defaults`, config/rebalancer.yaml and the JSON Schema
say; a setting without one fails the tests.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings, SettingsConfigDict

from rebalancer.planner.options import Certainty, SoftConstraints
from rebalancer.settings.group import Group
from rebalancer.settings.operation import Breaker, Health, LeaderElection, Ledger, Schedule
from rebalancer.settings.types import Duration, ForeignTool, NumberOrPercent, PodSelector

_FOREIGN: tuple[ForeignTool, ...] = ("descheduler", "karpenter", "cluster-autoscaler")


class Namespaces(Group):
    """Namespaces by name."""

    include: tuple[str, ...] = ()
    """Only pods of these namespaces are evicted; empty = of all. Pods elsewhere still count for skew."""
    exclude: tuple[str, ...] = ("kube-system",)
    """Pods of these are never evicted, even if included above. The control plane's add-ons live in
    kube-system, and an eviction there is seldom worth the risk."""


class Scope(Group):
    """Whose pods may be evicted. Every pod counts for skew, whatever the scope."""

    mode: Literal["opt-out", "opt-in"] = "opt-out"
    """opt-out: every workload that is not excluded. opt-in: only namespaces, workloads or pods whose
    annotation asks for it."""
    namespaces: Namespaces = Namespaces()
    """Namespaces by name."""
    namespace_selector: PodSelector | None = None
    """Only namespaces whose labels match (matchLabels, matchExpressions); null = all."""
    label_selector: PodSelector | None = None
    """Only pods whose labels match; null = all."""
    owner_kinds_exclude: tuple[str, ...] = ()
    """Pods that such owners control are not evicted, for example StatefulSet. Empty, because a StatefulSet's
    constraint is as good as a Deployment's."""
    owner_kinds_allow: tuple[str, ...] = ()
    """Kinds of custom controllers that are trusted to recreate a deleted pod from the pod's own spec, for
    example CloneSet. Empty, because a controller that the tool does not know may do anything."""
    own_namespace: str = ""
    """The namespace that the tool itself runs in: its pods are never evicted. Empty = found out when running
    in a cluster."""


class Policy(Group):
    """What protects a pod. Words and defaults are the descheduler's where it has them. Pods of DaemonSets and
    Jobs, bare and static pods are never evicted: nothing would put them elsewhere."""

    evict_local_storage_pods: bool = False
    """Whether pods with hostPath or emptyDir volumes may be evicted; what they hold is lost or stays behind,
    hence false."""
    evict_system_critical_pods: bool = False
    """Whether pods of priority system-cluster-critical and above may be evicted; false, because the cluster
    may depend on each."""
    protect_pvc_pods: bool = False
    """Whether pods that mount a PersistentVolumeClaim are kept. false, because a move is planned only to
    nodes that reach the volume."""
    protect_resource_claim_pods: bool = True
    """Whether pods with resource claims (DRA) are kept; true, because whether a device is free elsewhere
    cannot be told for certain."""
    protect_pods_without_pdb: bool = False
    """Whether pods that no PodDisruptionBudget covers are kept. false, because a plan keeps replicas apart
    in waves; set it where a missing budget means "ask first"."""
    protect_paused: bool = True
    """Whether pods of paused Deployments are kept; true, because somebody paused them for a reason."""
    priority_threshold: int | None = None
    """Pods of this priority and above are not evicted; null = no threshold."""
    priority_threshold_class: str = ""
    """The same by the name of a PriorityClass; empty = no threshold. The lower of both counts. If there is no
    such class, nobody is evicted: whom it would protect is not known."""
    min_replicas: int = Field(default=0, ge=0)
    """Owners with fewer replicas than this are left alone. 0 = none: a constraint over two pods is broken by
    the same accident."""
    min_pod_age: Duration = 0.0
    """Pods younger than this (a duration such as 5m) are not evicted; 0s = age does not matter."""
    honor_annotations_of: tuple[ForeignTool, ...] = _FOREIGN
    """Other tools whose "do not evict" annotations are obeyed; all, because a team that said no to one of
    them means no."""


class Evictions(Group):
    """Whether anything is evicted, and at most how much in one cycle. A cap is a number of pods or a
    percentage of those it is about; null = no cap beyond PodDisruptionBudgets."""

    enabled: bool = False
    """Whether pods are evicted at all. false: plans are made and reported, nothing is changed. The flag
    --execute says the same for one run."""
    max_total: NumberOrPercent | None = None
    """In all; a percentage is of all pods that run in the cluster."""
    max_per_node: NumberOrPercent | None = None
    """From one node; a percentage is of the node's pods."""
    max_per_namespace: NumberOrPercent | None = None
    """From one namespace; a percentage is of its pods."""
    max_per_owner: NumberOrPercent | None = None
    """From one owner, such as a Deployment; a percentage is of its replicas."""
    max_per_domain: NumberOrPercent | None = None
    """From one domain, such as a zone; a percentage is of its pods."""
    per_second: float = Field(default=1.0, ge=0)
    """How fast pods of one wave are evicted. 1.0: nothing is gained by more, and people can follow it. 0 = as
    fast as the API server answers."""
    canary: int = Field(default=5, ge=0)
    """One eviction a cycle until so many in a row have gone as predicted, so that a cluster in which the
    predictions do not hold loses one pod and not fifty. 0 = none. `once --execute`, at which somebody looks
    on, does without."""
    stabilization: Duration = 180.0
    """How long a violation must have lasted before it is acted on, so that rollouts and autoscalers settle
    first; known from the ledger, else from the age of the youngest pod. `once --execute` does not wait."""
    cool_down: Duration = 180.0
    """How long an owner rests after an eviction of its pods, over cycles and restarts. `once --execute` does
    not wait."""
    retry_after: Duration = 21_600.0
    """A move that did not help is not tried again until nodes or workload have changed, or until this has
    passed, for what cannot be seen may have changed too."""
    max_returns: int = Field(default=2, ge=0)
    """An owner whose violation came back so many times within retryAfter, although its evictions went as
    predicted, is left alone: something else undoes them. 0 = no limit."""
    grace_period: Duration | None = None
    """Grace period of the evicted pods, in whole seconds; null = each pod's own, as its authors know best."""
    ready_timeout: Duration = Field(default=300.0, gt=0)
    """How long a replacement may take to become Ready, beyond its victim's grace period, before it counts as
    failed."""
    pending_timeout: Duration = Field(default=60.0, gt=0)
    """How long a replacement may wait for a node in vain before it counts as failed."""
    events: Literal["all", "evictions", "none"] = "all"
    """Events (events.k8s.io) on evicted pods and their owners. evictions: without those about failures."""


class Planner(Group):
    """How moves are chosen."""

    certainty: Certainty = "certain"
    """certain: a move is planned only if every node that the scheduler's filters leave for the replacement
    helps. likely: it is enough that the best-scored nodes do; then a pod may now and then come back to where
    it was, hence certain."""
    soft_constraints: SoftConstraints = "ignore"
    """ignore: constraints with ScheduleAnyway are neither listed nor acted on. predicted: they are in scope,
    after the hard ones, and pods are moved where the simulated scores put the replacement in a better domain.
    ignore, because the scheduler may always overrule them."""
    scheduler_config: str = ""
    """File with the KubeSchedulerConfiguration of the cluster's scheduler: profiles, plugins, weights,
    default constraints. Empty = kube-scheduler's own defaults, which is what most clusters run."""
    effort: int = Field(default=2000, ge=1)
    """How many candidate moves are tried for one group of connected constraints before the search settles
    for less. A count and not a time, so that the same cluster always gives the same plan."""


class Otlp(Group):
    """Where traces and metrics are sent: an OpenTelemetry collector, or a backend that speaks OTLP over HTTP.
    The standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, …) win over this group;
    credentials belong into OTEL_EXPORTER_OTLP_HEADERS, which is shown nowhere."""

    endpoint: str = ""
    """Base URL such as http://collector:4318. Empty = nothing is sent, unless the standard variables name a
    receiver."""
    traces: bool = True
    """Whether traces are sent there, one a cycle."""
    metrics: bool = False
    """Whether metrics are sent there. false, because the daemon is scraped; a CronJob has nothing to scrape
    and should push."""
    timeout: Duration = 2.0
    """For one export. 2s: a collector is near. Whatever it does, no eviction waits for it, and the end of the
    process for 2.5 s at most."""


class Telemetry(Group):
    """What the tool tells of itself."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""
    log_format: Literal["console", "json"] = "console"
    """console for people, json for log collectors. Logs go to standard error."""
    otlp: Otlp = Otlp()
    """The OpenTelemetry collector."""
    trace_sampling: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the cycles that are traced, 0 to 1. 1.0: a cycle is some dozens of spans every few minutes."""
    metrics_file: str = ""
    """File that the metrics are written to after each cycle, in Prometheus' text format, for the node
    exporter's textfile collector; it must end in .prom there. Empty = none."""
    constraint_series: int = Field(default=0, ge=0, le=10_000)
    """How many constraints, worst first, have metrics of their own (skew and excess by workload). 0: a
    large cluster has thousands, and each costs two series."""
    cluster_name: str = ""
    """k8s.cluster.name of traces and metrics. Empty = the kubeconfig's context; nothing in a cluster, whose
    own name is not to be found out."""


class Settings(BaseSettings):
    """Configuration of the rebalancer. Sources: file < environment (REBALANCER_POLICY__MIN_POD_AGE=5m) <
    flags."""

    model_config = SettingsConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    scope: Scope = Scope()
    policy: Policy = Policy()
    evictions: Evictions = Evictions()
    planner: Planner = Planner()
    schedule: Schedule = Schedule()
    breaker: Breaker = Breaker()
    ledger: Ledger = Ledger()
    leader_election: LeaderElection = LeaderElection()
    health: Health = Health()
    telemetry: Telemetry = Telemetry()

    @classmethod
    def defaults(cls) -> Settings:
        """The defaults, whatever the environment says."""
        return cls.model_construct()

    def plain(self) -> dict[str, Any]:
        """The settings as YAML and JSON write them."""
        return self.model_dump(mode="json", by_alias=True)
