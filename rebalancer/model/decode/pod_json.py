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


class ContainerJson(Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str = ""
    resources: Raw = _NONE
    ports: Raw = _NONE
    restart_policy: str = ""
    restart_policy_rules: Raw = _NONE

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
            )
        )


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


class ContainerStatusJson(Struct, frozen=True, rename="camel"):
    """What a container was given: `allocated_resources` by its kubelet, `resources` by the runtime."""

    name: Raw = _NONE
    allocated_resources: Raw = _NONE
    resources: Raw = _NONE


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


class _TemplateMeta(Struct, frozen=True, rename="camel"):
    labels: Raw = _NONE
    annotations: Raw = _NONE


class TemplateJson(Struct, frozen=True, rename="camel"):
    """spec.template of a workload."""

    metadata: _TemplateMeta = _TemplateMeta()
    spec: PodSpecJson = PodSpecJson()


def absent(raw: Raw | bytes) -> bool:
    """Whether the field is missing or null."""
    return raw is _NONE or bytes(raw) in (b"", b"null")


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
