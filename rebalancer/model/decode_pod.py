"""JSON bytes of a pod or of a pod template → `Pod`, `PodTemplate`.

Decoding is the cost of reading a large cluster, so the fields that identical pods share stay undecoded
bytes (msgspec.Raw) and together are the key of a memo: 150,000 pods cost a few thousand decodings. The
fields that differ between otherwise identical pods (the projected token volume with its random name, its
mounts) are left out of the key by not being read at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rebalancer.model.meta import OwnerReference
from rebalancer.model.node import Condition, Toleration
from rebalancer.model.pod import (
    Affinity,
    Container,
    HostPort,
    Phase,
    Pod,
    PodTemplate,
    TopologySpreadConstraint,
    Volume,
)
from rebalancer.model.quantity import resource_list
from rebalancer.model.resources import DEFAULT_CPU, DEFAULT_MEMORY, pod_requests

_NONE = Raw(b"null")
_SCORE_DEFAULTS = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}
_LONGEST_ANNOTATION = 256
"""Longer annotation values carry no policy and would only fill memory (last-applied-configuration)."""


class _Quantities(Struct, frozen=True, rename="camel"):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Port(Struct, frozen=True, rename="camel"):
    host_port: int = 0
    container_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class _Container(Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str = ""
    resources: Raw = _NONE
    ports: Raw = _NONE
    restart_policy: str = ""

    def key(self) -> bytes:
        """What tells it from another container."""
        return b"\1".join(
            (
                self.name.encode(),
                self.image.encode(),
                self.resources,
                self.ports,
                self.restart_policy.encode(),
            )
        )


class _Volume(Struct, frozen=True, rename="camel"):
    name: str
    persistent_volume_claim: dict[str, object] | None = None
    ephemeral: Raw = _NONE
    host_path: Raw = _NONE
    empty_dir: Raw = _NONE
    csi: dict[str, object] | None = None
    gce_persistent_disk: dict[str, object] | None = msgspec.field(name="gcePersistentDisk", default=None)
    aws_elastic_block_store: dict[str, object] | None = msgspec.field(
        name="awsElasticBlockStore", default=None
    )
    azure_disk: dict[str, object] | None = msgspec.field(name="azureDisk", default=None)
    iscsi: dict[str, object] | None = None
    rbd: dict[str, object] | None = None


class _PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    node_selector: Raw = _NONE
    affinity: Raw = _NONE
    tolerations: Raw = _NONE
    topology_spread_constraints: Raw = _NONE
    overhead: Raw = _NONE
    resources: Raw = _NONE
    volumes: tuple[_Volume, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = ""
    scheduling_gates: Raw = _NONE
    resource_claims: Raw = _NONE
    host_network: bool = False
    termination_grace_period_seconds: int = 30


class _PodMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Raw = _NONE
    annotations: Raw = _NONE
    owner_references: Raw = _NONE
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class _PodCondition(Condition, frozen=True, rename="camel"):
    last_transition_time: datetime | None = None


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: Phase = "Pending"
    conditions: tuple[_PodCondition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None


class _Pod(Struct, frozen=True, rename="camel"):
    metadata: _PodMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _TemplateMeta(Struct, frozen=True, rename="camel"):
    labels: Raw = _NONE
    annotations: Raw = _NONE


class TemplateWire(Struct, frozen=True, rename="camel"):
    """spec.template of a workload."""

    metadata: _TemplateMeta = _TemplateMeta()
    spec: _PodSpec = _PodSpec()


class PodDecoder:
    """Decodes pods and pod templates; holds the memos, so that one decoder should read one cluster.

    The memos grow with whatever is decoded. Who decodes for months calls `keep` now and then.
    Errors: msgspec.ValidationError, whose message names the field.
    """

    def __init__(self) -> None:
        self._templates: dict[bytes, PodTemplate] = {}
        self._annotations: dict[bytes, dict[str, str]] = {}
        self._owners: dict[bytes, OwnerReference | None] = {}
        self._parts: dict[tuple[str, bytes], object] = {}
        self._pod = msgspec.json.Decoder(_Pod)

    @property
    def entries(self) -> int:
        """How much is remembered, over all memos."""
        return len(self._templates) + len(self._annotations) + len(self._owners) + len(self._parts)

    def keep(self, pods: Iterable[Pod], templates: Iterable[PodTemplate] = ()) -> None:
        """Forgets what none of these uses; what they share stays shared with pods decoded later.

        A sweep and not weak references, because most of what is shared are dicts and tuples, which take none.
        """
        used: set[int] = set()
        for pod in pods:
            used.add(id(pod.annotations))
            used.add(id(pod.owner))
            used.add(id(pod.template))
        used.update(map(id, templates))
        self._templates = {k: t for k, t in self._templates.items() if id(t) in used}
        for t in self._templates.values():
            used.update((id(t.node_selector), id(t.affinity), id(t.tolerations), id(t.spread)))
        self._annotations = {k: v for k, v in self._annotations.items() if id(v) in used}
        self._owners = {k: v for k, v in self._owners.items() if v is not None and id(v) in used}
        self._parts = {k: v for k, v in self._parts.items() if v is not None and id(v) in used}

    def pod(self, raw: bytes | Raw) -> Pod:
        """A Pod from its JSON."""
        wire = self._pod.decode(raw)
        meta, spec, status = wire.metadata, wire.spec, wire.status
        ready = next((c for c in status.conditions if c.type == "Ready"), None)
        scheduled = next((c for c in status.conditions if c.type == "PodScheduled"), None)
        grace = meta.deletion_grace_period_seconds
        owner = self._owner(meta.owner_references)
        controller = (owner.api_version, owner.kind, owner.name) if owner is not None else None
        return Pod(
            name=meta.name,
            namespace=meta.namespace or "default",
            uid=meta.uid,
            template=self.template(meta.namespace or "default", meta.labels, spec, meta.name, controller),
            node_name=spec.node_name,
            nominated_node_name=status.nominated_node_name,
            phase=status.phase,
            created=seconds(meta.creation_timestamp),
            started=seconds(status.start_time),
            deleted=seconds(meta.deletion_timestamp),
            grace_seconds=grace if grace is not None else spec.termination_grace_period_seconds,
            ready=ready is not None and ready.status == "True",
            ready_since=seconds(ready.last_transition_time) if ready and ready.status == "True" else None,
            unschedulable=(
                scheduled.message
                if scheduled and scheduled.status == "False" and scheduled.reason == "Unschedulable"
                else ""
            ),
            owner=owner,
            annotations=self._annotation(meta.annotations),
            resource_version=meta.resource_version,
        )

    def template(
        self,
        namespace: str,
        labels: Raw | bytes,
        spec: _PodSpec,
        pod_name: str = "",
        controller: tuple[str, str, str] | None = None,
    ) -> PodTemplate:
        """The interned template of a pod spec in a namespace with these labels (JSON object)."""
        volumes = tuple(v for w in spec.volumes if (v := _volume(w, pod_name)) is not None)
        key = b"\0".join(
            (
                namespace.encode(),
                labels,
                b"\2".join(c.key() for c in spec.containers),
                b"\2".join(c.key() for c in spec.init_containers),
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.overhead,
                spec.resources,
                repr(volumes).encode() if volumes else b"",
                f"{spec.priority}\1{spec.priority_class_name}\1{spec.preemption_policy}\1{spec.scheduler_name}"
                f"\1{spec.host_network}".encode(),
                spec.scheduling_gates,
                spec.resource_claims,
                repr(controller).encode(),
            )
        )
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = self._build(namespace, labels, spec, volumes, controller)
        return found

    def _build(
        self,
        namespace: str,
        labels: Raw | bytes,
        spec: _PodSpec,
        volumes: tuple[Volume, ...],
        controller: tuple[str, str, str] | None,
    ) -> PodTemplate:
        containers = tuple(_container(c, spec.host_network, init=False) for c in spec.containers)
        inits = tuple(_container(c, spec.host_network, init=True) for c in spec.init_containers)
        overhead = resource_list(
            _part(spec.overhead, dict[str, str | int | float], "spec.overhead"), "spec.overhead"
        )
        whole = _part(spec.resources, _Quantities, "spec.resources") or _Quantities()
        pod_level = resource_list(whole.requests, "spec.resources.requests")
        requests = pod_requests(containers, inits, overhead, pod_level)
        assumed = _SCORE_DEFAULTS
        if whole.requests or whole.limits:
            # Beside pod-level resources defaults stand in only for what the pod asks nothing of at all
            # (framework/types.go, getNonMissingContainerRequests).
            assumed = {name: v for name, v in _SCORE_DEFAULTS.items() if not requests.get(name)}
        nonzero = pod_requests(containers, inits, overhead, pod_level, defaults=assumed)
        scored = pod_requests(containers, inits, overhead, {}, defaults=_SCORE_DEFAULTS)
        return PodTemplate(
            namespace=namespace,
            labels=_part(labels, dict[str, str], "metadata.labels") or {},
            requests=requests,
            nonzero_cpu=nonzero.get("cpu", 0),
            nonzero_memory=nonzero.get("memory", 0),
            scored_cpu=scored.get("cpu", 0),
            scored_memory=scored.get("memory", 0),
            containers=containers,
            init_containers=inits,
            node_selector=self._shared(spec.node_selector, dict[str, str], "spec.nodeSelector") or {},
            affinity=self._shared(spec.affinity, Affinity, "spec.affinity"),
            tolerations=self._shared(spec.tolerations, tuple[Toleration, ...], "spec.tolerations") or (),
            spread=self._shared(
                spec.topology_spread_constraints,
                tuple[TopologySpreadConstraint, ...],
                "spec.topologySpreadConstraints",
            )
            or (),
            volumes=volumes,
            host_ports=tuple(
                dict.fromkeys(
                    p for c in (*containers, *(i for i in inits if i.sidecar)) for p in c.host_ports
                )
            ),
            priority=spec.priority,
            priority_class=spec.priority_class_name,
            preempts=spec.preemption_policy != "Never",
            scheduler_name=spec.scheduler_name or "default-scheduler",
            scheduling_gates=tuple(
                g["name"]
                for g in _part(spec.scheduling_gates, list[dict[str, str]], "spec.schedulingGates") or ()
            ),
            resource_claims=bool(_part(spec.resource_claims, list[object], "spec.resourceClaims")),
            host_network=spec.host_network,
            controller=controller,
        )

    def _shared(self, raw: Raw | bytes, type_: Any, path: str) -> Any:
        """A decoded part, one object for equal bytes: caches can key on its identity."""
        key = (path, bytes(raw))
        if key not in self._parts:
            self._parts[key] = _part(raw, type_, path)
        return self._parts[key]

    def _owner(self, raw: Raw | bytes) -> OwnerReference | None:
        key = bytes(raw)
        if key not in self._owners:
            owners = _part(raw, tuple[OwnerReference, ...], "metadata.ownerReferences") or ()
            self._owners[key] = next((o for o in owners if o.controller), None)
        return self._owners[key]

    def _annotation(self, raw: Raw | bytes) -> dict[str, str]:
        key = bytes(raw)
        found = self._annotations.get(key)
        if found is None:
            every = _part(raw, dict[str, str], "metadata.annotations") or {}
            found = {k: v for k, v in every.items() if len(v) <= _LONGEST_ANNOTATION}
            self._annotations[key] = found
        return found


def absent(raw: Raw | bytes) -> bool:
    """Whether the field was not there, or null."""
    return bytes(raw) in (b"", b"null")


def seconds(time: datetime | None) -> float | None:
    """Seconds since the epoch."""
    return time.timestamp() if time is not None else None


def _part(raw: Raw | bytes, type_: Any, path: str) -> Any:
    """Decodes bytes that were left aside; an error names the whole path."""
    if absent(raw):
        return None
    try:
        return msgspec.json.decode(raw, type=type_)
    except msgspec.ValidationError as e:
        text = str(e)
        where = text.partition(" - at `$")[2].rstrip("`")
        raise msgspec.ValidationError(f"{text.partition(' - at `')[0]} - at `$.{path}{where}`") from e


def _container(wire: _Container, host_network: bool, *, init: bool) -> Container:
    quantities = _part(wire.resources, _Quantities, "spec.containers[].resources") or _Quantities()
    ports = _part(wire.ports, tuple[_Port, ...], "spec.containers[].ports") or ()
    return Container(
        name=wire.name,
        image=wire.image,
        requests=resource_list(quantities.requests, "spec.containers[].resources.requests"),
        limits=resource_list(quantities.limits, "spec.containers[].resources.limits"),
        host_ports=tuple(
            HostPort(port, p.protocol or "TCP", p.host_ip or "0.0.0.0")
            for p in ports
            if (port := p.host_port or (p.container_port if host_network else 0)) > 0
        ),
        sidecar=init and wire.restart_policy == "Always",
    )


def _volume(wire: _Volume, pod_name: str) -> Volume | None:
    """The volume if it matters to the scheduler or to policy; None for secrets and the like."""
    if (claim := wire.persistent_volume_claim) is not None:
        return Volume(
            wire.name,
            "persistentVolumeClaim",
            claim=str(claim.get("claimName", "")),
            read_only=bool(claim.get("readOnly")),
        )
    if not absent(wire.ephemeral):
        return Volume(wire.name, "ephemeral", claim=f"{pod_name}-{wire.name}" if pod_name else "")
    if not absent(wire.host_path):
        return Volume(wire.name, "hostPath")
    if not absent(wire.empty_dir):
        return Volume(wire.name, "emptyDir")
    if (csi := wire.csi) is not None:
        return Volume(
            wire.name, "csi", driver=str(csi.get("driver", "")), read_only=bool(csi.get("readOnly"))
        )
    for kind, source, fields in (
        ("gcePersistentDisk", wire.gce_persistent_disk, ("pdName",)),
        ("awsElasticBlockStore", wire.aws_elastic_block_store, ("volumeID",)),
        ("azureDisk", wire.azure_disk, ("diskName",)),
        ("iscsi", wire.iscsi, ("iqn",)),
        ("rbd", wire.rbd, ("pool", "image")),
    ):
        if source is not None:
            device: tuple[str, ...] = (kind, *(str(source.get(f, "")) for f in fields))
            if kind == "rbd":
                monitors = source.get("monitors")
                device += tuple(map(str, monitors)) if isinstance(monitors, list) else ()
            return Volume(wire.name, kind, device=device, read_only=bool(source.get("readOnly")))
    return None
