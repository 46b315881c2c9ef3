"""Writes the deletion cost of a pod, and nothing else, under a field manager of its own.

Rule: kubernetes staging/src/k8s.io/apiserver, PATCH of a resource: uid and resourceVersion in a merge patch
are preconditions. So nothing is written over what somebody else has set after this tool looked. A pod that
has changed otherwise is read again, by a list of one: steering has no right to get pods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import ConflictError, ForbiddenError, KubeError, NotFoundError, Target
from rebalancer.kube.lists import Head
from rebalancer.kube.reading import Objects
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.pod import DELETION_COST, Pod
from rebalancer.model.pod import MANAGER as SCALE_IN_MANAGER
from rebalancer.outcome import CostOutcome, CostResult
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


# Deployments as the API server has them, and their spread constraints replaced.

FIX_MANAGER = "rebalancer-fix"
"""The field manager under which this is written."""
_DEPLOYMENTS = RESOURCES["Deployment"]
_TIMEOUT = 15.0
Json = dict[str, Any]


class Deployments:
    """Of one cluster. Both methods raise KubeError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, namespace: str, name: str) -> Json:
        """The Deployment now."""
        answer = self._connection.request(
            "GET",
            _DEPLOYMENTS.path(namespace, name),
            Target("get", _DEPLOYMENTS, namespace, name),
            read_timeout=_TIMEOUT,
        )
        found: Json = msgspec.json.decode(answer.body)
        return found

    def set_constraints(self, seen: Json, constraints: Sequence[Json]) -> Json:
        """The Deployment with these spread constraints, if it still is as it was seen; else ConflictError.

        A merge patch and not an apply: by an apply the list would be ours in part, and a stub of it would
        stay when its author takes a constraint away.
        """
        metadata = seen["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        answer = self._connection.request(
            "PATCH",
            _DEPLOYMENTS.path(namespace, name),
            Target("patch", _DEPLOYMENTS, namespace, name),
            query={"fieldManager": FIX_MANAGER},
            body={
                "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
                "spec": {"template": {"spec": {"topologySpreadConstraints": list(constraints)}}},
            },
            read_timeout=_TIMEOUT,
            content_type="application/merge-patch+json",
        )
        found: Json = msgspec.json.decode(answer.body)
        return found
