"""Pods, and the part of them that identical pods share.

A cluster of 150,000 pods has a few thousand templates. `PodTemplate` holds everything that the scheduler
reads of a pod except where it is, and pods that agree on all of it share one object. The decoder interns
templates and they compare by identity, so they are cheap keys for caches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field, json, structs

from rebalancer.model.node import OwnerReference, Toleration
from rebalancer.model.quantity import bounded
from rebalancer.model.selectors import LabelSelector, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
InclusionPolicy = Literal["Honor", "Ignore"]
WhenUnsatisfiable = Literal["DoNotSchedule", "ScheduleAnyway"]


class TopologySpreadConstraint(Struct, frozen=True, rename="camel", eq=False):
    """A constraint as written in the pod; `spread.constraint.resolve` gives it a meaning."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: InclusionPolicy = "Honor"
    node_taints_policy: InclusionPolicy = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class PreferredSchedulingTerm(Struct, frozen=True, rename="camel", eq=False):
    """A weighted node preference."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Struct, frozen=True, rename="camel", eq=False):
    """Node affinity; `required` and `preferred` are the API's …DuringSchedulingIgnoredDuringExecution."""

    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )

    @property
    def unread(self) -> tuple[NodeSelectorRequirement, ...]:
        """What the scheduler cannot read of the preferred terms: it scores no node then, and places the pod
        only where a single one is open.

        Rule: component-helpers' nodeaffinity.go, ``NewPreferredSchedulingTerms``.
        """
        return tuple(r for t in self.preferred if t.weight for r in t.preference.unread)


class PodAffinityTerm(Struct, frozen=True, rename="camel", eq=False):
    """A term of inter-pod (anti-)affinity."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Struct, frozen=True, rename="camel", eq=False):
    """A weighted term."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Struct, frozen=True, rename="camel", eq=False):
    """Inter-pod affinity, or anti-affinity: required and preferred terms."""

    required: tuple[PodAffinityTerm, ...] = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Struct, frozen=True, rename="camel", eq=False):
    """All affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class HostPort(Struct, frozen=True, order=True):
    """A port that a container takes on its node; the address "0.0.0.0" conflicts with every other."""

    port: int
    protocol: str = "TCP"
    host_ip: str = "0.0.0.0"


class Container(Struct, frozen=True, eq=False):
    """A container; its requests and limits are in the scheduler's integers.

    `sidecar`: an init container with restartPolicy Always. `pull`: whether its image is pulled, as written.
    `security`: what Pod Security reads of it, as JSON.
    """

    name: str
    image: str = ""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    host_ports: tuple[HostPort, ...] = ()
    sidecar: bool = False
    pull: str = ""
    security: bytes = b"{}"


DISKS_IN_PODS = frozenset(
    [
        "awsElasticBlockStore",
        "azureDisk",
        "cinder",
        "fc",
        "flexVolume",
        "gcePersistentDisk",
        "iscsi",
        "portworxVolume",
        "rbd",
        "vsphereVolume",
    ]
)
"""Kinds of volumes that are a disk which is named in the pod itself."""


class Volume(Struct, frozen=True):
    """A volume of a pod, as far as it matters to scheduling. `kind` is the name of its field in the API; "" =
    one that only Pod Security minds, such as nfs.

    `claim` is the name of the PersistentVolumeClaim. For `ephemeral` it is that of the claim made for it,
    <pod>-<volume>, or "" in the template of a pod that does not exist yet. `device` identifies a legacy
    in-tree disk: the kind, and what names the disk, if the scheduler asks. `read_only` is its mode.
    `owner` is the uid of the pod that the claim of an `ephemeral` volume must belong to, "" where it is not
    known. `anew`: it is a replacement's, whose claim will be made like this one, without a volume. `image` is
    the reference of an `image` volume, `local` whether it is never pulled.
    """

    name: str
    kind: str
    claim: str = ""
    driver: str = ""
    device: tuple[str, ...] = ()
    read_only: bool = False
    owner: str = ""
    anew: bool = False
    image: str = ""
    local: bool = False


class Taken(Struct, frozen=True):
    """What a pod takes of its node: effective requests; with the scheduler's defaults, for scores."""

    requests: dict[str, int]
    nonzero_cpu: int
    nonzero_memory: int


class HeldRequests(Struct, frozen=True):
    """What a pod takes by its status, as releases of the scheduler reckon it (`model/decode/pods.py`).

    `by_container`: from 1.33 on; `with_whole`: from 1.36 on; `by_sums`: from 1.37 on. `waits`: a resize waits
    for room on the node.
    """

    by_container: Taken
    with_whole: Taken
    by_sums: Taken
    waits: bool = False


_LWS = "leaderworkerset.sigs.k8s.io/"


class PodTemplate(Struct, frozen=True, eq=False):
    """All that the scheduler reads of a pod except where it is. Equal templates of one decoder are one
    object.

    `requests` are the pod's effective requests, which include init containers, sidecars, overhead and
    pod-level resources: millicores of cpu, bytes, numbers of devices. `nonzero_cpu` and `nonzero_memory` are
    the same with the scheduler's defaults for containers that request nothing; only scores use them.
    `scored_cpu` and `scored_memory` are those without pod-level resources, which NodeResourcesFit's score
    leaves out for the incoming pod. `overhead` is that of its RuntimeClass alone. `pod_level` and
    `pod_level_limits` are of the pod as a whole.

    `resource_claims`: devices are allocated to it, by claims of its own or by one that the scheduler made for
    an extended resource. `by_claims`: these take of what its node can allocate, beside its requests, and how
    much is not read (KEP-5517: its versions differ). `node_features`: what its node must declare.
    `eviction_responders`: who handles its eviction where it is asked for by an EvictionRequest. `autosized`:
    its requests may be set anew when it is made. `unsettled`: what does not say now that it gets a node
    selector, affinity, constraints, tolerations or labels that it has; "" = it has none such.
    `ends`: it runs to completion, as its containers are not always started again, or has a deadline.
    `may_lack`: by how much less it may come back, as its owner's template or youngest pod asks for less.
    `os`: the operating system that it says it is for. `handler`: of its RuntimeClass, where that is known;
    only replacements have it. `own_users`: a user namespace of its own; `read_only_throughout`: recursive
    read-only mounts; `strict_groups`: no groups but those that it names; `sysctls`: those that it sets;
    `local_profiles`: a seccomp or AppArmor profile that has to be on its node; `app_armor`: any profile of
    AppArmor. `security`: what Pod Security reads of the whole pod beside containers and volumes, as JSON.
    `service_account`, `runtime_class`: that it names; "" = none. `runs`: what its containers run, as entries
    of the API's fields; None where that was not read. `held`: what it takes of its node, where its status
    says something else than its spec; and then `by_spec`: the template without that, which its replacement
    has.

    `controller` is (apiVersion, kind, name) of the controlling owner. Default spread constraints depend on
    it, so a replacement that is built from a workload's template must be given it.
    """

    namespace: str
    labels: dict[str, str]
    requests: dict[str, int]
    nonzero_cpu: int = 0
    nonzero_memory: int = 0
    scored_cpu: int = 0
    scored_memory: int = 0
    overhead: dict[str, int] = {}
    pod_level: dict[str, int] = {}
    pod_level_limits: dict[str, int] = {}
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    priority: int = 0
    priority_class: str = ""
    preempts: bool = True
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[str, ...] = ()
    resource_claims: bool = False
    by_claims: bool = False
    scheduling_group: str = ""
    node_features: tuple[str, ...] = ()
    eviction_responders: tuple[str, ...] = ()
    host_network: bool = False
    os: str = ""
    handler: str = ""
    own_users: bool = False
    read_only_throughout: bool = False
    strict_groups: bool = False
    sysctls: tuple[str, ...] = ()
    local_profiles: bool = False
    app_armor: bool = False
    security: bytes = b""
    service_account: str = ""
    runtime_class: str = ""
    autosized: bool = False
    unsettled: str = ""
    ends: bool = False
    may_lack: dict[str, int] = {}
    runs: frozenset[bytes] | None = None
    held: HeldRequests | None = None
    by_spec: PodTemplate | None = None
    controller: tuple[str, str, str] | None = None

    @property
    def every_container(self) -> tuple[Container, ...]:
        """Its containers, and then its init containers."""
        return (*self.containers, *self.init_containers)

    @property
    def attaches(self) -> bool:
        """Whether it mounts volumes that may have to be attached to its node, whose number is limited."""
        return any(v.kind not in ("hostPath", "emptyDir", "image", "") for v in self.volumes)

    @property
    def best_effort(self) -> bool:
        """Whether it asks for no cpu and no memory. Rule: qos.ComputePodQOS. What a pod asks for as a whole
        counts alone; overhead never does."""
        whole = (self.pod_level, self.pod_level_limits)
        stated = whole if any(whole) else (x for c in self.every_container for x in (c.requests, c.limits))
        return not any(x.get(r) for x in stated for r in ("cpu", "memory"))

    @property
    def claims_anew(self) -> bool:
        """Whether claims are made for each such pod, of its ephemeral volumes."""
        return any(v.kind == "ephemeral" for v in self.volumes)

    def secured(self, asked: bytes) -> bytes:
        """What Pod Security reads of such a pod, as JSON. `asked`: what it reads of its maker's template, to
        which admission adds, and of which it takes nothing away."""
        pod = json.decode(asked or b"{}")
        spec = pod.setdefault("spec", {})
        whole = json.decode(self.security or b"{}")
        context = spec.get("securityContext", {}) | whole.get("securityContext", {})
        spec |= whole | {"securityContext": context}
        for kind, containers in (("containers", self.containers), ("initContainers", self.init_containers)):
            named = {c["name"]: c for c in spec.get(kind, ())}
            added = ({"name": c.name, **named.pop(c.name, {}), **json.decode(c.security)} for c in containers)
            spec[kind] = [*added, *named.values()]
        known = {v["name"] for v in spec.get("volumes", ())}
        more = ({"name": v.name, v.kind: {}} for v in self.volumes if v.name not in known)
        spec["volumes"] = [*spec.get("volumes", ()), *more]
        return json.encode(pod)

    @property
    def migrates(self) -> bool:
        """Whether an eviction moves it while it runs: a virtual machine of KubeVirt."""
        api, kind, _ = self.controller or ("", "", "")
        return kind == "VirtualMachineInstance" and api.startswith("kubevirt.io/")

    @property
    def restarts_with(self) -> str:
        """The LeaderWorkerSet's group all of whose pods are made anew when it goes; "" if it is in none."""
        name = self.labels.get(_LWS + "name", "")
        return f"{self.namespace}/{name}-{self.labels.get(_LWS + 'group-index', '')}" if name else ""

    @property
    def leads(self) -> bool:
        """Whether it is the leader of its group, which owns the others."""
        return self.labels.get(_LWS + "worker-index") == "0"

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the PersistentVolumeClaims that it mounts."""
        return tuple(v.claim for v in self.volumes if v.claim)


REGISTRAR = "driver-registrar"
"""In the name of the sidecar with which the DaemonSet of a CSI driver registers it on each node."""
REJECTED_FOR = 24 * 3600.0
"""Seconds for which the no of a kubelet to a pod holds for others of its owner."""
EVICTED_FOR = 3600.0
"""Seconds for which several evictions by a kubelet speak against its node."""


class Symptoms(Struct, frozen=True, gc=False):
    """What a kubelet says of a pod that is not well: nothing of most, which share one. Times in seconds since
    the epoch, None where absent.

    `unready_since`: since when it is not Ready, where it says so.
    `stuck`: why its kubelet cannot start a container of it, such as ImagePullBackOff; "" if it can.
    `unpulled`: an image of it that its kubelet cannot pull; "" if there is none.
    `rejected`: the reason for which its kubelet has not so much as tried to start it; "" if it has.
    `evicted`: when its kubelet evicted it because the node ran short of something; None if it has not.
    `crashed`: when a container of it ended that was started again; the last time.
    `unbegun`: since when its kubelet is to make its sandbox; None where it has.
    `starting`: whether a container of it runs whose startup probe has not passed yet.
    `debugged`: whether an ephemeral container (`kubectl debug`) of it has not ended.
    """

    unready_since: float | None = None
    stuck: str = ""
    unpulled: str = ""
    rejected: str = ""
    evicted: float | None = None
    crashed: float | None = None
    unbegun: float | None = None
    starting: bool = False
    debugged: bool = False


WELL = Symptoms()


class Pod(Struct, frozen=True, eq=False, gc=False):
    """A pod: its template, and where it is. Times in seconds since the epoch, None where absent.

    `judged`: whether it has a PodScheduled condition, by which a scheduler says what it made of the pod.
    `unschedulable` is the message of such a condition with status False and reason Unschedulable.
    `own_cost` is the deletion cost that this tool has written, None if it has not; it is not among the
    `annotations`, so that nothing but scale-in goes by it. `cost_by`: which installation has; "" if unknown.
    """

    name: str
    namespace: str
    uid: str
    template: PodTemplate
    node_name: str = ""
    nominated_node_name: str = ""
    phase: Phase = "Pending"
    created: float | None = None
    started: float | None = None
    deleted: float | None = None
    grace_seconds: int = 30
    ready: bool = False
    ready_since: float | None = None
    judged: bool = False
    unschedulable: str = ""
    symptoms: Symptoms = WELL
    owner: OwnerReference | None = None
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    own_cost: int | None = None
    cost_by: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """Whether it has Succeeded or Failed; the scheduler ignores such pods."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted: no longer counted for spread, but still holding its resources."""
        return self.deleted is not None

    @property
    def waits(self) -> bool:
        """Whether the scheduler has to place it: no node yet, not finished, not gated, not being deleted."""
        return not (self.node_name or self.finished or self.terminating or self.template.scheduling_gates)


# `controller.kubernetes.io/pod-deletion-cost`: which of its pods a ReplicaSet gives up first.
#
# Rule: kubernetes pkg/apis/core/helper, ``GetDeletionCostFromPodAnnotations``; KEP-2255.

ROOM = "rebalancer.io/room"
"""Label of pods that only hold room (`rebalancer room`)."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""The pod that costs less goes first."""
MANAGER = "rebalancer-scale-in"
"""The field manager under which this tool writes it, then a colon and the installation: so whose a cost is
stands beside it, by the same patch, and changes with it only. What another manager wrote is not ours."""

_NUMBER = re.compile(r"-[0-9]+|0|[1-9][0-9]*")
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


def cost_of(written: str | None) -> int:
    """What the controller makes of an annotation: 0 where it is absent, or no number of 32 bits."""
    if written is None or not _NUMBER.fullmatch(written):
        return 0
    cost = int(written)
    return cost if _LEAST <= cost <= _MOST else 0


class _Entry(Struct, frozen=True, rename="camel"):
    manager: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))


def cost_writer(managed_fields: bytes | msgspec.Raw) -> str | None:
    """Which installation of this tool has set a pod's deletion cost, by its metadata.managedFields (JSON): ""
    where it does not say, None where it was not this tool alone."""
    field = f'"f:{DELETION_COST}"'.encode()
    if MANAGER.encode() not in bytes(managed_fields):
        return None
    entries = msgspec.json.decode(managed_fields, type=tuple[_Entry, ...])
    managers = {e.manager for e in entries if field in bytes(e.fields_v1)}
    tool, _, by = managers.pop().partition(":") if len(managers) == 1 else ("", "", "")
    return by if tool == MANAGER else None


def without_own_cost(metadata: dict[str, Any]) -> dict[str, Any]:
    """A pod's metadata without managed fields, and so without the cost that this tool has written: without
    them nobody could tell whose it is."""
    bare = {k: v for k, v in metadata.items() if k != "managedFields"}
    annotations = metadata.get("annotations") or {}
    managed = msgspec.json.encode(metadata.get("managedFields"))
    if DELETION_COST in annotations and cost_writer(managed) is not None:
        bare["annotations"] = {k: v for k, v in annotations.items() if k != DELETION_COST}
    return bare


# What a pod requests in all.
#
# Rule: k8s.io/component-helpers/resource, ``PodRequests``. Containers run together. Init containers run one
# after the other, each beside the sidecars that were started before it. Pod-level resources replace the sum
# for the resources that they name. Overhead is added to the result.

Requests = dict[str, int]

DEFAULT_CPU = 100
"""Millicores that scores assume for a container without a cpu request."""
DEFAULT_MEMORY = 200 * 1024 * 1024
"""Bytes that scores assume for a container without a memory request."""


def add(total: Requests, more: Mapping[str, int]) -> None:
    """Adds `more` to `total`."""
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def at_least(total: Requests, floor: Mapping[str, int]) -> None:
    """Raises `total` to `floor` where it is lower."""
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value


def of_the_whole_pod(pod_level: Mapping[str, int]) -> Requests:
    """The resources of which a pod as a whole can have some."""
    return {n: v for n, v in pod_level.items() if n in ("cpu", "memory") or n.startswith("hugepages-")}


def pod_requests(
    containers: Iterable[Container],
    init_containers: Iterable[Container],
    overhead: Mapping[str, int],
    pod_level: Mapping[str, int],
    *,
    defaults: Mapping[str, int] | None = None,
) -> Requests:
    """A pod's effective requests, each at most `quantity.MOST`.

    `defaults` are used for resources that a container does not request at all.
    """

    def of(c: Container) -> Mapping[str, int]:
        return {**defaults, **c.requests} if defaults else c.requests

    total: Requests = {}
    for c in containers:
        add(total, of(c))
    sidecars: Requests = {}
    peak: Requests = {}
    for c in init_containers:
        if c.sidecar:
            add(total, of(c))
            add(sidecars, of(c))
            at_least(peak, sidecars)
        else:
            step = dict(sidecars)
            add(step, of(c))
            at_least(peak, step)
    at_least(total, peak)
    total |= of_the_whole_pod(pod_level)
    add(total, overhead)
    return {name: bounded(value) for name, value in total.items()}


def larger_by(more: Requests, template: PodTemplate) -> PodTemplate:
    """The template with so much more, or less, of its resources."""
    total = dict(template.requests)
    add(total, more)
    cpu, memory = more.get("cpu", 0), more.get("memory", 0)
    return structs.replace(
        template,
        requests={r: bounded(n) for r, n in total.items()},
        nonzero_cpu=bounded(template.nonzero_cpu + cpu),
        nonzero_memory=bounded(template.nonzero_memory + memory),
        scored_cpu=bounded(template.scored_cpu + cpu),
        scored_memory=bounded(template.scored_memory + memory),
    )


def with_containers(
    template: PodTemplate, containers: tuple[Container, ...], inits: tuple[Container, ...]
) -> PodTemplate:
    """The template with these containers, and as much more or less as they take together."""
    each = ((template.containers, template.init_containers), (containers, inits))
    before, now = (pod_requests(*some, template.overhead, template.pod_level) for some in each)
    more = {r: n for r in {**before, **now} if (n := now.get(r, 0) - before.get(r, 0))}
    return structs.replace(larger_by(more, template), containers=containers, init_containers=inits)
