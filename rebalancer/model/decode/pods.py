"""JSON bytes of a pod → `Pod`.

Decoding takes most of the time of reading a large cluster. So the parts that pods share (template, owner,
annotations) are decoded once for equal bytes, and all those pods get the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from sys import intern

import msgspec
from msgspec import Raw

from rebalancer.model.decode.pod_json import ContainerStatusJson, PodJson, absent, part
from rebalancer.model.decode.resizes import Resized
from rebalancer.model.decode.templates import TemplateDecoder
from rebalancer.model.deletion_cost import DELETION_COST, cost_of, written_by_us
from rebalancer.model.object_meta import OwnerReference
from rebalancer.model.pod import Pod, PodTemplate

_LONGEST_ANNOTATION = 256
"""Longer annotation values (last-applied-configuration) are dropped: no rule reads them, and they fill
memory."""

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


class PodDecoder:
    """Decodes pods, and with `templates` pod templates. Use one decoder for one cluster: it remembers what
    pods share.

    What is remembered grows with everything that is decoded, so a long-running process calls `keep` now and
    then. Raises msgspec.ValidationError, whose message names the field.
    """

    def __init__(self) -> None:
        self.templates = TemplateDecoder()
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
        scheduled = next((c for c in status.conditions if c.type == "PodScheduled"), None)
        grace = meta.deletion_grace_period_seconds
        owner = self._owner(meta.owner_references)
        controller = (owner.api_version, owner.kind, owner.name) if owner is not None else None
        template = self.templates.template(
            meta.namespace or "default",
            meta.labels,
            spec,
            meta.name,
            controller,
            meta.uid,
            devices=not absent(status.extended_resource_claim_status),
        )
        template = self._resized.of(
            template,
            statuses,
            status.allocated_resources,
            status.resources,
            status.conditions,
        )
        annotations = self._annotation(meta.annotations)
        own_cost = None
        if DELETION_COST in annotations and written_by_us(meta.managed_fields):
            own_cost = cost_of(annotations[DELETION_COST])
            annotations = {k: v for k, v in annotations.items() if k != DELETION_COST}
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
            ready=ready is not None and ready.status == "True",
            ready_since=_seconds(ready.last_transition_time) if ready and ready.status == "True" else None,
            judged=scheduled is not None,
            unschedulable=(
                scheduled.message
                if scheduled and scheduled.status == "False" and scheduled.reason == "Unschedulable"
                else ""
            ),
            stuck=_stuck(statuses),
            owner=owner,
            annotations=annotations,
            own_cost=own_cost,
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
            found = {k: v for k, v in every.items() if len(v) <= _LONGEST_ANNOTATION}
            self._annotations[key] = found
        return found


def _stuck(statuses: Iterable[ContainerStatusJson]) -> str:
    """The first of the reasons for which a kubelet cannot start a container; "" if there is none."""
    waiting = (s.state.waiting for s in statuses if s.state is not None and s.state.waiting is not None)
    return next((intern(w.reason) for w in waiting if w.reason in _CANNOT_START), "")


def _seconds(time: datetime | None) -> float | None:
    """Seconds since the epoch."""
    return time.timestamp() if time is not None else None
