"""EvictionRequests: what is asked of Kubernetes 1.37 instead of an eviction, and what it answers.

Rule: k8s.io/api lifecycle/v1alpha1 and kubernetes pkg/controller/evictionrequest. A request names a pod by
its uid. The cluster's own controllers evict it, after the pod's own responders, if it has any. A request that
is withdrawn or deleted ends that, unless the pod is being deleted already.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Backoff, Wait
from rebalancer.kube.client.status import quoted
from rebalancer.kube.coordination.place import Place, labels_of, selector_of
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError, ResponseError, Target
from rebalancer.kube.read.pager import pages
from rebalancer.kube.read.served import unless_unserved
from rebalancer.kube.resources import Resource
from rebalancer.model.decode import without_nulls
from rebalancer.model.pod import Pod

log = logging.getLogger(__name__)

EVICTION_REQUESTS = Resource("EvictionRequest", "lifecycle.k8s.io", "v1alpha1", "evictionrequests")
BY = "rebalancer.io/rebalancer"
"""spec.requester: becomes the key of a label, and domains of kubernetes.io are reserved."""
_READ_TIMEOUT = 15.0
INSTALLATION = "rebalancer.io/lease"
"""The label that says whose request it is: who holds this lease is alone with it."""
_POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_AT_ONCE = 8
Key = tuple[str, str]
"""Namespace and name of a request."""


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _PodReference(Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Target(Struct, frozen=True):
    pod: _PodReference = _PodReference()


class _Spec(Struct, frozen=True):
    intent: str = ""
    requester: str = ""
    target: _Target = _Target()


class EvictionRequest(Struct, frozen=True):
    """One request, as far as it is looked at."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def by_us(self) -> bool:
        """Whether it is one that this tool makes: anybody may use the labels."""
        pod = self.spec.target.pod
        named = self.metadata.name == _name(pod.uid) and _POD_NAME.fullmatch(pod.name) is not None
        return named and self.spec.requester == BY

    @property
    def wanted(self) -> bool:
        """Whether the pod is still to be evicted, as far as this request goes."""
        return self.spec.intent == "Eviction"

    @property
    def failed(self) -> str:
        """Why nobody works on it any more; "" while somebody does, or once the pod is evicted."""
        found = next((c for c in self.status.conditions if c.type == "Failed"), _Condition())
        return f"{found.reason}: {found.message}".rstrip(": ") if found.status == "True" else ""


class EvictionRequests:
    """Makes, reads and withdraws the requests of this tool. All methods raise KubeError; none tries again.

    `lease`: that of the installation, which leaves those of others alone; None: all are its own. `selector`:
    the labels of its requests.
    """

    def __init__(
        self, connection: Connection, *, wait: Wait, backoff: Backoff, lease: Place | None = None
    ) -> None:
        mine = {INSTALLATION: lease.label} if lease is not None else {}
        self._labels = {**labels_of("eviction-request"), **mine}
        self.selector = ",".join([selector_of("eviction-request"), *(f"{k}={v}" for k, v in mine.items())])
        self._connection = connection
        self._wait = wait
        self._backoff = backoff
        self._unreadable: set[str] = set()

    def ours(self) -> list[EvictionRequest] | None:
        """All of this installation's requests in the cluster; None where the API is not served.

        What cannot be read is not made by this tool: it is left out, with a warning.
        """
        found: list[EvictionRequest] = []
        try:
            for page in pages(
                self._connection,
                EVICTION_REQUESTS,
                wait=self._wait,
                labels=self.selector,
                backoff=self._backoff,
            ):
                found += (r for raw in page.items or () if (r := self._readable(bytes(raw))) is not None)
        except (ForbiddenError, NotFoundError) as e:
            if isinstance(unless_unserved(self._connection, EVICTION_REQUESTS, e), NotFoundError):
                return None
            raise
        return [r for r in found if r.by_us]

    def create(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Asks for the eviction of the pod. The request goes with the pod, by garbage collection."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        metadata: dict[str, Any] = {
            "name": name_of(pod),
            "namespace": pod.namespace,
            "labels": self._labels,
            "ownerReferences": [owner],
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        self._connection.request(
            "POST",
            EVICTION_REQUESTS.path(pod.namespace),
            _target("create", pod.namespace),
            body={
                "apiVersion": EVICTION_REQUESTS.api_version,
                "kind": EVICTION_REQUESTS.kind,
                "metadata": metadata,
                "spec": {
                    "target": {"pod": {"name": pod.name, "uid": pod.uid}},
                    "requester": BY,
                    "intent": "Eviction",
                },
            },
            read_timeout=_READ_TIMEOUT,
            once=True,
        )

    def get(self, namespace: str, name: str) -> EvictionRequest | None:
        """The request of that name; None if there is none."""
        target = _target("get", namespace, name)
        try:
            answer = self._connection.request(
                "GET", EVICTION_REQUESTS.path(namespace, name), target, read_timeout=_READ_TIMEOUT
            )
        except NotFoundError as e:
            _no_such_request(e)
            return None
        return self._decode(answer.body, target)

    def set_intent(self, namespace: str, name: str, intent: str) -> EvictionRequest | None:
        """Eviction or Withdrawn; None if there is no such request (any more)."""
        target = _target("patch", namespace, name)
        try:
            answer = self._connection.request(
                "PATCH",
                EVICTION_REQUESTS.path(namespace, name),
                target,
                body={"spec": {"intent": intent}},
                content_type="application/merge-patch+json",
                read_timeout=_READ_TIMEOUT,
                once=intent == "Eviction",
            )
        except NotFoundError as e:
            _no_such_request(e)
            return None
        return self._decode(answer.body, target)

    def withdraw(self, requests: Collection[Key]) -> dict[Key, KubeError]:
        """Withdraws several, side by side. Those that could not be withdrawn, and why; raises nothing."""

        def one(key: Key) -> KubeError | None:
            try:
                self.set_intent(*key, "Withdrawn")
            except KubeError as e:
                return e
            return None

        if not requests:
            return {}
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="withdraw") as pool:
            found = zip(requests, pool.map(one, requests), strict=True)
            return {key: e for key, e in found if e is not None}

    def delete(self, namespace: str, name: str) -> None:
        """Deletes a request that is over."""
        target = _target("delete", namespace, name)
        try:
            path = EVICTION_REQUESTS.path(namespace, name)
            self._connection.request("DELETE", path, target, read_timeout=_READ_TIMEOUT)
        except NotFoundError as e:
            _no_such_request(e)

    def _readable(self, raw: bytes) -> EvictionRequest | None:
        try:
            return self._decode(raw, _target("list"))
        except ResponseError as e:
            if e.message not in self._unreadable:
                self._unreadable.add(e.message)
                log.warning("an EvictionRequest is left out: %s", e.message)
            return None

    def _decode(self, body: bytes, target: Target) -> EvictionRequest:
        try:
            # Null is what the API knows as absent.
            return msgspec.convert(without_nulls(msgspec.json.decode(body)), EvictionRequest)
        except (msgspec.DecodeError, RecursionError) as e:
            text = f"{target}: cannot be read: {e}: {quoted(body)}"
            raise ResponseError(text, target=target, code=200) from e


def name_of(pod: Pod) -> str:
    """One name for one pod: asking twice makes no second request."""
    return _name(pod.uid)


def key_of(pod: Pod) -> Key:
    """Namespace and name of the request for a pod."""
    return pod.namespace, name_of(pod)


def _name(uid: str) -> str:
    return f"rebalancer-{uid}"


def _no_such_request(e: NotFoundError) -> None:
    """Raises the error unless it says that it is the request that is missing.

    An API server that does not serve the API says not found too, while the others of its control plane
    work on the request.
    """
    if e.kind != EVICTION_REQUESTS.plural:
        raise e


def _target(verb: str, namespace: str = "", name: str = "") -> Target:
    return Target(verb, EVICTION_REQUESTS, namespace, name)
