"""A pod's spec and labels → `PodTemplate`, one object for all pods that agree on it.

The memo is keyed by the bytes of the fields that identical pods share, so 150,000 pods need a few thousand
decodings. Fields that differ between otherwise identical pods (the projected token volume with its random
name, its mounts) are not read at all and thus are not part of the key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rebalancer.model.node import Condition, Toleration
from rebalancer.model.pod import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    Affinity,
    Container,
    HostPort,
    Phase,
    PodTemplate,
    TopologySpreadConstraint,
    Volume,
    pod_requests,
)
from rebalancer.model.quantity import resource_list

# The fields that are read of the JSON of a pod and of a pod template.
#
# Fields that identical pods share stay undecoded bytes (msgspec.Raw) here, and are decoded once for all of
# them.

_NONE = Raw(b"null")
_NEVER = "Never"
_OF_NODES = (b'"Localhost"', b'"sysctls"', b'"Strict"')


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


class _ProfileJson(Struct, frozen=True):
    type: str = ""


class _NamedJson(Struct, frozen=True):
    name: str = ""


class _ContextJson(Struct, frozen=True, rename="camel"):
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
    os: Raw = _NONE
    security_context: Raw = _NONE
    termination_grace_period_seconds: int = 30
    restart_policy: str = ""
    active_deadline_seconds: int | None = None

    @property
    def ends(self) -> bool:
        """Whether the pod ends by itself."""
        return self.restart_policy in ("OnFailure", _NEVER) or self.active_deadline_seconds is not None

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


class PodJson(Struct, frozen=True, rename="camel"):
    metadata: _PodMeta
    spec: PodSpecJson = PodSpecJson()
    status: PodStatusJson = PodStatusJson()


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

    volumes: tuple[_SecuredVolumeJson, ...] = ()
    service_account_name: str = ""
    service_account: str = ""
    runtime_class_name: str = ""
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)


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


# JSON of a pod's volume → `Volume`.


def decode_volume(wire: VolumeJson, pod_name: str, pod_uid: str) -> Volume | None:
    """The volume, if it matters to the scheduler or to policy; None for secrets and the like.

    `pod_name`, `pod_uid`: of the pod that it is in, "" for a pod that does not exist yet.
    """
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
        local = image.get("pullPolicy") == _NEVER
        return Volume(wire.name, "image", image=str(image.get("reference", "")), local=local)
    for kind, source, fields in (
        ("gcePersistentDisk", wire.gce_persistent_disk, ("pdName",)),
        ("awsElasticBlockStore", wire.aws_elastic_block_store, ("volumeID",)),
        ("azureDisk", wire.azure_disk, ("diskName",)),
        ("iscsi", wire.iscsi, ("iqn",)),
        ("rbd", wire.rbd, ("pool", "image")),
        ("cinder", wire.cinder, ()),
        ("fc", wire.fc, ()),
        ("flexVolume", wire.flex_volume, ()),
        ("portworxVolume", wire.portworx_volume, ()),
        ("vsphereVolume", wire.vsphere_volume, ()),
    ):
        if source is not None:
            device: tuple[str, ...] = (kind, *(str(source.get(f, "")) for f in fields))
            if kind == "rbd":
                monitors = source.get("monitors")
                device += tuple(map(str, monitors)) if isinstance(monitors, list) else ()
            return Volume(wire.name, kind, device=device, read_only=bool(source.get("readOnly")))
    return None


# What a pod runs: read only where an eviction may roll out what somebody has edited.


class _RunningJson(Struct, frozen=True):
    spec: dict[str, Any] = {}


class _MakingSpecJson(Struct, frozen=True):
    template: _RunningJson = _RunningJson()


class _MakingJson(Struct, frozen=True):
    spec: _MakingSpecJson = _MakingSpecJson()


_ACCESS = "kube-api-access-"
"""How the name of a volume begins that admission adds to each pod. The rest of it is the pod's own, and would
give each pod a template of its own (plugin/pkg/admission/serviceaccount)."""
_RUNNING = ("containers", "initContainers")
_NOT_RUN = frozenset(
    [
        "nodeName",
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "schedulerName",
        "schedulingGates",
        "priority",
        "priorityClassName",
        "preemptionPolicy",
        "overhead",
        "resources",
        "resourceClaims",
        "ephemeralContainers",
        "serviceAccount",
        "serviceAccountName",
    ]
).union(_RUNNING)
"""Fields of a pod spec that are compared elsewhere, or that admission may set anew."""
_GIVEN = frozenset(
    ["name", "image", "imagePullPolicy", "resources", "terminationMessagePath", "terminationMessagePolicy"]
)
"""The same of a container."""
_DEFAULTS = {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
"""What a template may say that the pod of a file leaves unsaid."""
_PROBES = frozenset(("livenessProbe", "readinessProbe", "startupProbe"))


def runs_of(raw: bytes | Raw, *, template: bool = False) -> frozenset[bytes]:
    """What a pod runs, or what an owner's template says of that, in small parts: admission adds parts, and
    takes none away. What is read elsewhere is left out; of probes, which service meshes rewrite, all but that
    they are there. What the template says nothing of, and a pod has, may be admission's, but a command."""
    json = msgspec.json
    spec = json.decode(raw, type=_MakingJson).spec.template.spec if template else None
    spec = spec or json.decode(raw, type=_RunningJson).spec
    found = list(_parts("", {k: v for k, v in spec.items() if k not in _NOT_RUN and v != _DEFAULTS.get(k)}))
    found.append(["", "account", spec.get("serviceAccountName") or "default"])
    for c in (c for kind in _RUNNING for c in spec.get(kind) or ()):
        said = {k: k in _PROBES or v for k, v in c.items() if k not in _GIVEN}
        found += _parts(c.get("name", ""), {"command": None, "args": None, **said})
    return frozenset(json.encode(one, order="sorted") for one in found)


def _parts(where: str, said: dict[str, Any]) -> Iterator[list[Any]]:
    for key, value in said.items():
        if isinstance(value, dict):
            yield from ([where, key, *one] for one in value.items())
        elif isinstance(value, list) and key not in ("command", "args"):
            several = (one for one in value if not _access(one))
            yield from ([where, key, one] for one in several)
        else:
            yield [where, key, value]


def _access(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("name", "")).startswith(_ACCESS)


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
        devices: bool = False,
        runs: frozenset[bytes] | None = None,
    ) -> PodTemplate:
        """The template of a pod spec in this namespace with these labels (a JSON object).

        `devices`: an extended resource of the pod was served by a claim that the scheduler made for it.
        """
        volumes = tuple(v for w in spec.volumes if (v := decode_volume(w, pod_name, pod_uid)) is not None)
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
                f"\1{spec.host_network}\1{spec.host_users}\1{spec.ends}\1{devices}".encode(),
                spec.scheduling_gates,
                spec.resource_claims,
                spec.scheduling_group,
                spec.workload_ref,
                spec.eviction_responders,
                spec.os,
                spec.security_context,
                repr(controller).encode(),
                *sorted(runs or ()),
            )
        )
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = self._build(
                namespace, labels, spec, volumes, controller, devices=devices, runs=runs
            )
        return found

    def _build(
        self,
        namespace: str,
        labels: Raw | bytes,
        spec: PodSpecJson,
        volumes: tuple[Volume, ...],
        controller: tuple[str, str, str] | None,
        *,
        devices: bool,
        runs: frozenset[bytes] | None,
    ) -> PodTemplate:
        containers = tuple(_container(c, spec.host_network, init=False) for c in spec.containers)
        inits = tuple(_container(c, spec.host_network, init=True) for c in spec.init_containers)
        overhead = resource_list(
            part(spec.overhead, dict[str, str | int | float], "spec.overhead"), "spec.overhead"
        )
        contexts = [
            part(raw, _ContextJson, "spec.securityContext") or _ContextJson()
            for raw in spec.asked_of_node().split(b"\1")
        ]
        profiles = (p for c in contexts for p in (c.seccomp_profile, c.app_armor_profile) if p)
        whole = part(spec.resources, Quantities, "spec.resources") or Quantities()
        pod_level = resource_list(whole.requests, "spec.resources.requests")
        requests = pod_requests(containers, inits, overhead, pod_level)
        assumed = _SCORE_DEFAULTS
        if whole.requests or whole.limits:
            # With pod-level resources, defaults are used only for what the pod does not request at all
            # (framework/types.go, getNonMissingContainerRequests).
            assumed = {name: v for name, v in _SCORE_DEFAULTS.items() if not requests.get(name)}
        nonzero = pod_requests(containers, inits, overhead, pod_level, defaults=assumed)
        scored = nonzero
        if whole.requests or whole.limits:
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
            pod_level_limits=resource_list(whole.limits, "spec.resources.limits"),
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
            local_profiles=any(p.type == "Localhost" for p in profiles),
            os=(part(spec.os, dict[str, str], "spec.os") or {}).get("name", ""),
            security=b"" if absent(spec.security_context) else bytes(spec.security_context),
            controller=controller,
            runs=runs,
        )

    def _shared(self, raw: Raw | bytes, type_: Any, path: str) -> Any:
        """A decoded part, the same object for equal bytes, so that its identity can be the key of a cache."""
        key = (path, bytes(raw))
        if key not in self._parts:
            self._parts[key] = part(raw, type_, path)
        return self._parts[key]


def _container(wire: ContainerJson, host_network: bool, *, init: bool) -> Container:
    quantities = part(wire.resources, Quantities, "spec.containers[].resources") or Quantities()
    ports = part(wire.ports, tuple[PortJson, ...], "spec.containers[].ports") or ()
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
        pull=wire.image_pull_policy,
        security=msgspec.json.encode(asked) if (asked := wire.security()) else b"{}",
    )


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


# Fields that no known version has: the scheduler of one that is newer may read them.


def _object(fields: str, **parts: Any) -> Any:
    """An object, or null, with these fields and no others; those of `parts` are looked into."""
    named = [(f, parts.get(f, Raw), None) for f in fields.split()]
    return msgspec.defstruct("Known", named, forbid_unknown_fields=True) | None


_list: Any = list
_REQUIRED, _PREFERRED = (f"{way}DuringSchedulingIgnoredDuringExecution" for way in ("required", "preferred"))


def _affinity(required: Any, term: str, part: Any) -> Any:
    preferred = _object(f"weight {term}", **{term: part})
    return _object(f"{_REQUIRED} {_PREFERRED}", **{_REQUIRED: required, _PREFERRED: _list[preferred] | None})


_SELECTOR = _object("matchLabels matchExpressions")
_POD_TERM = _object(
    "labelSelector namespaces topologyKey namespaceSelector matchLabelKeys mismatchLabelKeys",
    labelSelector=_SELECTOR,
    namespaceSelector=_SELECTOR,
)
_NODE_TERM = _object("matchExpressions matchFields")
_POD_AFFINITY = _affinity(_list[_POD_TERM] | None, "podAffinityTerm", _POD_TERM)
_RESOURCES = _object("limits requests claims")
_CONTAINERS = _list[
    _object(
        "name image command args workingDir ports envFrom env resources resizePolicy restartPolicy "
        "restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle "
        "terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty",
        ports=_list[_object("name hostPort containerPort protocol hostIP")] | None,
        resources=_RESOURCES,
    )
]
_POD = _object(
    "apiVersion kind metadata spec status",
    spec=_object(
        "volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds "
        "activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName serviceAccount "
        "automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace "
        "securityContext imagePullSecrets hostname subdomain affinity schedulerName tolerations hostAliases "
        "priorityClassName priority dnsConfig readinessGates runtimeClassName enableServiceLinks "
        "preemptionPolicy overhead topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates "
        "resourceClaims resources hostnameOverride workloadRef schedulingGroup evictionResponders",
        containers=_CONTAINERS | None,
        initContainers=_CONTAINERS | None,
        resources=_RESOURCES,
        tolerations=_list[_object("key operator value effect tolerationSeconds")] | None,
        affinity=_object(
            "nodeAffinity podAffinity podAntiAffinity",
            nodeAffinity=_affinity(
                _object("nodeSelectorTerms", nodeSelectorTerms=_list[_NODE_TERM] | None),
                "preference",
                _NODE_TERM,
            ),
            podAffinity=_POD_AFFINITY,
            podAntiAffinity=_POD_AFFINITY,
        ),
        topologySpreadConstraints=_list[
            _object(
                "maxSkew topologyKey whenUnsatisfiable labelSelector minDomains nodeAffinityPolicy "
                "nodeTaintsPolicy matchLabelKeys",
                labelSelector=_SELECTOR,
            )
        ]
        | None,
    ),
    status=_object(
        "observedGeneration phase conditions message reason nominatedNodeName hostIP hostIPs podIP podIPs "
        "startTime initContainerStatuses containerStatuses qosClass ephemeralContainerStatuses resize "
        "resourceClaimStatuses extendedResourceClaimStatus allocatedResources resources "
        "nodeAllocatableResourceClaimStatuses"
    ),
)
_NODE = _object(
    "apiVersion kind metadata spec status",
    spec=_object(
        "podCIDR podCIDRs providerID unschedulable taints configSource externalID",
        taints=_list[_object("key value effect timeAdded")] | None,
    ),
    status=_object(
        "capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images volumesInUse "
        "volumesAttached config runtimeHandlers features declaredFeatures"
    ),
)
_STRICT = {kind: msgspec.json.Decoder(whole) for kind, whole in (("Pod", _POD), ("Node", _NODE))}
LOOKED_INTO = _STRICT.keys()


def unknown_field(kind: str, raw: bytes | Raw) -> str:
    """Where an object of these kinds has a field that no known version has, in words; "" if it has none."""
    try:
        _STRICT[kind].decode(raw)
    except msgspec.DecodeError as e:
        return f"{kind}: {e}"
    return ""
