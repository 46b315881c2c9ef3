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
from rebalancer.model.pod import (
    Phase,
)

_NONE = Raw(b"null")
_NEVER = "Never"
_OF_NODES = (b'"Localhost"', b'"appArmorProfile"', b'"sysctls"', b'"Strict"')


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
    recursive_read_only: str | None = None


class ContainerJson(Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    resources: Raw = _NONE
    ports: Raw = _NONE
    restart_policy: str = ""
    restart_policy_rules: Raw = _NONE
    volume_mounts: tuple[_MountJson, ...] = ()
    security_context: Raw = _NONE
    liveness_probe: Raw = _NONE
    readiness_probe: Raw = _NONE
    startup_probe: Raw = _NONE
    lifecycle: Raw = _NONE

    def security(self) -> dict[str, object]:
        """What Pod Security reads of it, beside its name: of ports and probes only such as name a host."""
        near_hosts = {
            "ports": self.ports,
            "livenessProbe": self.liveness_probe,
            "readinessProbe": self.readiness_probe,
            "startupProbe": self.startup_probe,
            "lifecycle": self.lifecycle,
        }
        found: dict[str, object] = {name: raw for name, raw in near_hosts.items() if b'"host' in bytes(raw)}
        return found | _present({"securityContext": self.security_context})

    def key(self) -> bytes:
        """Bytes that are equal for equal containers."""
        return b"\1".join(
            (
                self.name.encode(),
                self.image.encode(),
                self.image_pull_policy.encode(),
                self.resources,
                self.ports,
                self.restart_policy.encode(),
                self.restart_policy_rules,
                self.security_context,
                self.liveness_probe,
                self.readiness_probe,
                self.startup_probe,
                self.lifecycle,
                *self.mount_options,
                b"read-only" if self.read_only_throughout else b"",
            )
        )

    @property
    def read_only_throughout(self) -> bool:
        """Whether a mount has to be read-only with all that is mounted below it."""
        return any(m.recursive_read_only == "Enabled" for m in self.volume_mounts)

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
    cinder: dict[str, object] | None = None
    fc: dict[str, object] | None = None
    flex_volume: dict[str, object] | None = None
    portworx_volume: dict[str, object] | None = None
    vsphere_volume: dict[str, object] | None = None
    config_map: Raw = _NONE
    secret: Raw = _NONE
    downward_api: Raw = msgspec.field(name="downwardAPI", default=_NONE)
    projected: Raw = _NONE

    @property
    def harmless(self) -> bool:
        """Whether it is of a kind that every level lets pass."""
        known = (self.persistent_volume_claim, self.csi, self.image)
        return (
            self.of_api_objects
            or not (absent(self.empty_dir) and absent(self.ephemeral))
            or any(k is not None for k in known)
        )

    @property
    def of_api_objects(self) -> bool:
        """Whether it shows what stands in Secrets, ConfigMaps or the pod itself."""
        return not (
            absent(self.projected)
            and absent(self.config_map)
            and absent(self.secret)
            and absent(self.downward_api)
        )


class _ProfileJson(Struct, frozen=True):
    type: str = ""


class _NamedJson(Struct, frozen=True):
    name: str = ""


class ContextJson(Struct, frozen=True, rename="camel"):
    seccomp_profile: _ProfileJson | None = None
    app_armor_profile: _ProfileJson | None = None
    sysctls: tuple[_NamedJson, ...] | None = None
    supplemental_groups_policy: str | None = None


class PodSpecJson(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[ContainerJson, ...] = ()
    init_containers: tuple[ContainerJson, ...] = ()
    ephemeral_containers: tuple[Raw, ...] | None = None
    node_selector: Raw = _NONE
    affinity: Raw = _NONE
    tolerations: Raw = _NONE
    topology_spread_constraints: Raw = _NONE
    overhead: Raw = _NONE
    resources: Raw = _NONE
    volumes: tuple[VolumeJson, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: Raw = _NONE
    resource_claims: Raw = _NONE
    scheduling_group: Raw = _NONE
    workload_ref: Raw = _NONE
    eviction_responders: Raw = _NONE
    host_network: bool = False
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    host_users: bool | None = None
    os: Raw = _NONE
    security_context: Raw = _NONE
    service_account_name: str = ""
    service_account: str = ""
    termination_grace_period_seconds: int = 30
    restart_policy: str = ""
    active_deadline_seconds: int | None = None

    @property
    def ends(self) -> bool:
        """Whether the pod ends by itself."""
        return self.restart_policy in ("OnFailure", _NEVER) or self.active_deadline_seconds is not None

    def security(self) -> dict[str, object]:
        """What Pod Security reads of it, beside its containers and volumes."""
        found = _present({"securityContext": self.security_context, "os": self.os}) | {
            "hostNetwork": self.host_network or None,
            "hostPID": self.host_pid or None,
            "hostIPC": self.host_ipc or None,
            "hostUsers": self.host_users,
        }
        return {k: v for k, v in found.items() if v or v is False}

    def asked_of_node(self) -> bytes:
        """The security contexts, the pod's first, where one may ask something of the node; else b""."""
        every = (c.security_context for c in (*self.containers, *self.init_containers))
        contexts = b"\1".join((self.security_context, *every))
        return contexts if any(word in contexts for word in _OF_NODES) else b""


class _PodMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Raw = _NONE
    annotations: Raw = _NONE
    owner_references: Raw = _NONE
    managed_fields: Raw = _NONE
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class _PodCondition(Condition, frozen=True, rename="camel"):
    last_transition_time: datetime | None = None


class _Waiting(Struct, frozen=True):
    reason: str = ""


class _Terminated(Struct, frozen=True, rename="camel"):
    finished_at: datetime | None = None


class _ContainerState(Struct, frozen=True):
    waiting: _Waiting | None = None
    running: Raw = _NONE
    terminated: Raw = _NONE


class _LastState(Struct, frozen=True):
    terminated: _Terminated | None = None


class ContainerStatusJson(Struct, frozen=True, rename="camel"):
    """What a container was given: `allocated_resources` by its kubelet, `resources` by the runtime."""

    name: Raw = _NONE
    allocated_resources: Raw = _NONE
    resources: Raw = _NONE
    state: _ContainerState | None = None
    started: bool | None = None
    last_state: _LastState | None = None


class PodStatusJson(Struct, frozen=True, rename="camel"):
    phase: Phase = "Pending"
    reason: str = ""
    conditions: tuple[_PodCondition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    container_statuses: tuple[ContainerStatusJson, ...] | None = None
    init_container_statuses: tuple[ContainerStatusJson, ...] | None = None
    ephemeral_container_statuses: tuple[ContainerStatusJson, ...] | None = None
    allocated_resources: Raw = _NONE
    resources: Raw = _NONE
    extended_resource_claim_status: Raw = _NONE
    node_allocatable_resource_claim_statuses: Raw = _NONE


class PodJson(Struct, frozen=True, rename="camel"):
    metadata: _PodMeta
    spec: PodSpecJson = PodSpecJson()
    status: PodStatusJson = PodStatusJson()


class _SecretJson(Struct, frozen=True, rename="camel"):
    secret_name: str = ""


class _ValueJson(Struct, frozen=True, rename="camel"):
    secret_key_ref: _NamedJson | None = None


class _VariableJson(Struct, frozen=True, rename="camel"):
    """An entry of `env`, or of `envFrom`."""

    value_from: _ValueJson = _ValueJson()
    secret_ref: _NamedJson | None = None


class _TemplateContainerJson(ContainerJson, frozen=True, rename="camel"):
    env: tuple[_VariableJson, ...] = ()
    env_from: tuple[_VariableJson, ...] = ()


class TemplateSpecJson(PodSpecJson, frozen=True, rename="camel"):
    """What of a template decides whether the API server makes a pod of it."""

    containers: tuple[_TemplateContainerJson, ...] = ()
    init_containers: tuple[_TemplateContainerJson, ...] = ()
    image_pull_secrets: tuple[_NamedJson, ...] = ()

    def secrets(self) -> frozenset[str]:
        """Names of the Secrets that a ServiceAccount may withhold.

        Rule: plugin/pkg/admission/serviceaccount, ``limitSecretReferences``, which passes over projections.
        """
        mounted = (part(v.secret, _SecretJson, "spec.volumes.secret") for v in self.volumes)
        said = [e for c in (*self.containers, *self.init_containers) for e in (*c.env, *c.env_from)]
        refs = (ref for e in said for ref in (e.value_from.secret_key_ref, e.secret_ref) if ref is not None)
        return frozenset((*(m.secret_name for m in mounted if m is not None), *(ref.name for ref in refs)))


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
        spec = {
            **s.security(),
            "containers": [{"name": c.name, **c.security()} for c in s.containers],
            "initContainers": [{"name": c.name, **c.security()} for c in s.init_containers],
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
