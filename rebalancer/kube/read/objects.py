"""Single objects and small lists, read fresh and decoded: what is looked at around an eviction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

import msgspec
from msgspec.structs import replace

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.client.status import quoted
from rebalancer.kube.errors import ExpiredError, ForbiddenError, NotFoundError, ResponseError, Target
from rebalancer.kube.read.head import HeadMeta, head
from rebalancer.kube.read.pager import pages
from rebalancer.kube.resources import NAMED, RESOURCES
from rebalancer.model.decode import MALFORMED, Decoder
from rebalancer.model.kinds import Object
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.workload import PodDisruptionBudget, Workload

_READ_TIMEOUT = 15.0
"""Seconds; one object is small, and an eviction waits for it."""
_RELISTS = 3
_MOST_REMEMBERED = 20_000
"""Parts that objects may share; beyond it they are forgotten, as a daemon reads for months."""


class Objects:
    """Reads objects of one cluster. Safe to use from several threads.

    All methods retry what may be retried and raise KubeError; an object that the model cannot read is a
    ResponseError here, because a decision about this very object hangs on it. `namespaces`: those in which
    objects may be looked for; empty = all.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        wait: Wait,
        backoff: Backoff = DEFAULT_BACKOFF,
        namespaces: Collection[str] = (),
    ) -> None:
        self._connection = connection
        self._namespaces = tuple(namespaces)
        self._wait = wait
        self._backoff = backoff
        self._decoder = Decoder()
        self._decoding = threading.Lock()

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name; None if there is none."""
        found = self._get("Pod", namespace, name)
        return found if isinstance(found, Pod) else None

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name; None if there is none, or if the kind is not one that is read."""
        if kind not in RESOURCES:
            return None
        found = self._get(kind, namespace, name)
        return found if isinstance(found, Workload) else None

    def exists(self, kind: str, namespace: str, name: str) -> bool | None:
        """Whether there is an object of that name, of a kind in `NAMED`; None where that cannot be seen: it
        may not be read, or the kind is not served."""
        resource = NAMED[kind]
        target = Target("get", resource, namespace, name)
        where = resource.path(namespace, name)

        def ask() -> None:
            self._connection.request(
                "GET", where, target, accept=resource.watch_accept, read_timeout=_READ_TIMEOUT
            )

        try:
            retry(ask, wait=self._wait, backoff=self._backoff)
        except ForbiddenError:
            return None
        except NotFoundError as e:
            return False if e.kind else None
        return True

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace."""
        _, found = self._list("PodDisruptionBudget", namespace)
        return tuple(o for o in found if isinstance(o, PodDisruptionBudget))

    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return tuple(o for o in self._list("Node")[1] if isinstance(o, Node))

    def pods(self, namespace: str, labels: str = "") -> tuple[Pod, ...]:
        """The pods of a namespace that a selector (kubectl's -l) selects."""
        return self.pods_as_of(namespace, labels)[1]

    def pods_as_of(self, namespace: str, labels: str = "") -> tuple[str, tuple[Pod, ...]]:
        """The same, and the version of the cluster that shows them."""
        version, found = self._list("Pod", namespace, labels)
        return version, tuple(o for o in found if isinstance(o, Pod))

    def newest(self, kind: str, fields: str) -> HeadMeta | None:
        """Of the objects that a field selector selects (the first 500) the one that changed last.

        It is what the API server has now, also where its watches are behind: a list without resourceVersion
        is consistent. Only metadata is asked for.
        """
        found: list[HeadMeta] = []
        for resource in replace(RESOURCES[kind], metadata_only=True).parts(self._namespaces):
            page = next(
                pages(self._connection, resource, wait=self._wait, fields=fields, backoff=self._backoff)
            )
            found += (head(raw) for raw in page.items or ())
        return max(
            found, key=lambda m: int(m.resource_version) if m.resource_version.isdigit() else 0, default=None
        )

    def _get(self, kind: str, namespace: str, name: str) -> Object | None:
        resource = RESOURCES[kind]
        target = Target("get", resource, namespace, name)

        def ask() -> Object:
            answer = self._connection.request(
                "GET", resource.path(namespace, name), target, read_timeout=_READ_TIMEOUT
            )
            return self._decode(kind, answer.body, target)

        try:
            return retry(ask, wait=self._wait, backoff=self._backoff)
        except NotFoundError as e:
            if not e.kind:
                raise  # the API itself is missing, which says nothing about the object
            return None

    def _list(self, kind: str, namespace: str = "", labels: str = "") -> tuple[str, list[Object]]:
        resource = RESOURCES[kind]
        target = Target("list", resource, namespace)
        tried = 0
        while True:
            tried += 1
            found: list[Object] = []
            version = ""
            try:
                for page in pages(
                    self._connection,
                    resource,
                    wait=self._wait,
                    namespace=namespace,
                    labels=labels,
                    backoff=self._backoff,
                ):
                    version = page.metadata.resource_version
                    found += (self._decode(kind, raw, target) for raw in page.items or ())
                return version, found
            except ExpiredError:
                if tried >= _RELISTS:
                    raise

    def _decode(self, kind: str, raw: bytes | msgspec.Raw, target: Target) -> Object:
        try:
            with self._decoding:
                if self._decoder.entries > _MOST_REMEMBERED:
                    self._decoder.keep(())
                return self._decoder.decode(kind, raw)
        except MALFORMED as e:
            raise ResponseError(
                f"{target}: cannot be read: {e}: {quoted(bytes(raw))}",
                f"is {self._connection.who} really an API server?",
                target=target,
                code=200,
            ) from e


PodReader = Callable[[str, str], Pod | None]
"""`Objects.pod`, for those who need no more."""
