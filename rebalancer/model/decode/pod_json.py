"""The fields that are read of the JSON of a pod and of a pod template.

Fields that identical pods share stay undecoded bytes (msgspec.Raw) here, and are decoded once for all of
them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rebalancer.model.node import Condition
from rebalancer.model.pod import Phase

_NONE = Raw(b"null")


class Quantities(Struct, frozen=True, rename="camel"):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class PortJson(Struct, frozen=True, rename="camel"):
    host_port: int = 0
    container_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class _MountJson(Struct, frozen=True, rename="camel"):
    bind_mount_options: Raw = _NONE


class ContainerJson(Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str = ""
    resources: Raw = _NONE
    ports: Raw = _NONE
    restart_policy: str = ""
    restart_policy_rules: Raw = _NONE
    volume_mounts: tuple[_MountJson, ...] = ()

    def key(self) -> bytes:
        """Bytes that are equal for equal containers."""
        return b"\1".join(
            (
                self.name.encode(),
                self.image.encode(),
                self.resources,
                self.ports,
                self.restart_policy.encode(),
                self.restart_policy_rules,
                *self.mount_options,
            )
        )

    @property
    def mount_options(self) -> list[Raw]:
        """The bindMountOptions of its mounts that have some; all else of mounts differs from pod to pod."""
        options = (m.bind_mount_options for m in self.volume_mounts)
        return [o for o in options if not absent(o)]


class VolumeJson(Struct, frozen=True, rename="camel"):
    name: str
    persistent_volume_claim: dict[str, object] | None = None
    ephemeral: Raw = _NONE
    host_path: Raw = _NONE
    empty_dir: Raw = _NONE
    csi: dict[str, object] | None = None
    image: dict[str, object] | None = None
    gce_persistent_disk: dict[str, object] | None = msgspec.field(name="gcePersistentDisk", default=None)
    aws_elastic_block_store: dict[str, object] | None = msgspec.field(
        name="awsElasticBlockStore", default=None
    )
    azure_disk: dict[str, object] | None = msgspec.field(name="azureDisk", default=None)
    iscsi: dict[str, object] | None = None
    rbd: dict[str, object] | None = None


class PodSpecJson(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[ContainerJson, ...] = ()
    init_containers: tuple[ContainerJson, ...] = ()
    node_selector: Raw = _NONE
    affinity: Raw = _NONE
    tolerations: Raw = _NONE
    topology_spread_constraints: Raw = _NONE
    overhead: Raw = _NONE
    resources: Raw = _NONE
    volumes: tuple[VolumeJson, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = ""
    scheduling_gates: Raw = _NONE
    resource_claims: Raw = _NONE
    scheduling_group: Raw = _NONE
    workload_ref: Raw = _NONE
    eviction_responders: Raw = _NONE
    host_network: bool = False
    host_users: bool | None = None
    termination_grace_period_seconds: int = 30


class _PodMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Raw = _NONE
    annotations: Raw = _NONE
    owner_references: Raw = _NONE
    managed_fields: Raw = _NONE
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class _PodCondition(Condition, frozen=True, rename="camel"):
    last_transition_time: datetime | None = None


class _Waiting(Struct, frozen=True):
    reason: str = ""


class _ContainerState(Struct, frozen=True):
    waiting: _Waiting | None = None


class ContainerStatusJson(Struct, frozen=True, rename="camel"):
    """What a container was given: `allocated_resources` by its kubelet, `resources` by the runtime."""

    name: Raw = _NONE
    allocated_resources: Raw = _NONE
    resources: Raw = _NONE
    state: _ContainerState | None = None


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: Phase = "Pending"
    conditions: tuple[_PodCondition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    container_statuses: tuple[ContainerStatusJson, ...] | None = None
    init_container_statuses: tuple[ContainerStatusJson, ...] | None = None
    allocated_resources: Raw = _NONE
    resources: Raw = _NONE
    extended_resource_claim_status: Raw = _NONE


class PodJson(Struct, frozen=True, rename="camel"):
    metadata: _PodMeta
    spec: PodSpecJson = PodSpecJson()
    status: _PodStatus = _PodStatus()


class _SecuredContainerJson(ContainerJson, frozen=True, rename="camel"):
    security_context: Raw = _NONE
    liveness_probe: Raw = _NONE
    readiness_probe: Raw = _NONE
    startup_probe: Raw = _NONE
    lifecycle: Raw = _NONE

    def security(self) -> dict[str, object]:
        return {"name": self.name} | _present(
            {
                "ports": self.ports,
                "securityContext": self.security_context,
                "livenessProbe": self.liveness_probe,
                "readinessProbe": self.readiness_probe,
                "startupProbe": self.startup_probe,
                "lifecycle": self.lifecycle,
            }
        )


class _SecuredVolumeJson(VolumeJson, frozen=True, rename="camel"):
    config_map: Raw = _NONE
    secret: Raw = _NONE
    downward_api: Raw = msgspec.field(name="downwardAPI", default=_NONE)
    projected: Raw = _NONE

    @property
    def harmless(self) -> bool:
        """Whether it is of a kind that every level lets pass."""
        sources = (
            self.config_map,
            self.secret,
            self.downward_api,
            self.projected,
            self.empty_dir,
            self.ephemeral,
        )
        known = (self.persistent_volume_claim, self.csi, self.image)
        return not all(absent(s) for s in sources) or any(k is not None for k in known)


class TemplateSpecJson(PodSpecJson, frozen=True, rename="camel"):
    """What of a template decides whether the API server makes a pod of it."""

    containers: tuple[_SecuredContainerJson, ...] = ()
    init_containers: tuple[_SecuredContainerJson, ...] = ()
    volumes: tuple[_SecuredVolumeJson, ...] = ()
    service_account_name: str = ""
    service_account: str = ""
    runtime_class_name: str = ""
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    security_context: Raw = _NONE
    os: Raw = _NONE


class _TemplateMeta(Struct, frozen=True, rename="camel"):
    labels: Raw = _NONE
    annotations: Raw = _NONE


class TemplateJson(Struct, frozen=True, rename="camel"):
    """spec.template of a workload."""

    metadata: _TemplateMeta = _TemplateMeta()
    spec: TemplateSpecJson = TemplateSpecJson()

    def security(self) -> bytes:
        """What Pod Security reads of it, as JSON of the same shape: a fraction of the whole."""
        s = self.spec
        spec = _present({"securityContext": s.security_context, "os": s.os}) | {
            "hostNetwork": s.host_network or None,
            "hostPID": s.host_pid or None,
            "hostIPC": s.host_ipc or None,
            "hostUsers": s.host_users,
            "containers": [c.security() for c in s.containers],
            "initContainers": [c.security() for c in s.init_containers],
            "volumes": [
                {"name": v.name, **({} if absent(v.host_path) else {"hostPath": {}})}
                for v in s.volumes
                if not v.harmless
            ],
        }
        noted = _present({"annotations": self.metadata.annotations})
        return msgspec.json.encode(
            {"metadata": noted, "spec": {k: v for k, v in spec.items() if v or v is False}}
        )


def absent(raw: Raw | bytes) -> bool:
    """Whether the field is missing or null."""
    return raw is _NONE or bytes(raw) in (b"", b"null")


def _present(fields: dict[str, Raw]) -> dict[str, object]:
    return {name: raw for name, raw in fields.items() if not absent(raw)}


def part(raw: Raw | bytes, type_: Any, path: str) -> Any:
    """Decodes a field that was left as bytes; None if it is missing. An error names the whole path."""
    if absent(raw):
        return None
    try:
        return msgspec.json.decode(raw, type=type_)
    except msgspec.ValidationError as e:
        text = str(e)
        where = text.partition(" - at `$")[2].rstrip("`")
        raise msgspec.ValidationError(f"{text.partition(' - at `')[0]} - at `$.{path}{where}`") from e
