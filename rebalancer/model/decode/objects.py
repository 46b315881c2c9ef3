"""The decoder for objects of every kind that is read (`model.snapshot`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from rebalancer.model.decode.pod_json import TemplateJson, TemplateSpecJson, absent
from rebalancer.model.decode.pods import PodDecoder
from rebalancer.model.decode.what_pods_run import runs_of
from rebalancer.model.node import Condition, ContainerImage, Node, NodePool, ObjectMeta
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.quantity import resource_list
from rebalancer.model.selectors import LabelSelector, Selector, canonical
from rebalancer.model.snapshot import ONLY_MAKE_PODS, PLAIN, WORKLOADS, Object
from rebalancer.model.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from rebalancer.model.workload import (
    UNASKED,
    ResourceQuota,
    RuntimeClass,
    VerticalPodAutoscaler,
    Workload,
)

# JSON of a node → `Node`, with what nodes have in common as one object in all of them.
#
# A node lists up to fifty images and half a dozen conditions. They are three quarters of its memory, and
# most nodes of a cluster have the same ones.

T = TypeVar("T", Condition, ContainerImage)


class NodeDecoder:
    """Decodes nodes. Remembers their images and conditions until `forget`."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Node).decode
        self._shared: dict[Condition | ContainerImage, Condition | ContainerImage] = {}

    @property
    def entries(self) -> int:
        """How many values are remembered."""
        return len(self._shared)

    def forget(self) -> None:
        """Remembers nothing; nodes that are decoded later share among themselves."""
        self._shared.clear()

    def node(self, raw: bytes | Raw) -> Node:
        """A Node from its JSON. Raises msgspec.DecodeError."""
        found = self._decode(raw)
        status = found.status
        # Nobody has seen the node yet.
        force_setattr(status, "images", self._one_each(status.images))
        force_setattr(status, "conditions", self._one_each(status.conditions))
        return found

    def _one_each(self, values: tuple[T, ...]) -> tuple[T, ...]:
        remember = self._shared.setdefault
        return tuple([remember(v, v) for v in values])  # type: ignore[misc]


MALFORMED = (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError)
"""Everything that decoding one object may raise, whatever is in it. Callers catch these for each object:
otherwise anybody who may create a pod could keep all other pods from being read."""


_NEVER = 2**31 - 1
"""What says that a rollout has no end (pkg/controller/deployment/util, ``HasProgressDeadline``)."""


_JOBS = "kubernetes.io/job-controller"
"""Who takes care of a Job that names nobody else."""
_ENDS = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})
"""Conditions of a Job for which no more pods are made."""


class _RollingUpdate(Struct, frozen=True, rename="camel"):
    partition: int = 0
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class _UpdateStrategy(Struct, frozen=True, rename="camel"):
    type: str = ""
    rolling_update: Raw = Raw(b"null")


class _Ordinals(Struct, frozen=True):
    start: int = 0


class _Named(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta


class _WorkloadSpec(Struct, frozen=True, rename="camel"):
    replicas: int = 1
    selector: Raw = Raw(b"null")
    template: TemplateJson | None = None
    paused: bool = False
    min_ready_seconds: int = 0
    progress_deadline_seconds: int = 0
    strategy: _UpdateStrategy = _UpdateStrategy()
    update_strategy: _UpdateStrategy = _UpdateStrategy()
    pod_management_policy: str = "OrderedReady"
    volume_claim_templates: tuple[_Named, ...] = ()
    ordinals: _Ordinals = _Ordinals()
    parallelism: int = 1
    completions: int | None = None
    suspend: bool = False
    managed_by: str = _JOBS
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    pod_failure_policy: Raw = Raw(b"null")


class _WorkloadStatus(Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    desired_number_scheduled: int | None = None
    number_misscheduled: int = 0
    updated_number_scheduled: int = 0
    succeeded: int = 0
    failed: int = 0
    current_revision: str = ""
    update_revision: str = ""
    conditions: tuple[Condition, ...] = ()


class _Workload(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class Decoder:
    """Decodes the objects of one cluster. Pods share the values that are equal in them. `runs`: also what the
    containers run of pods of which a Deployment seems to take care."""

    def __init__(self, *, runs: bool = False) -> None:
        self._pods = PodDecoder(runs=runs)
        self._nodes = NodeDecoder()
        self._plain: dict[str, Callable[[bytes | Raw], Any]] = {
            kind: msgspec.json.Decoder(type_).decode for kind, type_ in PLAIN.items()
        }
        self._workload = msgspec.json.Decoder(_Workload)
        self._revision = msgspec.json.Decoder(_Named)

    def decode(self, kind: str, raw: bytes | Raw) -> Object:
        """The value of one object of a kind in `KINDS`.

        An explicit null means the same as an absent field. Raises msgspec.ValidationError, its base
        DecodeError for text that is not JSON, or ValueError for a quantity; the message names the field.
        Objects that are made to do harm may raise anything in `MALFORMED`.
        """
        try:
            return self._decode(kind, raw)
        except msgspec.ValidationError:
            plain = msgspec.json.decode(raw)
            stripped = without_nulls(plain)
            if stripped == plain:
                raise
            return self._decode(kind, msgspec.json.encode(stripped))

    @property
    def entries(self) -> int:
        """How many shared values are remembered."""
        return self._pods.entries + self._nodes.entries

    def keep(self, objects: Iterable[Object]) -> None:
        """Forgets every shared value that none of these objects uses, and so frees the memory of deleted
        pods."""
        pods: list[Pod] = []
        templates: list[PodTemplate] = []
        for o in objects:
            if isinstance(o, Pod):
                pods.append(o)
            elif isinstance(o, Workload) and o.template is not None:
                templates.append(o.template)
        self._pods.keep(pods, templates)
        self._nodes.forget()

    def _decode(self, kind: str, raw: bytes | Raw) -> Object:
        if kind == "Pod":
            return self._pods.pod(raw)
        if kind == "Node":
            node = self._nodes.node(raw)
            _check_quantities(node)
            return node
        if kind in WORKLOADS:
            return self._workload_of(kind, self._workload.decode(raw), raw)
        if kind == "ControllerRevision":
            return self._revision.decode(raw).metadata
        value: Object = self._plain[kind](raw)
        _check_quantities(value)
        return value

    def _workload_of(self, kind: str, wire: _Workload, raw: bytes | Raw) -> Workload:
        meta, spec, status = wire.metadata, wire.spec, wire.status
        selector: Selector | None = None
        if not absent(spec.selector):
            if kind == "ReplicationController":
                selector = Selector.equals(msgspec.json.decode(spec.selector, type=dict[str, str]))
            else:
                selector = canonical(msgspec.json.decode(spec.selector, type=LabelSelector))
        template = None
        if spec.template is not None:
            by_hand = kind in ONLY_MAKE_PODS and meta.controller is None
            template = self._pods.templates.template(
                meta.namespace or "default",
                spec.template.metadata.labels,
                spec.template.spec,
                annotations=spec.template.metadata.annotations,
                runs=runs_of(raw, template=True) if by_hand else None,
            )
            if kind == "ReplicationController" and selector is None:
                selector = Selector.equals(template.labels)
        made = spec.template.spec if spec.template is not None else TemplateSpecJson()
        wanted = spec.template is not None and spec.replicas > 0
        makes_pods = wanted and kind not in ("Deployment", "DaemonSet")
        on_nodes = status.desired_number_scheduled
        strategy = spec.strategy if kind == "Deployment" else spec.update_strategy
        rolling = _RollingUpdate()
        if kind in ("Deployment", "StatefulSet", "DaemonSet") and not absent(strategy.rolling_update):
            rolling = msgspec.json.decode(strategy.rolling_update, type=_RollingUpdate)
        return Workload(
            kind=kind,
            metadata=meta,
            replicas=spec.replicas if kind != "Job" else _at_once(spec, status),
            retries=kind == "Job" and _retries(spec, status),
            selector=selector,
            template=template,
            paused=spec.paused,
            min_ready_seconds=spec.min_ready_seconds,
            progress_deadline=spec.progress_deadline_seconds % _NEVER,
            update_strategy=strategy.type,
            max_unavailable=rolling.max_unavailable if kind == "Deployment" else None,
            max_surge=rolling.max_surge,
            partition=rolling.partition,
            parallel=spec.pod_management_policy == "Parallel",
            claim_templates=frozenset(c.metadata.name for c in spec.volume_claim_templates),
            first_ordinal=spec.ordinals.start,
            current_revision=status.current_revision,
            update_revision=status.update_revision,
            observed_generation=status.observed_generation,
            status_replicas=status.replicas,
            updated_replicas=status.updated_replicas or status.updated_number_scheduled,
            ready_replicas=status.ready_replicas,
            available_replicas=status.available_replicas,
            on_nodes=None if on_nodes is None else on_nodes + status.number_misscheduled,
            node=made.node_name,
            priority=made.priority,
            preemption_policy=made.preemption_policy,
            secrets=made.secrets() if wanted else frozenset(),
            pull_secrets=frozenset(s.name for s in made.image_pull_secrets if wanted),
            security=spec.template.security() if spec.template is not None and makes_pods else b"",
            failing=next((c.reason or c.type for c in status.conditions if _fails(c)), ""),
            failing_since=next((_since(c) for c in status.conditions if _fails(c)), None),
            unasked_since=next(filter(None, map(_unasked_since, status.conditions)), None),
        )


def _at_once(spec: _WorkloadSpec, status: _WorkloadStatus) -> int:
    """How many pods a Job wants now (pkg/controller/job, ``manageJob``)."""
    ended = any(c.type in _ENDS and c.status == "True" for c in status.conditions)
    if ended or spec.suspend or spec.managed_by != _JOBS:
        return 0
    if spec.completions is None:
        return 0 if status.succeeded else spec.parallelism
    return max(0, min(spec.parallelism, spec.completions - status.succeeded))


def _retries(spec: _WorkloadSpec, status: _WorkloadStatus) -> bool:
    """Whether a Job surely makes another pod for each that fails, as an evicted one does."""
    own_rules = spec.backoff_limit_per_index is not None or not absent(spec.pod_failure_policy)
    wanted = _at_once(spec, status)
    return 0 < wanted <= spec.backoff_limit - status.failed and not own_rules


def _fails(condition: Condition) -> bool:
    """Whether an owner's controller says that its pods cannot be made, or did not become ready in time."""
    late = condition.type == "Progressing" and condition.reason == "ProgressDeadlineExceeded"
    return late or (condition.type == "ReplicaFailure" and condition.status == "True")


def _unasked_since(condition: Condition) -> float | None:
    """Since when the API server could not ask a webhook, or failed inside, by such a condition."""
    ours = _fails(condition) and any(say in condition.message for say in UNASKED)
    return _since(condition) if ours else None


def _since(condition: Condition) -> float | None:
    at = condition.last_transition_time
    return at.timestamp() if at is not None else None


def _check_quantities(value: Object) -> None:
    """Checks the quantities that the model keeps as written. Raises ValueError that names the field."""
    fields: dict[str, dict[str, str | int | float]] = {}
    if isinstance(value, Node):
        fields = {"status.allocatable": value.status.allocatable}
    elif isinstance(value, ResourceQuota):
        fields = {
            "spec.hard": value.spec.hard,
            "status.hard": value.status.hard,
            "status.used": value.status.used,
        }
    elif isinstance(value, PersistentVolume):
        fields = {"spec.capacity": value.spec.capacity}
    elif isinstance(value, PersistentVolumeClaim):
        fields = {"spec.resources.requests": value.spec.resources.requests}
    elif isinstance(value, CSIStorageCapacity):
        sizes = {"capacity": value.capacity, "maximumVolumeSize": value.maximum_volume_size}
        fields = {"": {name: size for name, size in sizes.items() if size is not None}}
    elif isinstance(value, NodePool):
        fields = {"spec.limits": value.spec.limits, "status.resources": value.status.resources}
    elif isinstance(value, RuntimeClass) and value.overhead is not None:
        fields = {"overhead.podFixed": value.overhead.pod_fixed}
    elif isinstance(value, VerticalPodAutoscaler):
        found = value.status.recommendation.container_recommendations
        place = "status.recommendation.containerRecommendations"
        fields = {f"{place}[{n}].target": c.target for n, c in enumerate(found)}
        boosts = (b.quantity for b in value.spec.boosts)
        fields |= {f"startupBoost {n}": {"cpu": q} for n, q in enumerate(boosts) if q is not None}
    for field, quantities in fields.items():
        resource_list(quantities, field)


def without_nulls(value: Any) -> Any:
    """The same JSON value without members that are null."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value if v is not None]
    return value
