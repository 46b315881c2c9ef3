"""Owners of pods, and the objects that select, limit or scale them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from rebalancer.model.node import ObjectMeta, OwnerReference, Toleration
from rebalancer.model.pod import PodTemplate
from rebalancer.model.quantity import resource_list
from rebalancer.model.selectors import LabelSelector, Selector

HASH, REVISION = "pod-template-hash", "controller-revision-hash"
"""Labels of pods that tell the revisions of a Deployment, and of a StatefulSet, apart. The templates of a
Deployment's ReplicaSets have the first."""
HASHES = frozenset({HASH, "rollouts-pod-template-hash"})
"""The first, and the one by which an Argo Rollout tells its revisions apart."""
UNASKED = ("failed calling webhook", "Internal error occurred")
"""What the message of a ReplicaFailure has where the API server could not ask a webhook whose failurePolicy
is Fail, or failed itself: new pods of others may be refused as well."""
_MAX_SURGE = _MAX_UNAVAILABLE = "25%"
"""Of a Deployment that says nothing of it: kubernetes pkg/apis/apps/v1/defaults.go."""


class Workload(Struct, frozen=True, eq=False, kw_only=True):
    """A Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet or Job, in one shape.

    Fields that a kind does not have keep their default. `replicas` is spec.replicas (1 if absent), for a Job
    how many pods it wants now. `template` is the template that the next pod is built from; for a StatefulSet
    that of the update revision. `max_unavailable`, `max_surge`: of a Deployment's rolling update, as written;
    of a DaemonSet's the latter.
    `claim_templates`: names of the volumes for which a StatefulSet makes a claim for each pod.
    `progress_deadline`: seconds for which a Deployment may make no progress, 0 = it has no such end.
    `first_ordinal`: of a StatefulSet's pods.

    What of the template decides whether the API server makes a pod of it, and the scheduler does not read:
    `node` where it names one, `priority` and `preemption_policy` where it states them itself (else None, "");
    where a pod is wanted, the `secrets` and `pull_secrets` that it names; and `security`, the part that Pod
    Security reads, as JSON; b"" where no pod is wanted, or where another object makes them.
    `retries`: whether a Job surely makes another pod for each that fails.
    `on_nodes`: on how many nodes a DaemonSet's controller would have a pod, or leave one; None = not said.
    `failing`: the reason of a condition by which its controller says that pods cannot be made
    (ReplicaFailure), or have not become ready in time (ProgressDeadlineExceeded); "" if there is none.
    `failing_since`: since when, as that says.
    `unasked_since`: since when that is because the API server could not ask a webhook, or failed inside.
    """

    kind: str
    metadata: ObjectMeta
    replicas: int = 1
    selector: Selector | None = None
    template: PodTemplate | None = None
    paused: bool = False
    min_ready_seconds: int = 0
    progress_deadline: int = 0
    update_strategy: str = ""
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None
    partition: int = 0
    parallel: bool = False
    claim_templates: frozenset[str] = frozenset()
    first_ordinal: int = 0
    current_revision: str = ""
    update_revision: str = ""
    observed_generation: int = 0
    status_replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    retries: bool = False
    on_nodes: int | None = None
    node: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    secrets: frozenset[str] = frozenset()
    pull_secrets: frozenset[str] = frozenset()
    security: bytes = b""
    failing: str = ""
    failing_since: float | None = None
    unasked_since: float | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.metadata.namespace

    @property
    def key(self) -> str:
        """Kind/namespace/name."""
        return f"{self.kind}/{self.metadata.namespace}/{self.metadata.name}"

    @property
    def owner(self) -> OwnerReference | None:
        """The controller of this object: the Deployment of a ReplicaSet."""
        return self.metadata.controller

    @property
    def annotations_are_copies(self) -> bool:
        """Whether its annotations are copies of a Deployment's, or of an Argo Rollout's. The controller
        leaves them there when its own are removed."""
        return self.owner is not None and self.owner.kind in ("Deployment", "Rollout")

    @property
    def surge(self) -> int:
        """How many pods too many a Deployment allows in a rolling update, rounded up; of a DaemonSet not 0 if
        the next pod comes beside the old one."""
        if self.update_strategy == "Recreate":
            return 0
        usual = 0 if self.kind == "DaemonSet" else _MAX_SURGE
        written = usual if self.max_surge is None else self.max_surge
        if isinstance(written, int):
            return written
        share = written.removesuffix("%")
        return -(-int(share) * self.replicas // 100) if share.isdecimal() else 0

    @property
    def unavailable(self) -> int:
        """How many pods a Deployment lets go in a rolling update before others are there, rounded down; one,
        where that and the surge are 0, as the controller has it."""
        written = _MAX_UNAVAILABLE if self.max_unavailable is None else self.max_unavailable
        if isinstance(written, str):
            share = written.removesuffix("%")
            written = int(share) * self.replicas // 100 if share.isdecimal() else 1
        return written or int(not self.surge)

    @property
    def counted_as(self) -> str:
        """Kind/namespace/name by which its evictions are remembered: of a ReplicaSet those of who owns it, as
        each revision has another one, be that read or not; else its own. What may be read changes from one
        cycle to the next; a reference does not."""
        ref = self.owner if self.kind == "ReplicaSet" else None
        return f"{ref.kind}/{self.namespace}/{ref.name}" if ref is not None else self.key


class PodDisruptionBudgetSpec(Struct, frozen=True, rename="camel", eq=False):
    """Budget spec; an absent selector matches nothing, an empty one every pod of the namespace."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class PodDisruptionBudgetStatus(Struct, frozen=True, rename="camel", eq=False):
    """Budget status as the disruption controller wrote it."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Struct, frozen=True, rename="camel", eq=False):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ServiceSpec(Struct, frozen=True, rename="camel", eq=False):
    """Service spec; an absent or empty selector selects no pods."""

    selector: dict[str, str] = {}
    type: str = ""

    @property
    def sends(self) -> bool:
        """Whether EndpointSlices say to which pods it sends. Rule: endpointslice_controller.go."""
        return bool(self.selector) and self.type != "ExternalName"


class Service(Struct, frozen=True, rename="camel", eq=False):
    """v1 Service."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class Namespace(Struct, frozen=True, rename="camel", eq=False):
    """v1 Namespace."""

    metadata: ObjectMeta


class SecretName(Struct, frozen=True):
    """The name of a Secret."""

    name: str = ""


class ServiceAccount(Struct, frozen=True, rename="camel", eq=False):
    """v1 ServiceAccount, and the Secrets that it lists."""

    metadata: ObjectMeta
    secrets: tuple[SecretName, ...] = ()
    image_pull_secrets: tuple[SecretName, ...] = ()


class PriorityClass(Struct, frozen=True, rename="camel", eq=False):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


UNRANKED = PriorityClass(metadata=ObjectMeta(name=""))
"""What a pod has whose priority no class gives."""


class ScaleTargetRef(Struct, frozen=True, rename="camel", eq=False):
    """What an autoscaler scales."""

    kind: str
    name: str
    api_version: str = ""


class HorizontalPodAutoscalerSpec(Struct, frozen=True, rename="camel", eq=False):
    """Autoscaler spec."""

    scale_target_ref: ScaleTargetRef
    min_replicas: int = 1
    max_replicas: int = 0


class HorizontalPodAutoscaler(Struct, frozen=True, rename="camel", eq=False):
    """autoscaling HorizontalPodAutoscaler."""

    metadata: ObjectMeta
    spec: HorizontalPodAutoscalerSpec


class VerticalUpdatePolicy(Struct, frozen=True, rename="camel", eq=False):
    """When requests are set; "" = the default, which sets them."""

    update_mode: str = ""


class CpuBoost(Struct, frozen=True, rename="camel"):
    """How much more of the cpu a container asks for when it starts: `factor` times as much, or `quantity`
    more."""

    factor: int | None = None
    quantity: str | int | float | None = None


class StartupBoost(Struct, frozen=True, rename="camel"):
    """Startup boost; only of the cpu so far."""

    cpu: CpuBoost | None = None


class ContainerPolicy(Struct, frozen=True, rename="camel", eq=False):
    """What holds for one container, or for all others: "*"."""

    container_name: str = ""
    mode: str = ""
    controlled_values: str = ""
    startup_boost: StartupBoost | None = None


class ResourcePolicy(Struct, frozen=True, rename="camel", eq=False):
    """Policies of containers."""

    container_policies: tuple[ContainerPolicy, ...] = ()

    def of(self, container: str) -> ContainerPolicy:
        """The container's own, else the one for all others."""
        every = {p.container_name: p for p in self.container_policies}
        return every.get(container) or every.get("*") or ContainerPolicy()


class VerticalPodAutoscalerSpec(Struct, frozen=True, rename="camel", eq=False):
    """Vertical autoscaler spec."""

    target_ref: ScaleTargetRef | None = None
    update_policy: VerticalUpdatePolicy = VerticalUpdatePolicy()
    resource_policy: ResourcePolicy = ResourcePolicy()
    startup_boost: StartupBoost = StartupBoost()

    @property
    def boosts(self) -> Iterator[CpuBoost]:
        """Every boost that it names."""
        every = (self.startup_boost, *(p.startup_boost for p in self.resource_policy.container_policies))
        return (b.cpu for b in every if b is not None and b.cpu is not None)


class ContainerRecommendation(Struct, frozen=True, rename="camel", eq=False):
    """What a container should request; quantities as written."""

    container_name: str
    target: dict[str, str | int | float] = {}


class VerticalRecommendation(Struct, frozen=True, rename="camel", eq=False):
    """What the pods should request."""

    container_recommendations: tuple[ContainerRecommendation, ...] = ()


class VerticalPodAutoscalerStatus(Struct, frozen=True, rename="camel", eq=False):
    """Vertical autoscaler status."""

    recommendation: VerticalRecommendation = VerticalRecommendation()


class VerticalPodAutoscaler(Struct, frozen=True, rename="camel", eq=False):
    """autoscaling.k8s.io VerticalPodAutoscaler."""

    metadata: ObjectMeta
    spec: VerticalPodAutoscalerSpec = VerticalPodAutoscalerSpec()
    status: VerticalPodAutoscalerStatus = VerticalPodAutoscalerStatus()


class ScopeSelectorRequirement(Struct, frozen=True, rename="camel", eq=False):
    """One scope of a quota."""

    scope_name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class ScopeSelector(Struct, frozen=True, rename="camel", eq=False):
    """Scopes of a quota."""

    match_expressions: tuple[ScopeSelectorRequirement, ...] = ()


class ResourceQuotaSpec(Struct, frozen=True, rename="camel", eq=False):
    """Quota spec; quantities as written."""

    hard: dict[str, str | int | float] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Struct, frozen=True, rename="camel", eq=False):
    """Quota status; quantities as written."""

    hard: dict[str, str | int | float] = {}
    used: dict[str, str | int | float] = {}


class ResourceQuota(Struct, frozen=True, rename="camel", eq=False):
    """v1 ResourceQuota."""

    metadata: ObjectMeta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(Struct, frozen=True, rename="camel", eq=False):
    """Bounds of what one container, or one pod, may ask for; quantities as written."""

    type: str = ""
    min: dict[str, str | int | float] = {}
    max: dict[str, str | int | float] = {}
    default: dict[str, str | int | float] = {}
    default_request: dict[str, str | int | float] = {}
    max_limit_request_ratio: dict[str, str | int | float] = {}


class LimitRangeSpec(Struct, frozen=True, eq=False):
    """All bounds of one object."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Struct, frozen=True, eq=False):
    """v1 LimitRange."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(Struct, frozen=True, rename="camel"):
    """What each pod of a class takes beside its containers; quantities as written."""

    pod_fixed: dict[str, str | int | float] = {}


class Scheduling(Struct, frozen=True, rename="camel"):
    """What a class adds to its pods."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Struct, frozen=True):
    """node.k8s.io/v1 RuntimeClass."""

    metadata: ObjectMeta
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None

    @property
    def takes(self) -> dict[str, int]:
        """Its overhead, in the scheduler's integers. Raises ValueError for what is no quantity."""
        return resource_list(self.overhead.pod_fixed if self.overhead is not None else {})
