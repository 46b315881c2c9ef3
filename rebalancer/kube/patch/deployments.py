"""Deployments as the API server has them, and their spread constraints replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.errors import Target
from rebalancer.kube.resources import RESOURCES

MANAGER = "rebalancer-fix"
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
            query={"fieldManager": MANAGER},
            body={
                "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
                "spec": {"template": {"spec": {"topologySpreadConstraints": list(constraints)}}},
            },
            read_timeout=_TIMEOUT,
            content_type="application/merge-patch+json",
        )
        found: Json = msgspec.json.decode(answer.body)
        return found
