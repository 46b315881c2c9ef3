"""JSON bytes of a pod → `Pod`.

Decoding is the cost of reading a large cluster, so what pods share (template, owner, annotations) is decoded
once for equal bytes, and is one object in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import Raw

from rebalancer.model.decode_template import TemplateDecoder
from rebalancer.model.meta import OwnerReference
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.pod_wire import PodWire, part

_LONGEST_ANNOTATION = 256
"""Longer annotation values carry no policy and would only fill memory (last-applied-configuration)."""


class PodDecoder:
    """Decodes pods, and by `templates` pod templates; holds the memos, so that one decoder should read one
    cluster.

    The memos grow with whatever is decoded. Who decodes for months calls `keep` now and then.
    Errors: msgspec.ValidationError, whose message names the field.
    """

    def __init__(self) -> None:
        self.templates = TemplateDecoder()
        self._annotations: dict[bytes, dict[str, str]] = {}
        self._owners: dict[bytes, OwnerReference | None] = {}
        self._pod = msgspec.json.Decoder(PodWire)

    @property
    def entries(self) -> int:
        """How much is remembered, over all memos."""
        return self.templates.entries + len(self._annotations) + len(self._owners)

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
        self.templates.keep(used)
        self._annotations = {k: v for k, v in self._annotations.items() if id(v) in used}
        self._owners = {k: v for k, v in self._owners.items() if v is not None and id(v) in used}

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
            template=self.templates.template(
                meta.namespace or "default", meta.labels, spec, meta.name, controller
            ),
            node_name=spec.node_name,
            nominated_node_name=status.nominated_node_name,
            phase=status.phase,
            created=_seconds(meta.creation_timestamp),
            started=_seconds(status.start_time),
            deleted=_seconds(meta.deletion_timestamp),
            grace_seconds=grace if grace is not None else spec.termination_grace_period_seconds,
            ready=ready is not None and ready.status == "True",
            ready_since=_seconds(ready.last_transition_time) if ready and ready.status == "True" else None,
            unschedulable=(
                scheduled.message
                if scheduled and scheduled.status == "False" and scheduled.reason == "Unschedulable"
                else ""
            ),
            owner=owner,
            annotations=self._annotation(meta.annotations),
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


def _seconds(time: datetime | None) -> float | None:
    """Seconds since the epoch."""
    return time.timestamp() if time is not None else None
