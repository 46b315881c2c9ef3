"""Every setting: what it means, its unit, its default, and why that is the default.

The texts are shown to users: by `rebalancer config show --defaults`, in config/rebalancer.yaml and in the
JSON Schema. A test fails if a setting has none.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_settings import BaseSettings, SettingsConfigDict

from rebalancer.planner.plan import Certainty, NewerVersions, SoftConstraints
from rebalancer.policy.options import Limit
from rebalancer.prevention.scale_in import ScaleInMode
from rebalancer.settings.field_types import (
    CronOrEmpty,
    CronText,
    Duration,
    DurationOrOff,
    ForeignTool,
    NamespaceName,
    NamespaceOrEmpty,
    NumberOrPercent,
    OrNone,
    OwnerKind,
    PodGroupName,
    PodSelector,
    TimeZone,
)

# The base class of groups of settings, and what each setting means.


class Explained(BaseModel):
    """Settings whose meanings stand under them in the source.

    They are read from there when they are shown. pydantic's own way (use_attribute_docstrings) reads them
    whenever a program starts, which takes as long as all other settings together.
    """

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """What each setting means, by the name of its field."""
        (definition,) = ast.parse(inspect.getsource(cls)).body
        assert isinstance(definition, ast.ClassDef)
        return {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in pairwise(definition.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Adds the meanings. A default of no value is the word for it, as in YAML."""
        reference = handler(core_schema)
        properties = handler.resolve_ref_schema(reference)["properties"]
        for shown in properties.values():
            if "default" in shown and shown["default"] is None:
                shown["default"] = "none"
        for name, text in cls.meanings().items():
            properties[cls.model_fields[name].alias or name]["description"] = text
        return reference


class Group(Explained):
    """A group of settings. An unknown key is an error."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
    )


# Settings of who is told of a cycle besides logs and metrics.


def _parse_template(text: str) -> str:
    if text:
        # Only who writes a template pays for the import.
        from jinja2 import TemplateSyntaxError
        from jinja2.sandbox import SandboxedEnvironment

        try:
            SandboxedEnvironment().from_string(text)
        except TemplateSyntaxError as e:
            raise ValueError(f"line {e.lineno} is no valid Jinja template: {e.message}") from e
    return text


Template = Annotated[str, AfterValidator(_parse_template)]
"""A Jinja template, checked."""


class Webhook(Group):
    """A webhook of your own. It gets a POST with a JSON document."""

    url_file: str = ""
    """File that holds the URL, such as a mounted Secret. It is read for each message, because secrets are
    renewed. Empty = nothing is sent."""
    template: Template = ""
    """Jinja template of the body, over the names of the JSON document; `tojson` quotes. Empty = the document
    itself."""


class Slack(Group):
    """A webhook that understands Slack's messages: Slack, Mattermost, Rocket.Chat, and Teams by a bridge."""

    url_file: str = ""
    """File that holds the URL of the incoming webhook. Empty = nothing is sent."""
    template: Template = ""
    """Jinja template of the message's text, over the names of the JSON document. Empty = the verdict, and a
    line for each of the first ten pods."""


class Notifications(Group):
    """Messages about cycles that evicted something, failed, or are stuck; a quiet cycle sends none, and one
    that is stuck as the last one was sends none either. No cycle waits for a receiver."""

    webhook: Webhook = Webhook()
    """A webhook of your own."""
    slack: Slack = Slack()
    """A chat."""
    timeout: Duration = Field(default=5.0, gt=0, le=60)
    """How long one request may take. One that fails is sent twice more."""


# Settings of running it: when, under whose eyes, with which memory.


class MaintenanceWindow(Group):
    """One maintenance window. It begins at each time of `cron`, by the wall clock of `timeZone`, and lasts
    `duration`. allow: evictions are allowed within it. deny: they are forbidden within it."""

    cron: CronText
    """When it begins: minute hour day month weekday, as in crontab. Names such as MON-FRI are allowed; L is
    the last day of a month, SUN#1 its first Sunday."""
    duration: Duration = Field(gt=0, le=604_800)
    """How long it lasts; a week at most."""
    time_zone: TimeZone = "UTC"
    """Zone of the cron expression, for example Europe/Berlin."""
    action: Literal["allow", "deny"] = "allow"
    """allow or deny. A deny window that is open wins. Otherwise, if there are allow windows, one of them must
    be open."""


class Approval(Group):
    """Evictions that wait until somebody approves them. The daemon shows its plan in the ConfigMap
    rebalancer-plan; `rebalancer approve`, or kubectl annotate, approves it. `once` then needs --plan."""

    mode: Literal["none", "required"] = "none"
    """required: no pod is evicted before somebody has approved its eviction."""
    namespaces: tuple[NamespaceName, ...] = ()
    """Only evictions in these namespaces wait, and each of them gets a ConfigMap of its own, for its team.
    Empty = all evictions wait, for whoever may write the ConfigMap in the tool's own namespace."""
    expires: Duration = Field(default=14_400.0, gt=0)
    """How long a plan can be approved, and its approval holds. 4h, because the cluster changes meanwhile."""


class Schedule(Group):
    """When cycles of the daemon start (`rebalancer run`), and when evictions are allowed (`run` and
    `once`)."""

    interval: Duration = Field(default=300.0, gt=0)
    """Time between the starts of two cycles. 5m, because skew is a risk and not an outage, and a cycle should
    see the result of the one before."""
    react: DurationOrOff = 10.0
    """With an interval, a cycle also starts when something has happened that lets it do more than the last
    one: nodes have changed, a rollout or scaling has ended, a budget has opened, there is room for a move
    that found none. At most one in this time. 10s, because a zone that comes back is when spread is worth
    most. off = only by the interval."""
    node_settle: Duration = 10.0
    """How long no node may have changed before such a cycle starts, and for how long all nodes of a domain
    that came back must have been Ready before it is used, as far as a pod can use them (single nodes: where
    it could land on no other). Nodes that stay away are waited for as long as evictions.stabilization. 10s,
    because the nodes of a zone come back one after the other. `once --execute` does not wait."""
    cron: CronOrEmpty = ""
    """When cycles start, as in crontab (minute hour day month weekday), instead of the interval. Empty = by
    interval."""
    time_zone: TimeZone = "UTC"
    """Zone of `cron`, for example Europe/Berlin."""
    jitter: Duration = 0.0
    """Each cycle starts later by a random time up to this, so that many clusters do not work at the same
    time."""
    max_cycle_time: Duration = Field(default=1800.0, gt=0)
    """After a cycle has taken this long, it evicts no more pods. It waits for the replacements that are on
    their way, and the next cycle continues."""
    windows: tuple[MaintenanceWindow, ...] = ()
    """Maintenance windows, checked before every eviction: a list of {cron, duration, timeZone, action}, for
    example {cron: "0 22 * * MON-THU", duration: 8h, timeZone: Europe/Berlin}. Empty = always allowed."""


class Breaker(Group):
    """When nothing is evicted because something is wrong. While too many nodes are NotReady, too many pods
    displaced, too many replacements late or no scheduler works, evictions wait, and go on as soon as that is
    over. The circuit breaker stops them for a while after a cycle in which the API server failed, a second
    replacement did not become Ready, those of three owners in a row went elsewhere, or it is not known
    whether a pod was evicted."""

    max_not_ready_nodes: NumberOrPercent = Field(default="20%", validate_default=True)
    """How many nodes may be NotReady. 20%, which allows one node of a few, but not a zone of three."""
    max_displaced: NumberOrPercent = Field(default="1%", validate_default=True)
    """How many pods may be Pending that evictions of the last hour may have left without a node:
    replacements, and pods that would fit where replacements are now. Others do not count. 1% of the cluster's
    pods, which means three at least."""
    max_late: int = Field(default=3, ge=1)
    """While so many replacements are late, nothing more is evicted, until they are Ready or gone. Late is
    what takes twice as long as the pods of its owner usually do, and 60s at least, or has a container whose
    image cannot be pulled or that cannot be created. 3, because one or two may have reasons of their own."""
    pause: Duration = Field(default=600.0, gt=0)
    """How long the circuit breaker stops evictions. Each further trip in a row doubles it, up to eight times
    this. `once --execute` does not wait."""


class Ledger(Group):
    """What is remembered across cycles and restarts: evictions, where each replacement was expected and where
    it landed, when violations began, and since when pods cannot be replaced. It is kept in a ConfigMap and
    takes 512 KiB at most."""

    mode: Literal["configMap", "memory"] = "configMap"
    """configMap: no pod is evicted unless that can be written to the ledger first. memory: the ledger is kept
    in the process only, so a CronJob forgets everything between two runs."""
    namespace: NamespaceOrEmpty = ""
    """Namespace of the ConfigMap. Empty = the tool's own namespace in a cluster, else that of the context."""
    name: str = Field(default="rebalancer-ledger", min_length=1)
    """Name of the ConfigMap. Each rebalancer of a cluster needs one of its own."""


class Brake(Group):
    """The ConfigMap by which people pause all evictions (`rebalancer pause`). Every installation has it. No
    pod is evicted while it is missing or may not be read."""

    namespace: NamespaceOrEmpty = ""
    """Namespace of the ConfigMap. Empty = that of the ledger."""
    name: str = Field(default="rebalancer-brake", min_length=1)
    """Name of the ConfigMap. Its annotation rebalancer.io/pause pauses evictions: until a time, or with any
    other value until it is removed."""


class LeaderElection(Group):
    """Makes sure that only one of several daemons evicts pods. A single daemon needs it too, because there
    are two while it is being replaced."""

    enabled: bool = True
    """Whether `run` takes part in leader election when it may evict. Set it to false only if something else
    makes sure that one daemon runs."""
    namespace: NamespaceOrEmpty = ""
    """Namespace of the lease. Empty = that of the ledger."""
    name: str = Field(default="rebalancer", min_length=1)
    """Name of the lease. Each rebalancer of a cluster needs one of its own."""
    lease_duration: Duration = 15.0
    """How long other instances wait after the leader's last update before they take over."""
    renew_deadline: Duration = 10.0
    """How long a leader keeps acting after its last confirmed update; shorter than leaseDuration."""
    retry_period: Duration = 2.0
    """Time between two attempts to renew or to acquire the lease."""

    @model_validator(mode="after")
    def _in_order(self) -> LeaderElection:
        # An eviction may leave a second after the last look at the lease, when nobody else may lead yet.
        latest = min(0.8 * self.lease_duration, self.lease_duration - 1)
        if not 0 < self.retry_period * 1.2 < self.renew_deadline <= latest:
            raise ValueError(
                "retryPeriod, renewDeadline and leaseDuration must each be clearly longer than the one "
                "before, renewDeadline at most 0.8 of leaseDuration and a second less than it"
            )
        return self


class Health(Group):
    """The HTTP server for probes and metrics of the daemon: /healthz, /readyz, /metrics."""

    address: str = Field(default="auto", pattern=r"^(auto|none|.*:\d{1,5})$")
    """host:port to listen on; :8080 means port 8080 on all addresses. auto = :8080 in a cluster and no server
    elsewhere. none = no server."""
    hung_after: Duration = Field(default=600.0, gt=0)
    """/healthz fails when the loop has made no progress for this long. 10m, because it may take some minutes
    to find out what became of an eviction whose answer was lost."""


# Settings of what keeps spread from breaking.


class Prevention(Group):
    """Keeps spread from breaking, without evictions. Pods of excluded namespaces are left alone here too."""

    scale_in: ScaleInMode = "off"
    """Whether the deletion costs of pods are set such that a ReplicaSet that shrinks keeps its spread. off:
    nowhere. annotated: where a Deployment, a ReplicaSet or a namespace has the annotation
    rebalancer.io/scale-in: "spread". all: everywhere but where it says "off". off, because it changes pods,
    for which it needs a right of its own."""
    dry_run: bool = False
    """true: the costs are shown and not written. The flag --dry-run sets it to true for one run."""
    beside_karpenter: bool = True
    """Whether costs are set although Karpenter runs in the cluster, which goes by them too when it chooses
    nodes to take away. true, because to it these costs are a tie-break: a pod's is 1 + cost / 2^27."""


_FOREIGN: tuple[ForeignTool, ...] = ("descheduler", "karpenter", "cluster-autoscaler")


class Namespaces(Group):
    """Namespaces by name."""

    include: tuple[NamespaceName, ...] = ()
    """Only pods of these namespaces are evicted; empty = pods of all. Pods elsewhere still count for skew."""
    exclude: tuple[NamespaceName, ...] = ()
    """Pods of these namespaces are never evicted, even if they are included above. kube-system is excluded
    as well, whatever stands here."""
    evict_from_kube_system: bool = False
    """Whether pods of kube-system may be evicted. false, because add-ons of the control plane run there, and
    an eviction is seldom worth the risk."""


class Scope(Group):
    """Whose pods may be evicted. Every pod counts for skew, whatever the scope."""

    mode: Literal["opt-out", "opt-in"] = "opt-out"
    """opt-out: every workload that is not excluded. opt-in: only namespaces, workloads or pods with the
    annotation rebalancer.io/evict: "true"."""
    namespaces: Namespaces = Namespaces()
    """Namespaces by name."""
    read_namespaces: tuple[NamespaceName, ...] = ()
    """The only namespaces that are read: for an installation without rights in others. Pods elsewhere then do
    not count, and the room that they take is not known, so no move is certain. Empty = all, because
    everything that the scheduler counts should be seen."""
    namespace_selector: OrNone[PodSelector] = None
    """Only namespaces whose labels match (matchLabels, matchExpressions); none = all."""
    label_selector: OrNone[PodSelector] = None
    """Only pods whose labels match; none = all."""
    owner_kinds_exclude: tuple[OwnerKind, ...] = ()
    """Pods of owners of these kinds are not evicted, for example StatefulSet or Deployment. Empty, because a
    constraint of a StatefulSet matters as much as that of a Deployment."""
    gangs_allow: tuple[PodGroupName, ...] = ()
    """Names of groups (PodGroup, Kueue, Volcano, coscheduling, LeaderWorkerSet, JobSet, Ray) whose pods may
    be evicted one by one. Empty, because evicting one member often restarts all."""
    owner_kinds_allow: tuple[OwnerKind, ...] = ()
    """Kinds of custom controllers that recreate a deleted pod from the pod's own spec, for example CloneSet.
    Empty, because an unknown controller may do anything. They are not read: annotate their pods, or the
    namespace, to keep evictions away."""
    own_namespace: NamespaceOrEmpty = ""
    """The namespace in which the tool itself runs. Pods there are never evicted. Empty = the namespace of its
    service account, if it runs in a cluster."""


class Policy(Group):
    """What protects a pod. Names and defaults are those of the descheduler where it has them. Static pods,
    pods of DaemonSets and Jobs, and pods without an owner are never evicted, because nothing would recreate
    them on another node."""

    evict_local_storage_pods: bool = False
    """Whether pods with hostPath, emptyDir or ephemeral volumes in their owner's template may be evicted.
    false, because their data would be lost or stay on the old node. A hostPath that is only read counts, as
    it does for the descheduler and cluster-autoscaler."""
    evict_system_critical_pods: bool = False
    """Whether pods of priority system-cluster-critical and above may be evicted. false, because the cluster
    may depend on each of them."""
    protect_pvc_pods: bool = False
    """Whether pods that mount a PersistentVolumeClaim are protected. false, because a move is planned only to
    nodes that can reach the volume."""
    protect_resource_claim_pods: bool = True
    """Whether pods with resource claims (DRA) are protected. true, because it is not certain that another
    node has a free device."""
    protect_pods_without_pdb: bool = False
    """Whether pods that no PodDisruptionBudget covers are protected. false, because inFlightPerOwner bounds
    how many pods of one workload are away together. Set it to true if a missing budget means "ask first"."""
    protect_paused: bool = True
    """Whether pods of paused Deployments are protected. true, because somebody paused them for a reason."""
    priority_threshold: OrNone[int] = None
    """Pods of this priority and above are not evicted; none = no threshold."""
    priority_threshold_class: str = ""
    """The same as the name of a PriorityClass; empty = no threshold. If both are set, the lower one counts.
    If the class does not exist, no pod is evicted, because it is not known which pods it would protect."""
    min_replicas: int = Field(default=0, ge=0)
    """Pods of owners with fewer replicas than this are not evicted. 0, because two pods in one zone are lost
    together just as twenty are."""
    min_pod_age: Duration = 0.0
    """Pods younger than this (a duration such as 5m) are not evicted. 0s = the age does not matter."""
    honor_annotations_of: tuple[ForeignTool, ...] = _FOREIGN
    """Other tools whose "do not evict" annotations are obeyed. All of them, because a team that says no to
    one tool means no."""


class Evictions(Group):
    """Whether pods are evicted, and how many of them in one cycle, an hour and a day at most. A cap is a
    number of pods, or a percentage of the pods that it is about, rounded up; none = no cap beyond
    PodDisruptionBudgets. Caps bound what is carried out: the plan stays whole and marks the moves that wait
    for a later cycle."""

    enabled: bool = False
    """Whether pods are evicted at all. false: plans are made and reported, and no pod goes. The flag
    --execute sets it to true for one run."""
    max_total: OrNone[NumberOrPercent] = Field(default="50", validate_default=True)
    """In total; a percentage is of all pods that run in the cluster. 50, because so many can be looked over
    by a person, and take a minute at least at perSecond: a mistake costs no more before somebody notices."""
    max_per_node: OrNone[NumberOrPercent] = None
    """From one node; a percentage is of the node's pods."""
    max_per_namespace: OrNone[NumberOrPercent] = None
    """From one namespace; a percentage is of its pods."""
    max_per_owner: OrNone[NumberOrPercent] = None
    """From one owner, such as a Deployment; a percentage is of its replicas."""
    max_per_domain: OrNone[NumberOrPercent] = None
    """From one domain, such as a zone, whichever constraint its pods go for; a percentage is of its pods."""
    max_total_per_hour: OrNone[NumberOrPercent] = None
    """In total within an hour, over all cycles; a percentage is of all pods that run in the cluster. The
    ledger counts them across restarts."""
    max_per_owner_per_day: OrNone[NumberOrPercent] = Field(default="100%", validate_default=True)
    """From one owner within 24 hours, over all cycles; a percentage is of its replicas. 100%, because putting
    a workload in order takes fewer (a third where one of three zones is back), and what keeps undoing
    evictions must not go on day and night. `once --execute` keeps to it, too."""
    in_flight_per_owner: NumberOrPercent = Field(
        default_factory=lambda: Limit(percent=10), json_schema_extra={"default": "10%"}
    )
    """How many pods of one owner may be away together, from the eviction of the first to the readiness of the
    last replacement; a percentage is of its replicas, rounded down. At least one always may. 10%, because a
    workload with or without a budget should not feel it. Budgets and a Deployment's maxUnavailable (0 counts
    as one) hold too. Pods that are unavailable already count: a Ready pod stays while there are as many as
    maxUnavailable allows, or without a Deployment this setting, and so does the last Ready one. A single
    replica that is Ready may go: policy.minReplicas: 2 keeps it."""
    method: Literal["evict", "replaceFirst", "auto"] = "evict"
    """How a pod is moved. evict: by the Eviction API; its owner then makes another. replaceFirst: its
    ReplicaSet lets go of it and makes another, and it is evicted when that one is available; pods whose
    workload does not bear that are evicted. auto: replaceFirst where a budget allows no disruption, else
    evict. A Deployment's annotation rebalancer.io/method has precedence. evict, because replaceFirst needs
    the right to patch pods."""
    max_released: int = Field(default=5, ge=1)
    """How many pods may be released by replaceFirst and not yet be evicted, in the whole cluster; those of
    another installation count in their own namespace. 5, because each of them runs beside its replacement and
    takes room."""
    into_new_nodes: bool = False
    """Whether a pod that is replaced first may wait for a node that Karpenter has yet to add, where no
    present node would take its replacement: one pod at a time, for readyTimeout at most. With method auto or
    replaceFirst. false, because nodes cost money."""
    per_second: float = Field(default=1.0, ge=0)
    """How many pods are evicted per second. 1.0, because people can follow that, and faster gains
    nothing. 0 = as fast as the API server answers."""
    canary: int = Field(default=5, ge=0)
    """Until this many evictions in a row have gone as predicted, only one replacement is on its way at a
    time, and after the first success two. If predictions are wrong in this cluster, one pod is lost and not
    fifty. 0 = no such limit. `once --execute` has none either, because somebody is watching."""
    stabilization: Duration = 180.0
    """How long a violation must last before pods are evicted because of it, so that rollouts and autoscalers
    settle first. `run` follows it between cycles; `once`, and a `run` that has just begun, go by the ledger
    and by the age of the youngest pod. A violation that `run` saw come with the nodes of a domain need not
    last, once these have been Ready for schedule.nodeSettle. `once --execute` does not wait."""
    out_wait: Duration = 21_600.0
    """How long moves wait that a domain (a zone) which is out could change: one whose last open node was
    cordoned or tainted. After that it counts as the normal state. 0s = nothing waits for it."""
    min_worth: float = Field(default=0.0, ge=0, le=1)
    """How many pods fewer have to be lost with the fullest domain, for each pod of a workload that is
    evicted. [4,4,1] takes two evictions to save one pod: 0.5. A repair that is worth less is left out as a
    whole, and its excess stays. 0, because a constraint is a wish by itself."""
    cool_down: Duration = 180.0
    """How long no cycle evicts a pod of an owner after the last one did. The ledger keeps it across restarts.
    `once --execute` does not wait."""
    retry_after: Duration = 21_600.0
    """A move that did not help is not tried again while nodes and workload are as they were, though nodes may
    have been away meanwhile; but for this time only, because something that the tool does not see may have
    changed. Nor is a pod whose eviction a webhook refused, until its labels, annotations or phase have
    changed."""
    max_returns: int = Field(default=2, ge=0)
    """An owner whose violation came back this many times within retryAfter, although its evictions went as
    predicted and their nodes are still there, is left alone: something else undoes them. The ledger has room
    for some hundred evictions, 1,000 at most; of more, those that went well are forgotten first. 0 = no
    limit."""
    grace_period: OrNone[Duration] = Field(default=None, ge=1, multiple_of=1)
    """Grace period of the evicted pods, in whole seconds, and one at least: with 0 the API server forgets a
    pod that still runs. none = each pod's own, which its authors know best."""
    ready_timeout: Duration = Field(default=300.0, gt=0)
    """How long a replacement may take to become Ready, in addition to the evicted pod's grace period, before
    it counts as failed."""
    pending_timeout: Duration = Field(default=60.0, gt=0)
    """How long a replacement may stay unschedulable before it counts as failed."""
    beside_descheduler: Literal["refuse", "evict"] = "refuse"
    """Whether pods are evicted while a descheduler runs in the cluster. refuse, because the descheduler may
    spread pods as well, and two that do undo each other's work. Set it to evict once the descheduler's
    RemovePodsViolatingTopologySpreadConstraint is off."""
    events: Literal["all", "evictions", "none"] = "all"
    """Which events (events.k8s.io) are written on evicted pods and their owners. evictions: none about
    failures."""


class Planner(Group):
    """How moves are chosen."""

    certainty: Certainty = "certain"
    """certain: a move is planned only if it helps on every node that the scheduler's filters leave for the
    replacement. likely: it is enough if it helps on the best-scored nodes. certain, because otherwise a
    replacement may now and then land where the evicted pod was."""
    soft_constraints: SoftConstraints = "ignore"
    """ignore: constraints with ScheduleAnyway are neither listed nor acted on. predicted: they are acted on
    after the hard ones, and a pod is moved if the simulated scores put its replacement into a better domain.
    ignore, because the scheduler may place a pod against a soft constraint at any time."""
    newer_versions: NewerVersions = "likely"
    """What is done on a cluster newer than the last release whose scheduler rules are known.

    likely: moves are planned by the last known rules and marked likely, unless the scheduler's own decisions
    have shown them, and the canary lasts until a hundred decisions in a row were as predicted. refuse: no pod
    is evicted. likely, because most releases change little of the scheduler.
    """
    scheduler_config: str = ""
    """File with the KubeSchedulerConfiguration of the cluster's scheduler: profiles, plugins, weights,
    default constraints. Empty = kube-scheduler's own defaults, with which most clusters run."""
    effort: int = Field(default=2000, ge=1)
    """How many candidate moves are tried for constraints that share pods before the search takes the best
    plan so far. A count and not a time, so that the same cluster always gives the same plan."""


class Otlp(Group):
    """Where traces and metrics are sent: an OpenTelemetry collector, or a backend that accepts OTLP over
    HTTP. The standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, …) have precedence over
    this group. Put credentials into OTEL_EXPORTER_OTLP_HEADERS, which is never printed."""

    endpoint: str = ""
    """Base URL such as http://collector:4318. Empty = nothing is sent, unless the standard variables name an
    endpoint."""
    traces: bool = True
    """Whether traces are sent there, one for each cycle."""
    metrics: bool = False
    """Whether metrics are sent there. false, because Prometheus scrapes the daemon. Set it to true for a
    CronJob, which cannot be scraped."""
    timeout: Duration = 2.0
    """How long one export may take. 2s, because a collector is usually near. No eviction waits for it, and
    the end of the process waits 2.5 s at most."""


class Telemetry(Group):
    """Logs, traces and metrics of the tool itself."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest severity that is logged."""
    log_format: Literal["console", "json"] = "console"
    """console for people, json for log collectors. Logs go to standard error."""
    otlp: Otlp = Otlp()
    """The OpenTelemetry collector."""
    trace_sampling: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the cycles that are traced, from 0 to 1. 1.0, because a cycle has only some dozens of spans
    and comes every few minutes."""
    metrics_file: str = ""
    """File to which the metrics are written after each cycle, in Prometheus' text format. The node exporter's
    textfile collector reads it if its name ends in .prom. Empty = no file."""
    constraint_series: int = Field(default=100, ge=0, le=10_000)
    """How many constraints have metrics of their own (skew and excess by workload), the worst ones first.
    100, because a large cluster has thousands of constraints, and each takes two series. 0 = none."""
    cluster_name: str = ""
    """k8s.cluster.name in traces and metrics. Empty = the kubeconfig's context. In a cluster there is none,
    because a pod cannot find out the cluster's name."""


class Settings(Explained, BaseSettings):
    """Configuration of the rebalancer. Sources: file < environment (REBALANCER_POLICY__MIN_POD_AGE=5m) <
    flags."""

    model_config = SettingsConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    scope: Scope = Scope()
    policy: Policy = Policy()
    evictions: Evictions = Evictions()
    planner: Planner = Planner()
    approval: Approval = Approval()
    prevention: Prevention = Prevention()
    schedule: Schedule = Schedule()
    breaker: Breaker = Breaker()
    brake: Brake = Brake()
    ledger: Ledger = Ledger()
    leader_election: LeaderElection = LeaderElection()
    health: Health = Health()
    telemetry: Telemetry = Telemetry()
    notifications: Notifications = Notifications()

    @classmethod
    def defaults(cls) -> Settings:
        """The defaults, without reading the environment."""
        return cls.model_construct()

    def plain(self) -> dict[str, Any]:
        """The settings as plain values, as they are written in YAML and JSON."""
        return self.model_dump(mode="json", by_alias=True)
