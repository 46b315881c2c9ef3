"""What is written beside evictions and the ledger. Patches: deletion costs, released pods, constraints of
Deployments; each under its own field manager. Events.

Rule: kubernetes staging/src/k8s.io/apiserver, PATCH of a resource: uid and resourceVersion in a merge patch
are preconditions. So nothing is written over what somebody else has set after this tool looked. A pod that
has changed otherwise is read again, by a list of one: steering has no right to get pods.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rebalancer.kube.connection import Connection, Wait
from rebalancer.kube.errors import (
    PROXY,
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    Target,
)
from rebalancer.kube.lists import Head, pages
from rebalancer.kube.reading import Objects
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.model.node import OwnerReference
from rebalancer.model.pod import DELETION_COST, Pod
from rebalancer.model.pod import MANAGER as SCALE_IN_MANAGER
from rebalancer.model.quantity import micro_time
from rebalancer.outcome import CostOutcome, CostResult
from rebalancer.policy.release import MARK, Mark
from rebalancer.prevention.steering import CostChange

_PODS = RESOURCES["Pod"]
_READ_TIMEOUT = 15.0
_LONGEST = 128
"""Characters that a field manager may have."""


class CostWriter:
    """Writes to one cluster. `by`: the installation that does, "" if none does."""

    def __init__(self, connection: Connection, by: str = "") -> None:
        self._connection = connection
        self._manager = f"{SCALE_IN_MANAGER}:{by}"[:_LONGEST] if by else SCALE_IN_MANAGER

    def write(self, change: CostChange, wait: Callable[[], bool] = lambda: False) -> CostOutcome:
        """What became of it. `wait`: before a second try; True: there is none. Raises ForbiddenError."""
        outcome = self._write(change, change.pod)
        if outcome.result is not CostResult.CHANGED or wait():
            return outcome
        pod = change.pod
        try:
            objects = Objects(self._connection, wait=lambda _: True)
            now = objects.pods(pod.namespace, fields=f"metadata.name={pod.name}")
        except KubeError as e:
            return CostOutcome(change, CostResult.FAILED, e.message)
        if not now or now[0].uid != pod.uid:
            return CostOutcome(change, CostResult.GONE)
        return self._write(change, now[0]) if change.holds(now[0]) else outcome

    def _write(self, change: CostChange, pod: Pod) -> CostOutcome:
        metadata = {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {DELETION_COST: str(change.cost) if change.cost else None},
        }
        try:
            answer = self._connection.request(
                "PATCH",
                _PODS.path(pod.namespace, pod.name),
                Target("patch", _PODS, pod.namespace, pod.name),
                query={"fieldManager": self._manager},
                body={"metadata": metadata},
                read_timeout=_READ_TIMEOUT,
                content_type="application/merge-patch+json",
            )
        except NotFoundError:
            return CostOutcome(change, CostResult.GONE)
        except ForbiddenError:
            raise
        except ConflictError:
            return CostOutcome(change, CostResult.CHANGED)
        except KubeError as e:
            return CostOutcome(change, CostResult.FAILED, e.message)
        return CostOutcome(change, CostResult.WRITTEN, version=_version(answer.body))


def _version(pod: bytes) -> str:
    try:
        head = msgspec.json.decode(pod, type=Head).metadata
    except msgspec.MsgspecError:
        return ""  # it was written, whatever the answer looks like
    return head.resource_version if head is not None else ""


# A pod that is released from its ReplicaSet, and given back (policy.release).

RELEASE_MANAGER = "rebalancer-release"
"""The field manager under which this is written."""
_SERVER_DEADLINE = 10
"""Seconds after which the server gives up on a patch, told by `?timeout=`."""
Json = dict[str, Any]


class ReleasePatches:
    """Each method sends one patch, once, and raises KubeError: ConflictError where the pod is not as it was
    judged. What has become of one that was not answered, the pod itself tells."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def release(
        self, pod: Pod, mark: Mark, owner: OwnerReference | None, fresh: Callable[[], bool], *, dry: bool
    ) -> None:
        """Takes the label away, and marks the pod. With a reference to the owner's Deployment, garbage
        collection takes the pod with that one, whether or not anybody remembers it. `dry`: as a trial."""
        references = self._references(pod)
        if owner is not None:
            references += [_reference(owner)]
        change = {"labels": {mark.label: None}, "annotations": {MARK: str(mark)}}
        self._patch(pod, {**change, "ownerReferences": references}, fresh, dry=dry)

    def refer(self, pod: Pod, owner: OwnerReference, fresh: Callable[[], bool]) -> None:
        """A reference to an owner that is no controller, unless the pod has one."""
        references = self._references(pod)
        if all(r["uid"] != owner.uid for r in references):
            self._patch(pod, {"ownerReferences": [*references, _reference(owner)]}, fresh)

    def give_back(self, pod: Pod, mark: Mark, deployment: str, fresh: Callable[[], bool]) -> None:
        """Takes all of it back; its controller and the owners that others gave it stay. So do all owners of a
        pod that has ended, as no controller adopts it: it goes with them. `deployment`: of whom it got a
        reference."""
        references = [
            r
            for r in self._references(pod)
            if r.get("controller") or pod.finished or not _ours(r, mark, deployment)
        ]
        change: Json = {"labels": {mark.label: mark.value}, "annotations": {MARK: None}}
        self._patch(pod, {**change, "ownerReferences": references}, fresh)

    def annotate(self, pod: Pod, changes: Mapping[str, str | None], fresh: Callable[[], bool]) -> None:
        """Its deletion cost, and which one an undo has replaced; None for none."""
        self._patch(pod, {"annotations": dict(changes)}, fresh)

    def _references(self, pod: Pod) -> list[Json]:
        """All owners of the pod, of which a judged pod has the controller only."""
        return list(self._asked("GET", pod).owner_references or ())

    def _patch(self, pod: Pod, metadata: Json, fresh: Callable[[], bool], *, dry: bool = False) -> None:
        query: dict[str, str | int] = {"fieldManager": RELEASE_MANAGER, "timeout": f"{_SERVER_DEADLINE}s"}
        if dry:
            query["dryRun"] = "All"
        with nullcontext() if dry else self._connection.evicting(_SERVER_DEADLINE):
            self._asked(
                "PATCH",
                pod,
                query=query,
                body={"metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version, **metadata}},
                content_type="application/merge-patch+json",
                once=True,
                fresh=fresh,
            )

    def _asked(self, method: Literal["GET", "PATCH"], pod: Pod, **more: Any) -> _Head:
        where = _PODS, pod.namespace, pod.name
        body, target = _asked(self._connection, method, where, uid=pod.uid, **more)
        return self._connection.decoded(body, _Answer, target).metadata


class _Head(Struct, frozen=True, rename="camel"):
    uid: str
    owner_references: list[Json] | None = None


class _Answer(Struct, frozen=True):
    metadata: _Head


def _asked(
    connection: Connection,
    method: Literal["GET", "PATCH"],
    where: tuple[Resource, str, str],
    *,
    uid: str = "",
    **more: Any,
) -> tuple[bytes, Target]:
    """What the answer says of an object (`uid`: of that one); one about anything else is none."""
    resource, namespace, name = where
    target = Target(method.lower(), resource, namespace, name)
    answer = connection.request(
        method, resource.path(namespace, name), target, read_timeout=_READ_TIMEOUT, **more
    )
    found = connection.decoded(answer.body, _Answer, target).metadata.uid
    if found != (uid or found):
        say = f"{target}: the answer is about another {resource.kind}"
        raise ResponseError(say, PROXY, target=target, code=answer.code)
    return answer.body, target


def _ours(reference: Json, mark: Mark, deployment: str) -> bool:
    named = reference["kind"], reference["name"]
    return bool(reference["uid"] == mark.replica_set or named == ("Deployment", deployment))


def _reference(owner: OwnerReference) -> Json:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": False,
    }


# Deployments as the API server has them, and their spread constraints replaced.

FIX_MANAGER = "rebalancer-fix"
"""The field manager under which this is written."""
_DEPLOYMENTS = RESOURCES["Deployment"]


class Deployments:
    """Of one cluster. Both methods raise KubeError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, namespace: str, name: str) -> Json:
        """The Deployment now."""
        return self._asked("GET", namespace, name)

    def set_constraints(self, seen: Json, constraints: Sequence[Json]) -> Json:
        """The Deployment with these spread constraints, if it still is as it was seen; else ConflictError.

        A merge patch and not an apply: by an apply the list would be ours in part, and a stub of it would
        stay when its author takes a constraint away.
        """
        metadata = seen["metadata"]
        return self._asked(
            "PATCH",
            metadata["namespace"],
            metadata["name"],
            uid=metadata["uid"],
            query={"fieldManager": FIX_MANAGER},
            body={
                "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
                "spec": {"template": {"spec": {"topologySpreadConstraints": list(constraints)}}},
            },
            content_type="application/merge-patch+json",
        )

    def _asked(self, method: Literal["GET", "PATCH"], namespace: str, name: str, **more: Any) -> Json:
        body, target = _asked(self._connection, method, (_DEPLOYMENTS, namespace, name), **more)
        return self._connection.decoded(body, Json, target)


# Events (events.k8s.io/v1) on pods and their owners, written and read back.

log = logging.getLogger(__name__)

EVENTS = Resource("Event", "events.k8s.io", "v1", "events")
CONTROLLER = "rebalancer.io/rebalancer"
_API = {
    "Pod": "v1",
    "ConfigMap": "v1",
    "ReplicationController": "v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
_LONGEST_NOTE = 1024
_EVENT_TIMEOUT = 5.0
"""Seconds; an event is worth no more waiting."""


class Regarding(Struct, frozen=True, rename="camel"):
    """The object that an event is about."""

    kind: str
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventNote(Struct, frozen=True, rename="camel"):
    """An event as it is read back; `event_time` as written, RFC 3339."""

    regarding: Regarding
    reason: str = ""
    action: str = ""
    type: str = ""
    note: str = ""
    event_time: datetime | None = None
    related: Regarding | None = None
    reporting_controller: str = ""


class EventRecorder:
    """Writes events; never raises. A cluster that does not let it is told once and left alone.

    `instance` names this process, `now` is the epoch in seconds. `annotations`, asked for each time, are put
    on the event.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        instance: str,
        now: Callable[[], float],
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._connection = connection
        self._instance = instance[:128]
        self._now = now
        self._annotations = annotations
        self._forbidden: set[str] = set()

    def record(
        self,
        regarding: Regarding,
        *,
        reason: str,
        action: str,
        note: str,
        kind: Literal["Normal", "Warning"] = "Normal",
        related: Regarding | None = None,
    ) -> None:
        """Writes one event in the namespace of the object."""
        if regarding.namespace in self._forbidden:
            return
        target = Target("create", EVENTS, regarding.namespace)
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding.name[:200]}.{uuid.uuid4().hex[:16]}",
                "namespace": regarding.namespace,
            },
            "eventTime": micro_time(self._now()),
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note if len(note) <= _LONGEST_NOTE else note[: _LONGEST_NOTE - 1] + "…",
            "regarding": _regarding(regarding),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }
        if annotations := dict(self._annotations()):
            body["metadata"]["annotations"] = annotations
        if related is not None:
            body["related"] = _regarding(related)
        try:
            self._connection.request(
                "POST", EVENTS.path(regarding.namespace), target, body=body, read_timeout=_EVENT_TIMEOUT
            )
        except ForbiddenError as e:
            self._forbidden.add(regarding.namespace)
            log.warning("no events are written in %s: %s", regarding.namespace, e)
        except KubeError as e:
            log.info("an event was lost: %s", e.message)


def read_events(connection: Connection, *, wait: Wait, namespace: str = "") -> tuple[EventNote, ...]:
    """The rebalancer's own events, of one namespace or of all. Raises KubeError."""
    found: list[EventNote] = []
    for page in pages(connection, EVENTS, wait=wait, namespace=namespace):
        for raw in page.items or ():
            try:
                event = msgspec.json.decode(raw, type=EventNote)
            except msgspec.DecodeError:
                continue  # somebody else's; ours can be read
            if event.reporting_controller == CONTROLLER:
                found.append(event)
    return tuple(found)


def _regarding(regarding: Regarding) -> dict[str, str]:
    plain = {
        "apiVersion": _API.get(regarding.kind, ""),
        "kind": regarding.kind,
        "namespace": regarding.namespace,
        "name": regarding.name,
        "uid": regarding.uid,
    }
    return {k: v for k, v in plain.items() if v}
