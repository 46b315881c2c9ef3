"""A coordination.k8s.io/v1 Lease: read, created, updated only as it was last read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.status import quoted
from rebalancer.kube.coordination.place import Place, labels_of
from rebalancer.kube.errors import NotFoundError, ResponseError, Target
from rebalancer.kube.resources import Resource

LEASES = Resource("Lease", "coordination.k8s.io", "v1", "leases")
SEEN = "rebalancer.io/brake-seen"
"""On a lease: which brake its holder looks at, and which version of it binds the holder by now."""


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """Who holds it. The times are for people: nobody's decision rests on another machine's clock."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class BrakeSeen(Struct, frozen=True):
    """What the holder of a lease says of the brake. `version`: its resourceVersion, "-" before the first."""

    brake: Place
    version: str
    holder: str

    def __str__(self) -> str:
        """The value of the annotation."""
        return f"{self.brake.namespace}/{self.brake.name} {self.version} {self.holder}"

    @staticmethod
    def read(annotations: Mapping[str, str]) -> BrakeSeen | None:
        """As it stands on a lease; None where it does not, or in a form that no holder writes."""
        words = annotations.get(SEEN, "").split()
        if len(words) != 3 or words[0].count("/") != 1:
            return None
        return BrakeSeen(Place(*words[0].split("/")), words[1], words[2])


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _Wire(Struct, frozen=True):
    metadata: _Meta
    spec: LeaseSpec | None = None


class Lease(Struct, frozen=True, eq=False):
    """A lease as read: `version` is what an update has to replace, `whole` the object with all that others
    have put into it."""

    version: str
    spec: LeaseSpec
    annotations: dict[str, str]
    whole: dict[str, Any]


_NONE: Mapping[str, str] = {}
_DECODER = msgspec.json.Decoder(_Wire)


class LeaseClient:
    """One lease by name. Methods raise KubeError: ConflictError where somebody else was quicker."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self._connection = connection
        self.namespace = namespace
        self.name = name

    def get(self, timeout: float) -> Lease | None:
        """The lease; None if there is none. `timeout` in seconds, as below."""
        try:
            return self._ask("GET", "get", None, timeout)
        except NotFoundError as e:
            if e.kind:
                return None
            raise

    def create(self, spec: LeaseSpec, timeout: float, annotations: Mapping[str, str] = _NONE) -> Lease:
        """A new one."""
        body = {
            "apiVersion": f"{LEASES.group}/{LEASES.version}",
            "kind": LEASES.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": labels_of("lease"),
                "annotations": dict(annotations),
            },
            "spec": msgspec.to_builtins(spec),
        }
        return self._ask("POST", "create", body, timeout)

    def update(
        self, lease: Lease, spec: LeaseSpec, timeout: float, annotations: Mapping[str, str] = _NONE
    ) -> Lease:
        """Replaces the spec and these annotations, if the lease is still the one that was read."""
        # The labels too, as an earlier version created leases without them.
        metadata = lease.whole["metadata"]
        labels = {**labels_of("lease"), **(metadata.get("labels") or {})}
        metadata = {**metadata, "labels": labels, "annotations": {**lease.annotations, **annotations}}
        body = {**lease.whole, "metadata": metadata, "spec": msgspec.to_builtins(spec)}
        return self._ask("PUT", "update", body, timeout)

    def delete(self, lease: Lease, timeout: float) -> None:
        """Removes it, if it is still the one that was read."""
        target = Target("delete", LEASES, self.namespace, self.name)
        conditions = {"resourceVersion": lease.version}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        path = LEASES.path(self.namespace, self.name)
        self._connection.request("DELETE", path, target, body=body, read_timeout=timeout)

    def _ask(self, method: str, verb: str, body: Any, timeout: float) -> Lease:
        name = "" if method == "POST" else self.name
        target = Target(verb, LEASES, self.namespace, self.name)
        answer = self._connection.request(
            method, LEASES.path(self.namespace, name), target, body=body, read_timeout=timeout
        )
        try:
            wire = _DECODER.decode(answer.body)
            whole = msgspec.json.decode(answer.body)
        except msgspec.DecodeError as e:
            raise ResponseError(
                f"{target}: cannot be read: {e}: {quoted(answer.body)}",
                f"is {self._connection.who} really an API server?",
                target=target,
                code=answer.code,
            ) from e
        return Lease(
            wire.metadata.resource_version, wire.spec or LeaseSpec(), wire.metadata.annotations or {}, whole
        )


def micro_time(now: float) -> str:
    """Seconds of the epoch as metav1.MicroTime."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
