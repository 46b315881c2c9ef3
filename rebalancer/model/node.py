"""Nodes, taints and tolerations, what Karpenter says of its nodes, and classes of devices on nodes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from math import inf
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from rebalancer.model.quantity import resource_list

# Metadata of Kubernetes objects.


OF_ITS_NODE = frozenset({"DaemonSet", "Node"})
"""Kinds of owners whose pods are made for one node alone; a static pod's is its node."""


class OwnerReference(Struct, frozen=True, rename="camel"):
    """A reference to an owner; at most one of an object's owners is its controller."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Struct, frozen=True, rename="camel", eq=False):
    """Object metadata, as far as the tool reads it. Cluster-scoped objects have no namespace."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, if any."""
        return next((o for o in self.owner_references if o.controller), None)


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
NODEPOOL = "karpenter.sh/nodepool"
"""Label of every node that Karpenter manages."""
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the name of a DeviceClass: the extended resource that it stands for without saying so."""
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(Struct, frozen=True, rename="camel", eq=False):
    """A taint of a node. Two are equal whenever they were added."""

    key: str
    effect: TaintEffect
    value: str = ""
    time_added: datetime | UnsetType = UNSET

    def __eq__(self, other: object) -> bool:
        """Whether pods are kept off alike."""
        return isinstance(other, Taint) and str(self) == str(other)

    def __hash__(self) -> int:
        """By meaning."""
        return hash(str(self))

    def __str__(self) -> str:
        """The taint in kubectl's syntax, key=value:effect."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Struct, frozen=True, rename="camel"):
    """A toleration of a pod; an empty key with Exists tolerates every taint, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it tolerates the taint.

        Rule: corev1.Toleration.ToleratesTaint, without the operators Lt and Gt, which are behind a feature
        gate.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


def deleted_after(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> float | None:
    """Seconds until a pod is deleted from a node with these taints; None = never. Rule:
    pkg/controller/tainteviction."""
    least: float | None = None
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        # The first that fits a taint counts, and no other: GetMatchingTolerations.
        first = next((t for t in tolerations if t.tolerates(taint)), None)
        if first is None:
            return 0.0
        if first.toleration_seconds is not None:
            seconds = max(0.0, float(first.toleration_seconds))
            least = seconds if least is None else min(seconds, least)
    return least


class ContainerImage(Struct, frozen=True, rename="camel"):
    """An image that is present on a node: all its names, and its size in bytes."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class Condition(Struct, frozen=True, rename="camel"):
    """A status condition."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class NodeSpec(Struct, frozen=True, rename="camel", eq=False):
    """Node spec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class HandlerFeatures(Struct, frozen=True, rename="camel"):
    """What a runtime handler can do; what it does not name, it cannot."""

    user_namespaces: bool | None = None
    recursive_read_only_mounts: bool | None = None


class RuntimeHandler(Struct, frozen=True):
    """What its container runtime can run containers with; "" is the name of the default."""

    name: str = ""
    features: HandlerFeatures | None = None


class NodeFeatures(Struct, frozen=True, rename="camel"):
    """What its container runtime can do whatever the handler."""

    supplemental_groups_policy: bool | None = None


class NodeInfo(Struct, frozen=True, rename="camel"):
    """What runs on it."""

    kubelet_version: str = ""
    os_image: str = ""


class NodeStatus(Struct, frozen=True, rename="camel", eq=False):
    """Node status; quantities as written. `runtime_handlers`: none where the runtime does not list them."""

    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    runtime_handlers: tuple[RuntimeHandler, ...] = ()
    features: NodeFeatures | None = None
    node_info: NodeInfo | None = None


_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
FAILING_CONDITIONS = frozenset({"NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure"})
"""Conditions of nodes on which nothing starts, or stays: no network, or the kubelet admits few, or evicts."""
LEAVING_CONDITIONS = frozenset(
    {"DrainInProgress", "Drained", "MaintenancePlanned", "MaintenanceInProgress"}
    | {"GracefulNodeShutdownInProgress"}
)
"""Conditions of nodes that are about to go (NodeLifecycleConditions, from Kubernetes 1.37 on)."""
_OWN_CONDITIONS = FAILING_CONDITIONS | LEAVING_CONDITIONS | {"Ready"}


class Node(Struct, frozen=True, rename="camel", eq=False, dict=True):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.metadata.labels

    @property
    def shut_by(self) -> frozenset[Taint]:
        """The taints that a pod has to tolerate to be placed here; a cordon is one, and so is maintenance."""
        shut = self.spec.unschedulable or any(
            c.type in LEAVING_CONDITIONS and c.status == "True" for c in self.status.conditions
        )
        hard = (t for t in self.spec.taints if t.effect != "PreferNoSchedule")
        return frozenset((*hard, _UNSCHEDULABLE) if shut else hard)

    @property
    def ready(self) -> bool:
        """Whether its Ready condition is True; a node that reports no condition counts as ready."""
        return all(c.status == "True" for c in self.status.conditions if c.type == "Ready")

    @cached_property
    def ready_since(self) -> float | None:
        """Since when its Ready condition is True, in epoch seconds; None if it is not, or does not say."""
        times = [
            c.last_transition_time
            for c in self.status.conditions
            if c.type == "Ready" and c.status == "True" and c.last_transition_time is not None
        ]
        return times[0].timestamp() if times else None

    @cached_property
    def allocatable(self) -> dict[str, int]:
        """What all its pods together may request: millicores of cpu, bytes, numbers of devices."""
        return resource_list(self.status.allocatable)


# Nodes that come and go: cordoned or about to be removed, not ready for pods yet, or candidates for
# removal.
#
# The taints, labels and conditions are those of Karpenter (pkg/apis/v1), of cluster-autoscaler (its FAQ,
# utils/taints) and of Kubernetes' cloud providers.

KARPENTER_TAINTS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption"})
"""What Karpenter puts on a node that it is about to take away; the second until its v1."""
LEAVING_TAINTS = KARPENTER_TAINTS | {
    "ToBeDeletedByClusterAutoscaler",
    "node.kubernetes.io/out-of-service",
    "cloud.google.com/impending-node-termination",
    *(f"aws-node-termination-handler/{why}" for why in (
        "spot-itn", "scheduled-maintenance", "asg-lifecycle-termination", "rebalance-recommendation",
    )),
}  # fmt: skip
"""Taints of nodes that are about to go."""
OUTDATED_TAINTS = frozenset(
    {
        "node.cluster.x-k8s.io/outdated-revision",
        "deployment.machine.sapcloud.io/prefer-no-schedule",
        "kops.k8s.io/scheduled-for-update",
    }
)
"""Taints of nodes that a rollout of nodes is still to replace (Cluster API, Gardener, kOps): on all of them
from its beginning, so that a pod that has to go does not go again."""
MACHINE_CONFIGS = (
    "machineconfiguration.openshift.io/currentConfig",
    "machineconfiguration.openshift.io/desiredConfig",
)
"""Annotations of OpenShift's nodes: they differ once it is a node's turn to be drained and set up anew."""
STARTING_TAINTS = frozenset({"karpenter.sh/unregistered", "node.cloudprovider.kubernetes.io/uninitialized"})
"""Taints of nodes that are being set up, …"""
STARTING_PREFIXES = (
    "readiness.k8s.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
"""… and what the keys of others begin with."""
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
"""Annotation of pods and nodes that Karpenter leaves where they are."""
CANDIDATE_TAINT = "DeletionCandidateOfClusterAutoscaler"
"""A node that cluster-autoscaler does not need at present; the effect is PreferNoSchedule."""
_PASSING = LEAVING_TAINTS | OUTDATED_TAINTS | STARTING_TAINTS | {CANDIDATE_TAINT}
_BY_KUBERNETES = "node.kubernetes.io/"
INITIALIZED = "karpenter.sh/initialized"


def is_leaving(node: Node) -> bool:
    """Whether the node is cordoned, drained or about to go: a good place to evict from, none to land on."""
    return node.spec.unschedulable or is_going(node)


_LONGEST_DRAIN = 86_400.0
"""Seconds for which budgets may hold up a drain. A cordon that is older is taken to be forgotten."""


def is_drained(node: Node, now: float) -> bool:
    """Whether the node was cordoned not long ago, in seconds of the epoch: for its pods to go, mostly."""
    added = (t.time_added for t in node.spec.taints if t == _UNSCHEDULABLE)
    return any(isinstance(at, datetime) and now - at.timestamp() < _LONGEST_DRAIN for at in added)


def is_going(node: Node) -> bool:
    """Whether the node is about to go, and not only cordoned: what is on it goes elsewhere."""
    return (
        node.metadata.deletion_timestamp is not None
        or any(t.key in LEAVING_TAINTS for t in node.spec.taints)
        or any(c.type in LEAVING_CONDITIONS and c.status == "True" for c in node.status.conditions)
    )


def is_outdated(node: Node) -> bool:
    """Whether a rollout of nodes is about to replace the node, or to drain it and set it up anew."""
    current, desired = (node.metadata.annotations.get(a) for a in MACHINE_CONFIGS)
    return (desired or current) != current or any(t.key in OUTDATED_TAINTS for t in node.spec.taints)


def ails(node: Node) -> frozenset[str]:
    """The conditions, as type=status, by which no pod starts on the node at present: who tolerates everything
    may land there all the same."""
    return frozenset(
        f"{c.type}={c.status}"
        for c in node.status.conditions
        if (c.status != "True" if c.type == "Ready" else c.type in FAILING_CONDITIONS and c.status == "True")
    )


_GOOD_NEWS = re.compile(r"(?<!Not)(Ready|Available|Healthy|Schedulable)$|(^|/)Sufficient")
_NO_NEWS = re.compile(
    r"(^|/)(Deprecated|Swap$)|(Voter|Installed|Initialized|Enabled|Supported|Completed|Succeeded)$"
)


def is_trouble(condition: Condition) -> bool:
    """Whether a condition of a node that is none of Kubernetes' own says that something is wrong.

    Anybody may add some: node-problem-detector and its kin say True of what is wrong (KernelDeadlock,
    ReadonlyFilesystem, VMEventScheduled), others False of what should be (ContainerRuntimeReady). The name
    shows which, and what is no matter of health (EtcdIsVoter of k3s, Deprecated… of GKE).
    """
    wrong = "False" if _GOOD_NEWS.search(condition.type) else "True"
    own = condition.type in _OWN_CONDITIONS or _NO_NEWS.search(condition.type)
    return condition.status == wrong and not own


def troubles(node: Node) -> frozenset[str]:
    """Conditions, as type=status, by which something is wrong with the node: no taint goes with them."""
    return frozenset(f"{c.type}={c.status}" for c in node.status.conditions if is_trouble(c))


def is_starting(node: Node) -> bool:
    """Whether the node is still being set up: who tolerates everything may land there, and should not."""
    return any(t.key in STARTING_TAINTS or t.key.startswith(STARTING_PREFIXES) for t in node.spec.taints)


def is_uninitialized(node: Node) -> bool:
    """Whether Karpenter has not seen it set up: it labels nodes once their startup taints are gone and their
    devices are there. It may wait for ever for one that no pod there needs."""
    return NODEPOOL in node.labels and node.labels.get(INITIALIZED) != "true"


_SET_UP = 120.0
"""Seconds for which a new node without a pod of a DaemonSet that belongs there is about to get it."""


def set_up_by(node: Node) -> float:
    """Until when pods of DaemonSets may still have to be made on the node, in seconds of the epoch."""
    made, lasts = node.metadata.creation_timestamp, HOUR if is_uninitialized(node) else _SET_UP
    return made.timestamp() + lasts if made is not None else 0.0


class NodeClaimSpec(Struct, frozen=True, rename="camel", eq=False):
    """What is read of what was asked for: durations as Go writes them; "" or Never = none."""

    expire_after: str = ""
    termination_grace_period: str = ""


class NodeClaimStatus(Struct, frozen=True, rename="camel", eq=False):
    """What has become of a claim; `node_name` "" until its node has registered."""

    node_name: str = ""
    conditions: tuple[Condition, ...] = ()


class NodeClaim(Struct, frozen=True, rename="camel", eq=False):
    """Karpenter's object for one of its nodes (karpenter.sh/v1)."""

    metadata: ObjectMeta
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def pool(self) -> str:
        """The name of its NodePool."""
        return self.metadata.labels.get(NODEPOOL, "")

    @property
    def drifted(self) -> float | None:
        """Since when the node is no longer what its NodePool asks for, in epoch seconds; None if it is."""
        times = (c.last_transition_time for c in self.status.conditions if _says(c, "Drifted"))
        return next((t.timestamp() if t is not None else 0.0 for t in times), None)

    @property
    def expires(self) -> float:
        """When Karpenter deletes it whatever is on it, or has begun to, in epoch seconds; infinity if it does
        not."""
        if (deleted := self.metadata.deletion_timestamp) is not None:
            return deleted.timestamp()
        made, parts = self.metadata.creation_timestamp, _GO_DURATION.findall(self.spec.expire_after)
        lasts = sum(float(n) * _GO_UNITS[unit] for n, unit in parts)
        return made.timestamp() + lasts if made is not None and parts else inf


_GO_DURATION = re.compile(r"([0-9]+)(h|m|s)")
_GO_UNITS = {"h": 3600, "m": 60, "s": 1}
HOUR = 3600.0


def _says(condition: Condition, what: str) -> bool:
    return condition.type == what and condition.status == "True"


Outgoing = tuple[str, float, float]
"""A node that Karpenter is about to replace, and from when until when it counts as such."""


def outgoing(
    claims: Iterable[NodeClaim], pinned: Collection[str], kept: Collection[str] = ()
) -> Iterator[Outgoing]:
    """From a node's drift, or the last hour before it expires, until nothing has happened for an hour.

    That is: no claim of its pool was made or deleted. Then a budget of the NodePool, or something else, keeps
    it. So it does after a day: a pool that grows each hour says nothing of nodes that drifted. `pinned`:
    nodes that it does not take although others of the pool go, as they or their pods say do-not-disrupt; a
    grace period of the claim ends that too. `kept`: pools of which no node goes for drift.
    """
    every = tuple(claims)
    active: dict[str, float] = defaultdict(float)
    for c in every:
        for at in (c.metadata.creation_timestamp, c.metadata.deletion_timestamp):
            active[c.pool] = max(active[c.pool], at.timestamp() if at is not None else 0.0)
    for c in every:
        stays = c.status.node_name in pinned and not c.spec.termination_grace_period
        last = 0.0 if stays or c.pool in kept else active[c.pool]
        if (since := c.drifted) is not None:
            yield c.status.node_name, 0.0, min(max(since, last) + HOUR, since + 24 * HOUR)
        if (end := c.expires) < inf:
            yield c.status.node_name, end - HOUR, end + HOUR


class PoolRequirement(Struct, frozen=True, rename="camel", eq=False):
    """What nodes of a pool have for one label."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()

    def allows(self, value: str) -> bool:
        """Whether a node may have this value; what compares numbers is taken to allow it."""
        if self.operator in ("In", "NotIn"):
            return (value in self.values) is (self.operator == "In")
        return self.operator != "DoesNotExist"


class PoolNodeSpec(Struct, frozen=True, rename="camel", eq=False):
    """The nodes that a pool makes."""

    requirements: tuple[PoolRequirement, ...] = ()
    taints: tuple[Taint, ...] = ()


class PoolLabels(Struct, frozen=True, rename="camel", eq=False):
    """Labels that all nodes of a pool get."""

    labels: dict[str, str] = {}


class PoolTemplate(Struct, frozen=True, rename="camel", eq=False):
    """A NodePool's template of its nodes: their labels and their spec."""

    metadata: PoolLabels = PoolLabels()
    spec: PoolNodeSpec = PoolNodeSpec()


class PoolBudget(Struct, frozen=True, rename="camel", eq=False):
    """How many nodes may go at a time, or what share; always, or when `schedule` says; "" = none of it."""

    nodes: str = "10%"
    reasons: tuple[str, ...] = ()
    schedule: str = ""


class PoolDisruption(Struct, frozen=True, rename="camel", eq=False):
    """When nodes may go."""

    budgets: tuple[PoolBudget, ...] = ()


class NodePoolSpec(Struct, frozen=True, rename="camel", eq=False):
    """Node pool spec; `replicas`: of a pool that adds no nodes for pods."""

    template: PoolTemplate = PoolTemplate()
    disruption: PoolDisruption = PoolDisruption()
    limits: dict[str, str | int | float] = {}
    replicas: int | None = None


class NodePoolStatus(Struct, frozen=True, rename="camel", eq=False):
    """What its nodes have in all, and whether Karpenter can use it."""

    resources: dict[str, str | int | float] = {}
    conditions: tuple[Condition, ...] = ()


_BY_PROVIDERS = ("kubernetes.io", "karpenter.sh", "k8s.aws", "azure.com", "amazonaws.com", "google.com")
"""What the domains of labels end in that nodes have without their NodePool."""


class NodePool(Struct, frozen=True, rename="camel", eq=False):
    """From what Karpenter adds nodes for pods that wait (karpenter.sh/v1)."""

    metadata: ObjectMeta
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()

    @property
    def works(self) -> bool:
        """Whether Karpenter, as it says, can add nodes for pods that wait."""
        said = {c.type: c.status for c in self.status.conditions}
        there = self.metadata.deletion_timestamp is None and self.spec.replicas is None
        return there and said.get("Ready") == "True" and said.get("NodeRegistrationHealthy") != "False"

    def names(self, key: str) -> bool:
        """Whether it says what this label of its nodes is, or may be."""
        asked = self.spec.template.spec.requirements
        return key in self.spec.template.metadata.labels or any(r.key == key for r in asked)

    def defines(self, key: str) -> bool:
        """Whether its nodes have this label: what it does not name itself, a provider sets."""
        return self.names(key) or key.partition("/")[0].endswith(_BY_PROVIDERS)

    def values(self, key: str) -> tuple[str, ...]:
        """Those that it names for this label; empty: none, or it does not name them."""
        if (one := self.spec.template.metadata.labels.get(key)) is not None:
            return (one,)
        asked = (r for r in self.spec.template.spec.requirements if r.key == key and r.operator == "In")
        return next((r.values for r in asked), ())

    @property
    def labels(self) -> dict[str, str]:
        """Those that all its nodes have, as far as it says."""
        keys = {r.key for r in self.spec.template.spec.requirements}
        single = {k: v[0] for k in keys if len(v := self.values(k)) == 1}
        return {**self.spec.template.metadata.labels, **single}

    def adds(self, labels: Mapping[str, str]) -> bool:
        """Whether it may add a node with these labels."""
        known, asked = self.spec.template.metadata.labels, self.spec.template.spec.requirements
        return self.spec.replicas is None and all(
            self.defines(key)
            and known.get(key, value) == value
            and all(r.allows(value) for r in asked if r.key == key)
            for key, value in labels.items()
        )

    @property
    def keeps_drifted(self) -> bool:
        """Whether a budget lets no node of it go because it has drifted, whatever the time."""
        return any(
            b.nodes in ("0", "0%") and not b.schedule and (not b.reasons or "Drifted" in b.reasons)
            for b in self.spec.disruption.budgets
        )

    @property
    def left(self) -> dict[str, int]:
        """What its limits leave, by resource; what it has no limit of is not in it."""
        used = resource_list(self.status.resources)
        return {r: n - used.get(r, 0) for r, n in resource_list(self.spec.limits).items()}


class DeviceClassSpec(Struct, frozen=True, rename="camel", eq=False):
    """Device class spec."""

    extended_resource_name: str = ""


class DeviceClass(Struct, frozen=True, rename="camel", eq=False):
    """A class of devices, which may stand for an extended resource (KEP-5004)."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def resources(self) -> tuple[str, ...]:
        """The extended resources that it stands for, one of them by its own name."""
        own = f"{IMPLICIT}{self.metadata.name}"
        return tuple(filter(None, (self.spec.extended_resource_name, own)))


def lasting_spec(node: Node) -> NodeSpec:
    """The node's spec without what tells of its present state: cordons, and taints that come and go."""
    taints = tuple(
        t
        for t in node.spec.taints
        if t.key not in _PASSING and not t.key.startswith((_BY_KUBERNETES, *STARTING_PREFIXES))
    )
    return NodeSpec(taints=taints)
