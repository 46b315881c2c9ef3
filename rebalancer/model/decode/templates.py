"""A pod's spec and labels → `PodTemplate`, one object for all pods that agree on it.

The memo is keyed by the bytes of the fields that identical pods share, so 150,000 pods need a few thousand
decodings. Fields that differ between otherwise identical pods (the projected token volume with its random
name, its mounts) are not read at all and thus are not part of the key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from rebalancer.model.decode.pod_json import (
    ContainerJson,
    ContextJson,
    PodSpecJson,
    PortJson,
    Quantities,
    VolumeJson,
    absent,
    part,
)
from rebalancer.model.node import Toleration
from rebalancer.model.pod import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    Affinity,
    Container,
    HostPort,
    PodTemplate,
    Requests,
    TopologySpreadConstraint,
    Volume,
    of_the_whole_pod,
    pod_requests,
)
from rebalancer.model.quantity import resource_list

_SCORE_DEFAULTS = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}


class TemplateDecoder:
    """Decodes the templates of one cluster; equal ones become one object."""

    def __init__(self) -> None:
        self._templates: dict[bytes, PodTemplate] = {}
        self._parts: dict[tuple[str, bytes], object] = {}

    @property
    def entries(self) -> int:
        """How many templates and parts of templates are remembered."""
        return len(self._templates) + len(self._parts)

    def keep(self, used: Collection[int]) -> None:
        """Forgets all templates except those with these ids, and all parts that only forgotten templates
        have."""
        self._templates = {k: t for k, t in self._templates.items() if id(t) in used}
        parts: set[int] = set()
        for t in self._templates.values():
            parts.update((id(t.node_selector), id(t.affinity), id(t.tolerations), id(t.spread)))
        self._parts = {k: v for k, v in self._parts.items() if v is not None and id(v) in parts}

    def template(
        self,
        namespace: str,
        labels: Raw | bytes,
        spec: PodSpecJson,
        pod_name: str = "",
        controller: tuple[str, str, str] | None = None,
        pod_uid: str = "",
        *,
        annotations: Raw | bytes = b"",
        devices: bool = False,
        by_claims: bool = False,
        runs: frozenset[bytes] | None = None,
    ) -> PodTemplate:
        """The template of a pod spec in this namespace with these labels and annotations (JSON objects).

        `devices`: an extended resource of the pod was served by a claim that the scheduler made for it.
        `by_claims`: claims of it take of what its node can allocate.
        """
        volumes = tuple(v for w in spec.volumes if (v := decode_volume(w, pod_name, pod_uid)) is not None)
        noted = _noted_profiles(annotations)
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
                f"{spec.priority or 0}\1{spec.priority_class_name}\1{spec.preemption_policy}"
                f"\1{spec.scheduler_name}\1{spec.host_network}\1{spec.host_pid}\1{spec.host_ipc}\1{spec.host_users}\1{spec.ends}"
                f"\1{devices}\1{by_claims}\1{spec.service_account_name}\1{spec.service_account}"
                f"\1{spec.runtime_class_name}".encode(),
                spec.scheduling_gates,
                spec.resource_claims,
                spec.scheduling_group,
                spec.workload_ref,
                spec.eviction_responders,
                spec.os,
                spec.security_context,
                repr(controller).encode(),
                " ".join(noted).encode(),
                *sorted(runs or ()),
            )
        )
        found = self._templates.get(key)
        if found is None:
            built = self._build(
                namespace, labels, spec, volumes, controller, noted=noted, devices=devices, runs=runs
            )
            found = self._templates[key] = replace(built, by_claims=True) if by_claims else built
        return found

    def _build(
        self,
        namespace: str,
        labels: Raw | bytes,
        spec: PodSpecJson,
        volumes: tuple[Volume, ...],
        controller: tuple[str, str, str] | None,
        *,
        noted: Collection[str],
        devices: bool,
        runs: frozenset[bytes] | None,
    ) -> PodTemplate:
        containers = tuple(_container(c, spec.host_network, init=False) for c in spec.containers)
        inits = tuple(_container(c, spec.host_network, init=True) for c in spec.init_containers)
        overhead = resource_list(
            part(spec.overhead, dict[str, str | int | float], "spec.overhead"), "spec.overhead"
        )
        contexts = [
            part(raw, ContextJson, "spec.securityContext") or ContextJson()
            for raw in spec.asked_of_node().split(b"\1")
        ]
        armor = {*noted, *(p.type for c in contexts if (p := c.app_armor_profile))}
        profiles = {*armor, *(p.type for c in contexts if (p := c.seccomp_profile))}
        whole = part(spec.resources, Quantities, "spec.resources") or Quantities()
        pod_level, pod_level_limits = _whole(whole, containers, inits)
        requests = pod_requests(containers, inits, overhead, pod_level)
        assumed = _SCORE_DEFAULTS
        if pod_level:
            # With pod-level resources, defaults are used only for what the pod does not request at all
            # (framework/types.go, getNonMissingContainerRequests).
            assumed = {name: v for name, v in _SCORE_DEFAULTS.items() if not requests.get(name)}
        nonzero = pod_requests(containers, inits, overhead, pod_level, defaults=assumed)
        scored = nonzero
        if pod_level:
            scored = pod_requests(containers, inits, overhead, {}, defaults=_SCORE_DEFAULTS)
        return PodTemplate(
            namespace=namespace,
            labels=part(labels, dict[str, str], "metadata.labels") or {},
            requests=requests,
            nonzero_cpu=nonzero.get("cpu", 0),
            nonzero_memory=nonzero.get("memory", 0),
            scored_cpu=scored.get("cpu", 0),
            scored_memory=scored.get("memory", 0),
            overhead=overhead,
            pod_level=pod_level,
            pod_level_limits=pod_level_limits,
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
            priority=spec.priority or 0,
            priority_class=spec.priority_class_name,
            preempts=spec.preemption_policy != "Never",
            scheduler_name=spec.scheduler_name or "default-scheduler",
            scheduling_gates=tuple(
                g["name"]
                for g in part(spec.scheduling_gates, list[dict[str, str]], "spec.schedulingGates") or ()
            ),
            scheduling_group=_group(spec),
            resource_claims=devices or bool(part(spec.resource_claims, list[object], "spec.resourceClaims")),
            eviction_responders=tuple(
                str(r.get("name", ""))
                for r in part(spec.eviction_responders, list[dict[str, object]], "spec.evictionResponders")
                or ()
            ),
            node_features=_features(spec),
            host_network=spec.host_network,
            ends=spec.ends,
            own_users=spec.host_users is False,
            read_only_throughout=any(
                c.read_only_throughout for c in (*spec.containers, *spec.init_containers)
            ),
            strict_groups=contexts[0].supplemental_groups_policy == "Strict",
            sysctls=tuple(s.name for s in contexts[0].sysctls or ()),
            local_profiles="Localhost" in profiles,
            app_armor=not armor <= {"Unconfined"},
            os=(part(spec.os, dict[str, str], "spec.os") or {}).get("name", ""),
            security=msgspec.json.encode(said) if (said := spec.security()) else b"",
            service_account=spec.service_account_name or spec.service_account,
            runtime_class=spec.runtime_class_name,
            controller=controller,
            runs=runs,
        )

    def _shared(self, raw: Raw | bytes, type_: Any, path: str) -> Any:
        """A decoded part, the same object for equal bytes, so that its identity can be the key of a cache."""
        key = (path, bytes(raw))
        if key not in self._parts:
            self._parts[key] = part(raw, type_, path)
        return self._parts[key]


# Of limits that are stated alone the API server makes requests, in each pod; in templates never.
#
# Rule: kubernetes pkg/apis/core/v1, ``SetDefaults_Pod``. So what owners state is filled in here as it will be
# in their pods, where it changes nothing.


def _whole(
    stated: Quantities, containers: tuple[Container, ...], inits: tuple[Container, ...]
) -> tuple[Requests, Requests]:
    """The requests and limits of the pod as a whole. Where it states a limit, what its containers request
    counts before that, but for huge pages."""
    requests = resource_list(stated.requests, "spec.resources.requests")
    limits = resource_list(stated.limits, "spec.resources.limits")
    if not limits:
        return requests, limits
    together = of_the_whole_pod(pod_requests(containers, inits, {}, {}))
    first = {r: n for r, n in together.items() if r in _SCORE_DEFAULTS or r not in limits}
    return {**limits, **first, **requests}, limits


def _container(wire: ContainerJson, host_network: bool, *, init: bool) -> Container:
    quantities = part(wire.resources, Quantities, "spec.containers[].resources") or Quantities()
    ports = part(wire.ports, tuple[PortJson, ...], "spec.containers[].ports") or ()
    requests = resource_list(quantities.requests, "spec.containers[].resources.requests")
    limits = resource_list(quantities.limits, "spec.containers[].resources.limits")
    return Container(
        name=wire.name,
        image=wire.image,
        requests={**limits, **requests},
        limits=limits,
        host_ports=tuple(
            HostPort(port, p.protocol or "TCP", p.host_ip or "0.0.0.0")
            for p in ports
            if (port := p.host_port or (p.container_port if host_network else 0)) > 0
        ),
        sidecar=init and wire.restart_policy == "Always",
        pull=wire.image_pull_policy,
        security=msgspec.json.encode(asked) if (asked := wire.security()) else b"{}",
    )


_APP_ARMOR = b"container.apparmor.security.beta.kubernetes.io/"
_PROFILES = {"localhost": "Localhost", "runtime": "RuntimeDefault"}


def _noted_profiles(annotations: Raw | bytes) -> list[str]:
    """The types of the AppArmor profiles that annotations name: up to 1.29 no field does."""
    if _APP_ARMOR not in bytes(annotations):
        return []
    said = part(annotations, dict[str, str], "metadata.annotations") or {}
    values = (v for k, v in said.items() if k.startswith(_APP_ARMOR.decode()))
    return sorted({_PROFILES.get(v.partition("/")[0], "Unconfined") for v in values})


def _group(spec: PodSpecJson) -> str:
    """The group that spec.schedulingGroup, or the older spec.workloadRef, names; "" without either.

    A member of these that is not known yet still means a group.
    """
    group = part(spec.scheduling_group, dict[str, object], "spec.schedulingGroup")
    ref = part(spec.workload_ref, dict[str, object], "spec.workloadRef")
    said = group or ref
    if not said:
        return ""
    return str(said.get("podGroupName") or said.get("name") or "without a name")


def _features(spec: PodSpecJson) -> tuple[str, ...]:
    """The features that the pod's node must declare (KEP-5328, component-helpers/nodedeclaredfeatures)."""
    found = []
    if spec.host_network and spec.host_users is False:
        found.append("UserNamespacesHostNetworkSupport")
    rules = (
        rule
        for c in (*spec.containers, *spec.init_containers)
        for rule in part(
            c.restart_policy_rules, list[dict[str, object]], "spec.containers[].restartPolicyRules"
        )
        or ()
    )
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        found.append("RestartAllContainersOnContainerExits")
    if any(c.mount_options for c in (*spec.containers, *spec.init_containers)):
        found.append("VolumeBindMountOptions")
    return tuple(found)


# JSON of a pod's volume → `Volume`.


def decode_volume(wire: VolumeJson, pod_name: str, pod_uid: str) -> Volume | None:
    """The volume, if it matters to the scheduler, Pod Security or policy; None for secrets and the like.

    `pod_name`, `pod_uid`: of the pod that it is in, "" for a pod that does not exist yet.
    """
    if wire.of_api_objects:  # most are, and matter to nobody
        return None
    if (claim := wire.persistent_volume_claim) is not None:
        return Volume(
            wire.name,
            "persistentVolumeClaim",
            claim=str(claim.get("claimName", "")),
            read_only=bool(claim.get("readOnly")),
        )
    if not absent(wire.ephemeral):
        claim_name = f"{pod_name}-{wire.name}" if pod_name else ""
        return Volume(wire.name, "ephemeral", claim=claim_name, owner=pod_uid)
    if not absent(wire.host_path):
        return Volume(wire.name, "hostPath")
    if not absent(wire.empty_dir):
        return Volume(wire.name, "emptyDir")
    if (csi := wire.csi) is not None:
        return Volume(
            wire.name, "csi", driver=str(csi.get("driver", "")), read_only=bool(csi.get("readOnly"))
        )
    if (image := wire.image) is not None:
        local = image.get("pullPolicy") == "Never"
        return Volume(wire.name, "image", image=str(image.get("reference", "")), local=local)
    for kind, source, fields in (
        ("gcePersistentDisk", wire.gce_persistent_disk, ("pdName",)),
        ("awsElasticBlockStore", wire.aws_elastic_block_store, ("volumeID",)),
        ("azureDisk", wire.azure_disk, ("diskName",)),
        ("iscsi", wire.iscsi, ("iqn",)),
        ("rbd", wire.rbd, ("pool", "image")),
        ("cinder", wire.cinder, ("volumeID",)),
        ("fc", wire.fc, ()),
        ("flexVolume", wire.flex_volume, ()),
        ("portworxVolume", wire.portworx_volume, ("volumeID",)),
        ("vsphereVolume", wire.vsphere_volume, ()),
    ):
        if source is not None:
            device: tuple[str, ...] = (kind, *(str(source.get(f, "")) for f in fields))
            if kind == "rbd":
                monitors = source.get("monitors")
                device += tuple(map(str, monitors)) if isinstance(monitors, list) else ()
            return Volume(wire.name, kind, device=device, read_only=bool(source.get("readOnly")))
    return Volume(wire.name, "")
