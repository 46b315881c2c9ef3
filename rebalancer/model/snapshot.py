"""The state of a cluster at one time, as a frozen value, and the kinds of API objects that it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.model.node import (
    CANDIDATE_TAINT,
    DO_NOT_DISRUPT,
    NODEPOOL,
    DeviceClass,
    Node,
    NodeClaim,
    NodePool,
    ObjectMeta,
    Outgoing,
    OwnerReference,
    outgoing,
)
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from rebalancer.model.workload import (
    HorizontalPodAutoscaler,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    Service,
    VerticalPodAutoscaler,
    Workload,
)

Object = (
    Node
    | Pod
    | Workload
    | Namespace
    | Service
    | PodDisruptionBudget
    | PriorityClass
    | HorizontalPodAutoscaler
    | ResourceQuota
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | VolumeAttachment
    | CSIDriver
    | CSIStorageCapacity
    | NodeClaim
    | NodePool
    | VerticalPodAutoscaler
    | DeviceClass
    | RuntimeClass
    | ObjectMeta
)
"""Any value that is read. ObjectMeta stands for a ControllerRevision, of which only the metadata is read."""

PLAIN: dict[str, type[Struct]] = {
    "Node": Node,
    "Namespace": Namespace,
    "Service": Service,
    "PodDisruptionBudget": PodDisruptionBudget,
    "PersistentVolume": PersistentVolume,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "StorageClass": StorageClass,
    "CSINode": CSINode,
    "VolumeAttachment": VolumeAttachment,
    "CSIDriver": CSIDriver,
    "CSIStorageCapacity": CSIStorageCapacity,
    "PriorityClass": PriorityClass,
    "HorizontalPodAutoscaler": HorizontalPodAutoscaler,
    "ResourceQuota": ResourceQuota,
    "NodeClaim": NodeClaim,
    "NodePool": NodePool,
    "VerticalPodAutoscaler": VerticalPodAutoscaler,
    "DeviceClass": DeviceClass,
    "RuntimeClass": RuntimeClass,
}
"""Kinds whose value has the fields of the API, so that one generic decoder reads them."""
WORKLOADS = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"}
)
"""Kinds that become a `Workload`."""
ONLY_MAKE_PODS = frozenset({"ReplicaSet", "ReplicationController"})
"""Those that make pods by their template, and leave the pods that are there as they are."""
BUILT_IN = frozenset({"", "apps", "batch"})
"""Their API groups; others have kinds of the same names (apps.kruise.io has a StatefulSet)."""
KINDS = frozenset({"Pod", "ControllerRevision", *PLAIN, *WORKLOADS})
"""Every kind that is read. Objects of other kinds are ignored."""


# What cannot be known if a kind is missing, because a file has no object of it or it may not be listed.

ADD_ONS = {
    **dict.fromkeys(("NodeClaim", "NodePool"), NODEPOOL),
    **dict.fromkeys(("VerticalPodAutoscaler", "DeviceClass", "RuntimeClass"), ""),
}
"""Kinds that a cluster need not have, and that no plan waits for; each with the label of nodes that shows in
a file that its cluster had them, "" where nothing does."""
CONSEQUENCES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("PodDisruptionBudget",),
        "budgets are not planned with, and the API server may refuse evictions that are planned",
    ),
    (
        ("ReplicaSet", "StatefulSet", "ReplicationController"),
        "their pods have no known owner and stay where they are",
    ),
    (("Deployment", "ControllerRevision"), "rollouts and pauses are told from ReplicaSets and pods alone"),
    (("DaemonSet", "Job"), "their pods are recognised by the owner reference alone"),
    (("Service",), "constraints that pods get by default through one are not seen"),
    (("PersistentVolume", "PersistentVolumeClaim"), "pods that mount a claim are not moved"),
    (
        ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity"),
        "where new volumes can be made and attached is not known",
    ),
    (("VolumeAttachment",), "volumes that are still attached without a pod are not counted"),
    (("Namespace",), "evictions that they forbid and namespace selectors of affinity terms are not seen"),
    (("PriorityClass",), "priorities are taken from the pods alone"),
    (("HorizontalPodAutoscaler",), "who changes an owner's replicas all the time is not told"),
    (("ResourceQuota",), "a quota that would stop a replacement is not seen"),
    (("VerticalPodAutoscaler",), "requests that one gives to a replacement are not seen"),
    (("DeviceClass",), "which extended resources claims may serve is not seen"),
    (("NodeClaim", "NodePool"), "which nodes Karpenter is about to replace, or may add, is not seen"),
)
"""Kinds whose absence has the same consequence, and that consequence: the end of a sentence whose beginning
names the missing kinds."""

DECIDING = frozenset(
    {"Namespace", "PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim"}
    | {"ReplicaSet", "StatefulSet", "ReplicationController", "Deployment"}
)
"""Kinds that decide which pods may go: where one of them may not be read, nobody can say that no eviction
helps."""

_OF = {kind: consequence for kinds, consequence in CONSEQUENCES for kind in kinds}


def consequence(kind: str) -> str:
    """The consequence of not reading this kind; "" for nodes and pods, without which nothing is planned."""
    return _OF.get(kind, "")


def missed(kind: str, nodes: Iterable[Node]) -> bool:
    """Whether a file with these nodes lacks this kind: of an add-on only where the nodes show it."""
    return kind not in ADD_ONS or any(ADD_ONS[kind] in n.labels for n in nodes)


# Pods that differ only in name, place and time: what is true of one, rules find out once for all.


class Alike(Struct, frozen=True, eq=False):
    """Pods that have template and owner in common, in the order in which they were given; at least one."""

    template: PodTemplate
    owner: OwnerReference | None
    pods: list[Pod]

    @property
    def one(self) -> Pod:
        """The first of them."""
        return self.pods[0]


def alike(pods: Iterable[Pod]) -> tuple[Alike, ...]:
    """All pods, grouped, in the order of each group's first one."""
    found: dict[tuple[int, int], Alike] = {}
    for pod in pods:
        # Templates and references to owners are one object where they are equal.
        key = id(pod.template), id(pod.owner)
        group = found.get(key)
        if group is None:
            group = found[key] = Alike(pod.template, pod.owner, [])
        group.pods.append(pod)
    return tuple(found.values())


ON = attrgetter("node_name")
"""The node of a pod; "" while it waits for one."""


def among(groups: Iterable[Alike], nodes: Iterable[str]) -> Iterator[Alike]:
    """The groups, with the pods on these nodes only; those without any are left out."""
    known = nodes if isinstance(nodes, dict) else frozenset(nodes)
    for group in groups:
        if all(map(known.__contains__, map(ON, group.pods))):
            yield group
        elif there := [p for p in group.pods if p.node_name in known]:
            yield Alike(group.template, group.owner, there)


T = TypeVar("T")
Identity = tuple[str, ...]


class KindRead(Struct, frozen=True, kw_only=True):
    """How one kind was read.

    `unreadable`: objects that were left out. `pages` and `retries` are numbers of requests. `bytes`: size of
    the decompressed bodies. `started`: seconds after the first kind was begun. `seconds`: how long it took.
    `known`: whether it could be read. `age`: seconds since the watch of this kind last heard from the server;
    None if the kind was listed.
    """

    kind: str
    objects: int = 0
    unreadable: int = 0
    pages: int = 0
    bytes: int = 0
    retries: int = 0
    started: float = 0.0
    seconds: float = 0.0
    known: bool = True
    age: float | None = None


class Snapshot(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """Everything that decisions are based on.

    Objects are sorted by (namespace, name), whatever order they were read in, so that the same cluster gives
    the same plan. `kinds`: the kinds that were read, be it with no object. Objects of other kinds are
    unknown, not absent. `refused`: kinds that were asked for but may not be read, and those that are
    `unclear`. A file cannot say the former: it just has no objects of the kind. `read_namespaces`: the only
    ones whose objects were read; empty = all. `now`: the time that every age is computed from, in seconds
    since the epoch. `apart`: by how many seconds it may be later than that, as two clocks disagree. `reads`:
    how each kind was read; no decision depends on it.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    now: float
    apart: float = 0.0
    source: str = ""
    server_version: str = ""
    kinds: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    read_namespaces: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    reads: tuple[KindRead, ...] = ()
    namespaces: Mapping[str, Namespace] = {}
    services: tuple[Service, ...] = ()
    workloads: tuple[Workload, ...] = ()
    revisions: tuple[ObjectMeta, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    volumes: Mapping[str, PersistentVolume] = {}
    claims: Mapping[str, PersistentVolumeClaim] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    csi_nodes: Mapping[str, CSINode] = {}
    attachments: tuple[VolumeAttachment, ...] = ()
    csi_drivers: Mapping[str, CSIDriver] = {}
    csi_capacities: tuple[CSIStorageCapacity, ...] = ()
    priority_classes: Mapping[str, PriorityClass] = {}
    autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()
    node_claims: tuple[NodeClaim, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    vertical_autoscalers: tuple[VerticalPodAutoscaler, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    runtime_classes: Mapping[str, RuntimeClass] = {}

    @cached_property
    def live(self) -> tuple[Alike, ...]:
        """The pods that are neither finished nor being deleted, grouped by template and owner."""
        return alike(p for p in self.pods if p.deleted is None and not p.finished)

    @cached_property
    def default_class(self) -> PriorityClass | None:
        """What a new pod is given that names no PriorityClass: of several defaults the lowest counts."""
        every = (c for c in self.priority_classes.values() if c.global_default)
        return min(every, key=lambda c: c.value, default=None)

    @cached_property
    def node_names(self) -> frozenset[str]:
        """The names of the nodes."""
        return frozenset(n.name for n in self.nodes)

    @cached_property
    def stranded(self) -> tuple[Pod, ...]:
        """Live pods on nodes that are gone: nobody tells of them any more, and the garbage collector of pods
        deletes them within a minute (podgc/gc_controller.go, ``gcOrphaned``)."""
        here = self.node_names | {""}
        some = (g.pods for g in self.live if not all(map(here.__contains__, map(ON, g.pods))))
        return tuple(p for pods in some for p in pods if p.node_name not in here)

    @cached_property
    def outgoing(self) -> tuple[Outgoing, ...]:
        """Nodes that Karpenter is about to replace."""
        return to_be_replaced(self.node_claims, self.node_pools, self.nodes, self.pods)

    @property
    def latest(self) -> float:
        """The latest that it may be: what protects once it has lasted goes by this."""
        return self.now + self.apart

    @cached_property
    def going(self) -> frozenset[str]:
        """The names of nodes that Karpenter is about to replace now."""
        return going(self.outgoing, self.now, self.latest)

    @cached_property
    def over(self) -> tuple[Pod, ...]:
        """The pods that are finished or being deleted."""
        return tuple(p for p in self.pods if p.deleted is not None or p.finished)

    @cached_property
    def workloads_by_uid(self) -> dict[str, Workload]:
        """Owners by uid; owners without a uid (hand-written files) are not in it."""
        return {w.metadata.uid: w for w in self.workloads if w.metadata.uid}

    @cached_property
    def workloads_by_name(self) -> dict[tuple[str, str, str], Workload]:
        """Owners by (kind, namespace, name)."""
        return {(w.kind, w.namespace, w.name): w for w in self.workloads}

    @property
    def undecided(self) -> tuple[str, ...]:
        """The kinds that may not be read and decide which pods may go: what would help is not known."""
        return tuple(sorted(DECIDING & self.refused))

    @property
    def cluster_id(self) -> str:
        """What tells this cluster from others: the uid of namespace kube-system; "" if it is not known."""
        system = self.namespaces.get("kube-system")
        return system.metadata.uid if system is not None else ""

    def owner_of(self, namespace: str, reference: OwnerReference | None) -> Workload | None:
        """The workload that a reference means: by uid, or by name if one of the two has no uid. Never one of
        another namespace: anybody may write down its uid, and Kubernetes takes such an owner for gone."""
        if reference is None:
            return None
        found = self.workloads_by_uid.get(reference.uid) if reference.uid else None
        if found is not None:
            return found if found.namespace == namespace else None
        named = self.workloads_by_name.get((reference.kind, namespace, reference.name))
        if named is not None and reference.uid and named.metadata.uid:
            return None
        return named


def unclear(reads: Iterable[KindRead]) -> frozenset[str]:
    """The add-ons of which an object could not be read: they count as refused.

    What such an object asks for is not known, and the API server does not keep it, as it does budgets and
    quotas.
    """
    return frozenset(r.kind for r in reads if r.unreadable and r.kind in ADD_ONS)


def build_snapshot(
    objects: Iterable[Object],
    *,
    now: float,
    source: str = "",
    server_version: str = "",
    kinds: Iterable[str] = (),
    refused: Iterable[str] = (),
    read_namespaces: Iterable[str] = (),
    warnings: Iterable[str] = (),
    reads: Iterable[KindRead] = (),
) -> Snapshot:
    """A snapshot of decoded objects in any order. Of two objects with one name the later one is used."""
    by: dict[type, dict[Identity, Any]] = {}
    for o in objects:
        by.setdefault(type(o), {})[identity(o)] = o
    return assemble(
        {type_: {key: found[key] for key in sorted(found)} for type_, found in by.items()},
        now=now,
        source=source,
        server_version=server_version,
        kinds=kinds,
        refused=refused,
        read_namespaces=read_namespaces,
        warnings=warnings,
        reads=reads,
    )


def assemble(
    by: Mapping[type, Mapping[Identity, Any]],
    *,
    now: float,
    source: str = "",
    server_version: str = "",
    kinds: Iterable[str] = (),
    refused: Iterable[str] = (),
    read_namespaces: Iterable[str] = (),
    warnings: Iterable[str] = (),
    reads: Iterable[KindRead] = (),
) -> Snapshot:
    """A snapshot of objects that are already sorted by identity, type by type."""

    def of(type_: type[T]) -> tuple[T, ...]:
        return tuple(by.get(type_, {}).values())

    def named(type_: type[T]) -> dict[str, T]:
        """By name, namespaced kinds by namespace/name."""
        return {"/".join(filter(None, key)): value for key, value in by.get(type_, {}).items()}

    return Snapshot(
        nodes=of(Node),
        pods=of(Pod),
        now=now,
        source=source,
        server_version=server_version,
        kinds=frozenset(kinds),
        refused=frozenset(refused),
        read_namespaces=frozenset(read_namespaces),
        warnings=tuple(warnings),
        reads=tuple(reads),
        namespaces=named(Namespace),
        services=of(Service),
        workloads=of(Workload),
        revisions=of(ObjectMeta),
        budgets=of(PodDisruptionBudget),
        volumes=named(PersistentVolume),
        claims=named(PersistentVolumeClaim),
        storage_classes=named(StorageClass),
        csi_nodes=named(CSINode),
        attachments=of(VolumeAttachment),
        csi_drivers=named(CSIDriver),
        csi_capacities=of(CSIStorageCapacity),
        priority_classes=named(PriorityClass),
        autoscalers=of(HorizontalPodAutoscaler),
        quotas=of(ResourceQuota),
        node_claims=of(NodeClaim),
        node_pools=of(NodePool),
        vertical_autoscalers=of(VerticalPodAutoscaler),
        device_classes=of(DeviceClass),
        runtime_classes=named(RuntimeClass),
    )


def identity(o: Object) -> Identity:
    """The key that objects of one type are sorted by; an object replaces another with the same key."""
    if isinstance(o, Pod):
        return (o.namespace, o.name)
    if isinstance(o, Workload):
        return (o.namespace, o.name, o.kind)
    meta = o if isinstance(o, ObjectMeta) else o.metadata
    return (meta.namespace, meta.name)


def to_be_replaced(
    claims: Collection[NodeClaim], pools: Iterable[NodePool], nodes: Iterable[Node], pods: Iterable[Pod]
) -> tuple[Outgoing, ...]:
    """See `node.outgoing`."""
    if not any(c.drifted is not None or c.expires < inf for c in claims):
        return ()
    pinned = {n.name for n in nodes if n.metadata.annotations.get(DO_NOT_DISRUPT) == "true"}
    pinned.update(p.node_name for p in pods if p.annotations.get(DO_NOT_DISRUPT) == "true")
    return tuple(outgoing(claims, pinned, {p.metadata.name for p in pools if p.keeps_drifted}))


def going(nodes: Iterable[Outgoing], now: float, latest: float) -> frozenset[str]:
    """The names of the nodes whose time to be replaced may have begun and may not be over."""
    return frozenset(name for name, since, until in nodes if since <= latest and now < until)


def candidates(snapshot: Snapshot) -> frozenset[str]:
    """The nodes that cluster-autoscaler may remove unless pods come: the last choice among equal ones.

    That a node is empty says nothing: the nodes of a zone that came back are empty, and pods end the
    candidacy. Of Karpenter nothing says so: every node at rest is Consolidatable.
    """
    return frozenset(n.name for n in snapshot.nodes if any(t.key == CANDIDATE_TAINT for t in n.spec.taints))


# Whether a snapshot says enough to act on, and has what somebody named.

_MOST_UNREADABLE = 0.05
"""Share of the nodes or pods that may be unreadable. Everybody counts, so what is missed shifts every skew:
one odd object is told and left out, but a format that is not understood is no cluster in balance."""
_LISTED = 8


def warned(snapshot: Snapshot, doubt: str, apart: float) -> Snapshot:
    """The snapshot, with why it is not known what time it is, and by how much, if there is a doubt."""
    # In whole minutes, as for what stays the same no plan is made anew.
    minutes = 60.0 * round(apart / 60)
    return replace(snapshot, warnings=(*snapshot.warnings, doubt), apart=minutes) if doubt else snapshot


def check_readable(snapshot: Snapshot) -> None:
    """Raises UserError where too many of the nodes or pods could not be read."""
    for read in snapshot.reads:
        lost, every = read.unreadable, read.objects + read.unreadable
        if (
            read.kind in ("Node", "Pod")
            and lost
            and (not read.objects or lost > max(1, _MOST_UNREADABLE * every))
        ):
            where = snapshot.source or "the cluster"
            raise UserError(
                f"{lost:,} of {every:,} {read.kind.lower()}s in {where} could not be read, so nothing can be "
                f"said of its balance: {_first(snapshot, read.kind)}",
                "take the snapshot again, or mend these objects",
            )
    _check_nodes(snapshot)


def _check_nodes(snapshot: Snapshot) -> None:
    """Raises UserError where most pods run on nodes that were not read.

    A few are told of and left out: a node that is gone keeps its pods for a while.
    """
    on_node = Counter(map(attrgetter("node_name"), snapshot.pods))
    del on_node[""]
    placed = on_node.total()
    lost = placed - sum(on_node[n.name] for n in snapshot.nodes)
    if 2 * lost > placed:
        where = snapshot.source or "the cluster"
        raise UserError(
            f"{lost:,} of {placed:,} pods in {where} run on nodes that are not in it, so nothing can be "
            "said of its balance",
            "take nodes and pods of the whole cluster together, for example with `rebalancer snapshot`",
        )


def check_namespaces(snapshot: Snapshot, names: Iterable[str]) -> None:
    """Raises UserError for a name that no namespace has."""
    known = set(snapshot.namespaces)
    if "Namespace" not in snapshot.kinds:
        known = {p.namespace for p in snapshot.pods} | {w.namespace for w in snapshot.workloads}
    only = snapshot.read_namespaces
    for name in names:
        if only and name not in only:
            raise UserError(
                f"namespace {name} is not read: scope.readNamespaces has {', '.join(sorted(only))} only",
                "name one of these, or add it there",
            )
        if name not in known and name not in only:
            similar = get_close_matches(name, sorted(known), 3)
            some = ", ".join(similar or sorted(known)[:_LISTED])
            more = "" if similar or len(known) <= _LISTED else f" and {len(known) - _LISTED:,} more"
            what = "similar" if similar else "there are"
            raise UserError(
                f"no namespace {name} in {snapshot.source or 'the cluster'}",
                f"{what}: {some}{more}",
            )


def _first(snapshot: Snapshot, kind: str) -> str:
    """The warning about the first of them."""
    return next((w for w in snapshot.warnings if kind in w and "malformed" in w), "see the warnings")
