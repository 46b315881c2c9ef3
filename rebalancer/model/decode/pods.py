"""JSON bytes of a pod → `Pod`.

Decoding takes most of the time of reading a large cluster. So the parts that pods share (template, owner,
annotations) are decoded once for equal bytes, and all those pods get the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from datetime import datetime
from functools import partial
from sys import intern

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from rebalancer.model.decode.pod_json import (
    ContainerStatusJson,
    PodJson,
    PodStatusJson,
    Quantities,
    absent,
    part,
)
from rebalancer.model.decode.templates import TemplateDecoder
from rebalancer.model.decode.what_pods_run import runs_of
from rebalancer.model.node import Condition, OwnerReference
from rebalancer.model.pod import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    DELETION_COST,
    WELL,
    Container,
    HeldRequests,
    Pod,
    PodTemplate,
    Requests,
    Symptoms,
    Taken,
    add,
    at_least,
    cost_of,
    cost_writer,
    of_the_whole_pod,
    pod_requests,
)
from rebalancer.model.quantity import bounded, resource_list
from rebalancer.model.snapshot import ONLY_MAKE_PODS

# What a pod takes of its node, where its status says something else than its spec: while it is resized in
# place, and where pod-level status counts its overhead in.
#
# Rule: k8s.io/component-helpers/resource, ``PodRequests`` with `UseStatusResources`. Its releases reckon
# differently, so a template gets what each makes of it (`HeldRequests`), and the engine takes that of its
# version.

RESIZE_PENDING = "PodResizePending"
SANDBOX = "PodReadyToStartContainers"
_Key = tuple[int, str, bytes]


class _Given(Struct, frozen=True):
    """What a status says: `allocated` by the kubelet, `enacted` by the runtime; {} where it does not say.

    `enacted` None: it has no `resources` at all.
    """

    allocated: Requests = {}
    enacted: Requests | None = None

    @staticmethod
    def of(allocated: Raw | bytes, resources: Raw | bytes, path: str) -> _Given:
        """From the two fields."""
        said = part(allocated, dict[str, str | int | float], f"{path}.allocatedResources") or {}
        enacted = part(resources, Quantities, f"{path}.resources")
        return _Given(
            resource_list(said, f"{path}.allocatedResources"),
            resource_list(enacted.requests or {}, f"{path}.resources.requests") if enacted else None,
        )


class Resized:
    """The templates of pods whose status says what they take, by what they are made of; equal ones are one
    object."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[PodTemplate, PodTemplate]] = {}

    @property
    def entries(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def keep(self, used: Collection[int]) -> set[int]:
        """Forgets all except those with these ids. Returns the ids of those that they came from."""
        self._known = {k: v for k, v in self._known.items() if id(v[1]) in used}
        return {id(was) for was, _ in self._known.values()}

    def of(
        self,
        template: PodTemplate,
        statuses: Collection[ContainerStatusJson],
        allocated: Raw,
        resources: Raw,
        conditions: Collection[Condition],
    ) -> PodTemplate:
        """The template with what the pod takes, by its status; itself where that is what its spec says."""
        if not statuses and absent(allocated) and absent(resources):
            return template
        pending = ""
        for c in conditions:
            if c.type == RESIZE_PENDING:
                pending = c.reason
                break
        # As few steps as possible: this is done for each of 150,000 pods.
        said: list[Raw] = [allocated, resources]
        for s in statuses:
            said += s.name, s.allocated_resources, s.resources
        key = id(template), pending, b"\0".join(said)
        known = self._known.get(key)
        if known is None:
            containers = {
                part(s.name, str, "status.containerStatuses[].name"): _Given.of(
                    s.allocated_resources, s.resources, "status.containerStatuses[]"
                )
                for s in statuses
            }
            whole = _Given.of(allocated, resources, "status")
            known = self._known[key] = template, _holding(template, _Status(containers, whole, pending))
        return known[1]


class _Status(Struct, frozen=True):
    containers: Mapping[str, _Given]
    whole: _Given
    pending: str

    @property
    def infeasible(self) -> bool:
        """Whether the node can never give what is asked for."""
        return self.pending == "Infeasible"


Ways = Callable[[PodTemplate, _Status, Mapping[str, int] | None], Requests]


def _holding(template: PodTemplate, status: _Status) -> PodTemplate:
    held = HeldRequests(
        by_container=_taken(partial(_by_container, as_enacted=False), template, status),
        with_whole=_taken(partial(_by_container, as_enacted=True), template, status),
        by_sums=_taken(_by_sums, template, status),
        waits=status.pending not in ("", "Infeasible"),
    )
    spec = Taken(template.requests, template.nonzero_cpu, template.nonzero_memory)
    if held == HeldRequests(by_container=spec, with_whole=spec, by_sums=spec):
        return template
    return replace(template, held=held, by_spec=template)


def _taken(way: Ways, template: PodTemplate, status: _Status) -> Taken:
    requests = way(template, status, None)
    defaults = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}
    if template.pod_level:
        defaults = {name: v for name, v in defaults.items() if not requests.get(name)}
    scored = way(template, status, defaults)
    return Taken(requests, scored.get("cpu", 0), scored.get("memory", 0))


def _by_container(
    template: PodTemplate, status: _Status, defaults: Mapping[str, int] | None, *, as_enacted: bool
) -> Requests:
    """Up to 1.36: each container with the largest of what is asked for, enacted and allocated.

    `as_enacted`: pod-level resources too, from 1.36 on, where the gate
    InPlacePodLevelResourcesVerticalScaling is on; they have the overhead in, which is added once more.
    """

    def largest(asked: Requests, given: _Given) -> Requests:
        return _largest({} if status.infeasible else asked, given.enacted or {}, given.allocated)

    def of(c: Container) -> Requests:
        given = status.containers.get(c.name)
        return c.requests if given is None or given.enacted is None else largest(c.requests, given)

    whole = dict(template.pod_level)
    if as_enacted and status.whole.enacted is not None:
        found = largest(whole, status.whole)
        whole = {name: found.get(name, 0) for name in whole}
    return pod_requests(
        [replace(c, requests=of(c)) for c in template.containers],
        # In-place resizes are of containers and sidecars.
        [replace(c, requests=of(c)) if c.sidecar else c for c in template.init_containers],
        template.overhead,
        whole,
        defaults=defaults,
    )


def _by_sums(template: PodTemplate, status: _Status, defaults: Mapping[str, int] | None) -> Requests:
    """From 1.37: the largest of the sums of what is asked for, allocated and enacted.

    Pod-level status takes the place of the last two sums if it has both. It has the overhead in, which is
    added once more (#139627).
    """

    def sum_of(way: Callable[[Container], Requests]) -> Requests:
        return pod_requests(
            [replace(c, requests=way(c)) for c in template.containers],
            [replace(c, requests=way(c)) for c in template.init_containers],
            {},
            {},
            defaults=defaults,
        )

    def asked(c: Container) -> Requests:
        return {} if status.infeasible else c.requests

    def allocated(c: Container) -> Requests:
        given = status.containers.get(c.name, _Given())
        return given.allocated or asked(c)

    def enacted(c: Container) -> Requests:
        given = status.containers.get(c.name, _Given())
        return given.enacted or allocated(c)

    whole = status.whole
    if whole.allocated and whole.enacted:
        given = [whole.allocated, whole.enacted]
    else:
        given = [sum_of(allocated), sum_of(enacted)]
    total = _largest(*given) if status.infeasible else _largest(sum_of(lambda c: c.requests), *given)
    if template.pod_level:
        level = dict(template.pod_level)
        if whole.enacted is not None:
            level = _largest({} if status.infeasible else level, whole.enacted, whole.allocated)
        total |= of_the_whole_pod(level)
    add(total, template.overhead)
    return {name: bounded(value) for name, value in total.items()}


def _largest(*lists: Requests) -> Requests:
    found: Requests = {}
    for amounts in lists:
        at_least(found, amounts)
    return {name: found.get(name, 0) for amounts in lists for name in amounts}


_OURS = "rebalancer.io/"
_LONGEST_ANNOTATION = 256
_KEPT = 64
"""Of longer annotation values (last-applied-configuration) only so much is kept, as they fill memory. What
was cut ends in "…", which makes it none of the words that a rule knows, and its key is still there. Ours are
whole: a release's mark may be long."""

_CANNOT_START = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
        "PreCreateHookError",
        "RunContainerError",
    }
)
"""Waiting reasons of containers, as kubelet names them (pkg/kubelet/images/types.go, container/sync_result.go
and kuberuntime/kuberuntime_container.go)."""

_CANNOT_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})

_PASSED = frozenset({"Evicted", "NodeShutdown", "Terminated", "Preempting", "NodeLost", "DeadlineExceeded"})
"""Why pods Failed, which says nothing of later ones (pkg/kubelet: eviction, nodeshutdown, preemption)."""
_BY_KUBELET = "TerminationByKubelet"


class PodDecoder:
    """Decodes pods, and with `templates` pod templates. Use one decoder for one cluster: it remembers what
    pods share.

    What is remembered grows with everything that is decoded, so a long-running process calls `keep` now and
    then. Raises msgspec.ValidationError, whose message names the field.
    """

    def __init__(self, *, runs: bool = False) -> None:
        self.templates = TemplateDecoder()
        self._runs = runs
        self._resized = Resized()
        self._annotations: dict[bytes, dict[str, str]] = {}
        self._owners: dict[bytes, OwnerReference | None] = {}
        self._pod = msgspec.json.Decoder(PodJson)

    @property
    def entries(self) -> int:
        """How many shared values are remembered."""
        return self.templates.entries + self._resized.entries + len(self._annotations) + len(self._owners)

    def keep(self, pods: Iterable[Pod], templates: Iterable[PodTemplate] = ()) -> None:
        """Forgets every shared value that none of these pods and templates uses.

        Weak references would not do: most of the shared values are dicts and tuples, which do not allow any.
        """
        used: set[int] = set()
        for pod in pods:
            used.add(id(pod.annotations))
            used.add(id(pod.owner))
            used.add(id(pod.template))
        used.update(map(id, templates))
        self.templates.keep(used | self._resized.keep(used))
        self._annotations = {k: v for k, v in self._annotations.items() if id(v) in used}
        self._owners = {k: v for k, v in self._owners.items() if v is not None and id(v) in used}

    def pod(self, raw: bytes | Raw) -> Pod:
        """A Pod from its JSON."""
        wire = self._pod.decode(raw)
        meta, spec, status = wire.metadata, wire.spec, wire.status
        statuses = (status.container_statuses or ()) + (status.init_container_statuses or ())
        ready = next((c for c in status.conditions if c.type == "Ready"), None)
        is_ready = ready is not None and ready.status == "True"
        changed = _seconds(ready.last_transition_time) if ready is not None else None
        stuck, stuck_at = _stuck(statuses)
        scheduled = next((c for c in status.conditions if c.type == "PodScheduled"), None)
        grace = meta.deletion_grace_period_seconds
        owner = self._owner(meta.owner_references)
        controller = (owner.api_version, owner.kind, owner.name) if owner is not None else None
        by_hand = owner is not None and owner.kind in ONLY_MAKE_PODS
        # A Deployment rolls out what is edited, and there are many of them.
        by_hand = by_hand and (self._runs or b'pod-template-hash"' not in bytes(meta.labels))
        template = self.templates.template(
            meta.namespace or "default",
            meta.labels,
            spec,
            meta.name,
            controller,
            meta.uid,
            annotations=meta.annotations,
            devices=not absent(status.extended_resource_claim_status),
            by_claims=not absent(status.node_allocatable_resource_claim_statuses),
            runs=runs_of(raw) if by_hand else None,
        )
        template = self._resized.of(
            template,
            statuses,
            status.allocated_resources,
            status.resources,
            status.conditions,
        )
        annotations = self._annotation(meta.annotations)
        own_cost = cost_by = None
        if DELETION_COST in annotations and (cost_by := cost_writer(meta.managed_fields)) is not None:
            own_cost = cost_of(annotations[DELETION_COST])
            annotations = {k: v for k, v in annotations.items() if k != DELETION_COST}
        symptoms = Symptoms(
            unready_since=None if is_ready else changed,
            stuck=stuck,
            unpulled=_image(template, stuck_at) if stuck in _CANNOT_PULL else "",
            rejected=_rejected(status.reason, statuses) if status.phase == "Failed" else "",
            evicted=_evicted(status) if status.phase == "Failed" else None,
            crashed=_crashed(status.container_statuses or ()),
            unbegun=_unbegun(meta.creation_timestamp, status) if spec.node_name else None,
            starting=not is_ready and _starting(statuses),
            debugged=_debugged(spec.ephemeral_containers, status.ephemeral_container_statuses),
        )
        return Pod(
            name=meta.name,
            # One string for all pods of a template, and one for all pods of a node.
            namespace=template.namespace,
            uid=meta.uid,
            template=template,
            node_name=intern(spec.node_name),
            nominated_node_name=status.nominated_node_name,
            phase=status.phase,
            created=_seconds(meta.creation_timestamp),
            started=_seconds(status.start_time),
            deleted=_seconds(meta.deletion_timestamp),
            grace_seconds=grace if grace is not None else spec.termination_grace_period_seconds,
            ready=is_ready,
            ready_since=changed if is_ready else None,
            judged=scheduled is not None,
            unschedulable=(
                scheduled.message
                if scheduled and scheduled.status == "False" and scheduled.reason == "Unschedulable"
                else ""
            ),
            symptoms=WELL if symptoms == WELL else symptoms,
            owner=owner,
            annotations=annotations,
            finalizers=meta.finalizers,
            own_cost=own_cost,
            cost_by=intern(cost_by or ""),
            resource_version=meta.resource_version,
        )

    def _owner(self, raw: Raw | bytes) -> OwnerReference | None:
        key = bytes(raw)
        if key not in self._owners:
            owners = part(raw, tuple[OwnerReference, ...], "metadata.ownerReferences") or ()
            self._owners[key] = next((o for o in owners if o.controller), None)
        return self._owners[key]

    def _annotation(self, raw: Raw | bytes) -> dict[str, str]:
        key = bytes(raw)
        found = self._annotations.get(key)
        if found is None:
            every = part(raw, dict[str, str], "metadata.annotations") or {}
            found = {
                k: v if len(v) <= _LONGEST_ANNOTATION or k.startswith(_OURS) else f"{v[:_KEPT]}…"
                for k, v in every.items()
            }
            self._annotations[key] = found
        return found


def _stuck(statuses: Iterable[ContainerStatusJson]) -> tuple[str, Raw]:
    """The first reason for which a kubelet cannot start a container, and the container's name as JSON; "" if
    there is none."""
    for s in statuses:
        if s.state is not None and s.state.waiting is not None and s.state.waiting.reason in _CANNOT_START:
            return intern(s.state.waiting.reason), s.name
    return "", Raw()


def _image(template: PodTemplate, name: Raw) -> str:
    """The image of a container that a status names."""
    named = part(name, str, "status.containerStatuses[].name")
    own = template.every_container
    return next((c.image for c in own if c.name == named), "")


def _starting(statuses: Iterable[ContainerStatusJson]) -> bool:
    """Whether a kubelet still probes a container's start: without such a probe one that runs has started."""
    return any(s.started is False and s.state is not None and not absent(s.state.running) for s in statuses)


def _rejected(reason: str, statuses: Iterable[ContainerStatusJson]) -> str:
    """The reason for which a kubelet has not admitted a pod that Failed; "" where a container of it has run,
    or the reason was the node's state at that time."""
    ran = any(s.state is not None and not absent(s.state.terminated) for s in statuses)
    return "" if ran or reason in _PASSED else intern(reason)


def _evicted(status: PodStatusJson) -> float | None:
    """When a kubelet evicted the pod for its node's sake. One that used more than a limit of its own gets no
    such condition (pkg/kubelet/eviction, ``localStorageEviction``)."""
    by_kubelet = (c for c in status.conditions if c.type == "DisruptionTarget" and c.reason == _BY_KUBELET)
    said = next(by_kubelet, None) if status.reason == "Evicted" else None
    return None if said is None else _seconds(said.last_transition_time)


def _unbegun(created: datetime | None, status: PodStatusJson) -> float | None:
    """Since when a kubelet is to make the sandbox of a pod, if it has not. One before 1.29 says only that it
    has seen the pod (KEP-3085)."""
    if status.phase != "Pending":
        return None
    made = next((c for c in status.conditions if c.type == SANDBOX), None)
    seen = status.start_time is not None or bool(status.container_statuses)
    if made.status == "True" if made is not None else seen:
        return None
    asked = (c.last_transition_time for c in status.conditions if c.type in ("PodScheduled", SANDBOX))
    times = [t for t in (created, status.start_time, *asked) if t is not None]
    return _seconds(max(times)) if times else None


def _debugged(made: Sized | None, statuses: Collection[ContainerStatusJson] | None) -> bool:
    """Whether an ephemeral container has not ended: it runs, or its image is still pulled."""
    if not made and not statuses:
        return False
    ended = sum(1 for s in statuses or () if s.state is not None and not absent(s.state.terminated))
    return ended < max(len(made or ()), len(statuses or ()))


def _crashed(statuses: Iterable[ContainerStatusJson]) -> float | None:
    """When the last container ended that was started again."""
    last = (s.last_state.terminated for s in statuses if s.last_state is not None)
    ends = [t.finished_at for t in last if t is not None and t.finished_at is not None]
    return _seconds(max(ends)) if ends else None


def _seconds(time: datetime | None) -> float | None:
    """Seconds since the epoch."""
    return time.timestamp() if time is not None else None
