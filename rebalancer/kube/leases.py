"""A coordination.k8s.io/v1 Lease: read, created, updated only as it was last read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.kube.config_maps import CONFIG_MAPS, Component, Place, labels_of
from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait, retry
from rebalancer.kube.errors import NotFoundError, Target
from rebalancer.kube.lists import list_target, pages
from rebalancer.kube.resources import Resource
from rebalancer.model.quantity import epoch
from rebalancer.policy.options import COMPONENT, NAME, OURS

LEASES = Resource("Lease", "coordination.k8s.io", "v1", "leases")
SEEN = "rebalancer.io/brake-seen"
"""On a lease: which brake its holder looks at, and which version of it binds the holder by now."""
LEDGER = "rebalancer.io/ledger"
"""On a lease: in which ledger its holders count evictions (namespace/name)."""
SCALE_INS = "rebalancer.io/scale-ins"
"""On a lease: what scale-ins have left since when, as its holders saw them."""


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


class LeaseClient:
    """One lease by name. Methods raise KubeError: ConflictError where somebody else was quicker."""

    def __init__(
        self, connection: Connection, namespace: str, name: str, component: Component = "lease"
    ) -> None:
        self._connection = connection
        self.namespace = namespace
        self.name = name
        self._labels = labels_of(component)

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
                "labels": self._labels,
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
        labels = {**self._labels, **(metadata.get("labels") or {})}
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
        wire = self._connection.decoded(answer.body, _Wire, target)
        whole = self._connection.decoded(answer.body, dict[str, Any], target)
        return Lease(
            wire.metadata.resource_version, wire.spec or LeaseSpec(), wire.metadata.annotations or {}, whole
        )


# Finds brakes, ledgers and leases of a cluster, in whatever namespace they are, and who was let in.
#
# Whoever may write in some namespace can make objects that look like these. A ClusterRoleBinding is an
# administrator's: it says in which namespaces the tool was installed.

_TIMEOUT = 15.0
_LONG_AGO = 600.0
"""Seconds since its last renewal after which the holder of a lease has most likely ended without a word."""
_BINDINGS = Resource(
    "ClusterRoleBinding", "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False
)
_ROLES = ("-read", "-evict")
"""How the names of the roles end that every installation has."""


class Found(Struct, frozen=True):
    """An object as it was found. `holder`: of a lease, who holds it; "" = nobody. `old`: by the holder's own
    clock, which may be wrong, it was last `renewed` long ago. `lasts`: seconds from a renewal on."""

    place: Place
    version: str
    annotations: dict[str, str] = {}
    holder: str = ""
    old: bool = False
    renewed: str = ""
    lasts: float = 0.0


class Renewals:
    """Which leases are still renewed, as seen from here: what they say of it is by their holders' clocks."""

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[str, float]] = {}

    def run_out(self, place: Place, renewed: str, lasts: float) -> bool:
        """Whether it was not renewed for as long as it lasts, so that nobody acts by it."""
        now = time.monotonic()
        last, since = self._seen.get(place, ("", now))
        self._seen[place] = renewed, since if renewed == last else now
        return now - self._seen[place][1] > lasts


class _FoundMeta(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Item(Struct, frozen=True):
    metadata: _FoundMeta
    spec: LeaseSpec | None = None


class _Role(Struct, frozen=True):
    name: str = ""


class _Subject(Struct, frozen=True):
    kind: str = ""
    namespace: str = ""


class _Binding(Struct, frozen=True, rename="camel"):
    role_ref: _Role = _Role()
    subjects: list[_Subject] | None = None


class _Bindings(Struct, frozen=True):
    items: list[_Binding] = []


def find(
    connection: Connection,
    component: Component,
    name: str,
    namespace: str = "",
    *,
    wait: Wait,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> list[Found]:
    """Each that has the labels, or this name: kubectl sets no labels, and some tools remove them.

    `namespace`: look there only. Raises KubeError: ForbiddenError if they may not be listed.
    """
    # Anybody's ConfigMaps may be large, and many.
    resource = LEASES if component == "lease" else replace(CONFIG_MAPS, metadata_only=True)
    target = list_target(resource, namespace)
    found = {}
    by_label = f"{NAME}={OURS},{COMPONENT}={component}"  # also what a chart created
    for labels, fields in ((by_label, ""), ("", f"metadata.name={name}")):
        for page in pages(
            connection,
            resource,
            wait=wait,
            namespace=namespace,
            labels=labels,
            fields=fields,
            backoff=backoff,
            read_timeout=_TIMEOUT,
        ):
            for raw in page.items or ():
                item = _found(connection.decoded(raw, _Item, target), connection)
                found[item.place] = item
    return [found[place] for place in sorted(found, key=str)]


def find_one(
    connection: Connection,
    component: Component,
    place: Place,
    *,
    wait: Wait,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> Found | None:
    """The one at this place; None if there is none. Raises KubeError."""
    resource = LEASES if component == "lease" else CONFIG_MAPS
    target = Target("get", resource, place.namespace, place.name)

    def ask() -> Found:
        path = resource.path(place.namespace, place.name)
        answer = connection.request("GET", path, target, read_timeout=_TIMEOUT)
        return _found(connection.decoded(answer.body, _Item, target), connection)

    try:
        return retry(ask, wait=wait, backoff=backoff)
    except NotFoundError:
        return None


def granted(connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> frozenset[str]:
    """The namespaces whose service accounts an administrator has given the tool's rights.

    Raises KubeError: ForbiddenError if that may not be read.
    """
    target = Target("list", _BINDINGS)

    def ask() -> _Bindings:
        query = {"labelSelector": f"{NAME}={OURS}"}
        answer = connection.request("GET", _BINDINGS.path(), target, query=query, read_timeout=_TIMEOUT)
        return connection.decoded(answer.body, _Bindings, target)

    bindings = retry(ask, wait=wait, backoff=backoff).items
    subjects = (s for b in bindings if b.role_ref.name.endswith(_ROLES) for s in b.subjects or ())
    return frozenset(s.namespace for s in subjects if s.kind == "ServiceAccount" and s.namespace)


def _found(item: _Item, connection: Connection) -> Found:
    meta, spec = item.metadata, item.spec or LeaseSpec()
    renewed, now = epoch(spec.renew_time), connection.time() or time.time()
    old = renewed is not None and now - renewed > _LONG_AGO
    place = Place(meta.namespace, meta.name)
    return Found(
        place,
        meta.resource_version,
        meta.annotations or {},
        spec.holder_identity,
        old,
        spec.renew_time,
        spec.lease_duration_seconds,
    )
