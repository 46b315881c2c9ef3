"""Everything that can go wrong with the API server, as one tree.

    KubeError                     message, remedy: a UserError, fit for the terminal
    ├── ConfigurationError        kubeconfig, context, credentials plugin, token file; nothing was sent
    ├── CacheNotReadyError        the watch cache is incomplete or stale; `kinds` says of what
    ├── TransportError            no answer; `sent` tells whether the server may have acted on the request
    ├── ResponseError             an answer that is not the API's (garbage, a proxy's page); it may have acted
    └── StatusError               an answer that refuses: code, reason, causes, retry_after
        ├── UnauthorizedError     401; credentials have been refreshed once
        ├── ForbiddenError        403: RBAC, or an admission webhook
        ├── NotFoundError         404
        ├── ConflictError         409
        ├── ExpiredError          410: a continue token or resource version is too old
        ├── TooManyRequestsError  429: flow control, or a disruption budget
        └── ServerError           5xx

What was caught is chained as `__cause__`. Every error knows its `target`, what was asked of which object.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

import msgspec
from msgspec import Struct
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from rebalancer.errors import UserError
from rebalancer.kube.resources import Resource


class Target(Struct, frozen=True):
    """What was asked: RBAC's verb on a resource, perhaps one object of it; `say` for requests without one."""

    verb: str
    resource: Resource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    say: str = ""

    @property
    def plural(self) -> str:
        """The resource as RBAC rules write it: pods/eviction."""
        plural = self.resource.plural if self.resource else ""
        return f"{plural}/{self.subresource}" if self.subresource else plural

    def __str__(self) -> str:
        """create pods/eviction shop/web-1."""
        if self.say:
            return self.say
        place = "/".join(p for p in (self.namespace, self.name) if p)
        return f"{self.verb} {self.plural}" + (f" {place}" if place else "")

    @property
    def rule(self) -> str:
        """The RBAC rule that allows it, as one line of YAML."""
        group = self.resource.group if self.resource else ""
        return f'{{apiGroups: ["{group}"], resources: ["{self.plural}"], verbs: ["{self.verb}"]}}'


class Cause(Struct, frozen=True):
    """One of `details.causes` of a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


PROXY = "is there a proxy that answers for the API server?"
"""What may be behind an answer that cannot be the API server's."""


class KubeError(UserError):
    """Root of the tree."""

    def __init__(self, message: str, remedy: str = "", *, target: Target | None = None) -> None:
        super().__init__(message, remedy)
        self.target = target


class ConfigurationError(KubeError):
    """No usable way to reach a cluster; nothing was sent."""


class CacheNotReadyError(KubeError):
    """The watch cache does not know the cluster well enough for a decision: `kinds` are missing or stale."""

    def __init__(self, message: str, *, kinds: tuple[str, ...]) -> None:
        super().__init__(message)
        self.kinds = kinds


class TransportError(KubeError):
    """No answer. `sent`: the request may have reached the server, which may have acted on it. `ended`: the
    other side ended the connection; otherwise it was silent, and may be at work still. `lasting`: it does not
    pass by itself, such as a name that does not resolve or a certificate that is not trusted."""

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        target: Target | None = None,
        sent: bool,
        ended: bool = False,
        lasting: bool = False,
    ) -> None:
        super().__init__(message, remedy, target=target)
        self.sent = sent
        self.ended = ended
        self.lasting = lasting


class ResponseError(KubeError):
    """An answer that cannot be read, or does not come from an API server. `code` is its HTTP status."""

    def __init__(self, message: str, remedy: str = "", *, target: Target | None = None, code: int) -> None:
        super().__init__(message, remedy, target=target)
        self.code = code


class StatusError(KubeError):
    """The API server refused.

    `code` HTTP status, `reason` and `text` of the Status, `causes` its details, `kind` of `details` (the
    plural of what was missing or in conflict), `retry_after` seconds to wait or None where the server names
    none, `resume` the continue token that an expired list offers.
    """

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        target: Target | None = None,
        code: int,
        reason: str = "",
        text: str = "",
        causes: tuple[Cause, ...] = (),
        kind: str = "",
        retry_after: float | None = None,
        resume: str = "",
    ) -> None:
        super().__init__(message, remedy, target=target)
        self.code = code
        self.reason = reason
        self.text = text
        self.causes = causes
        self.kind = kind
        self.retry_after = retry_after
        self.resume = resume

    @property
    def from_budget(self) -> bool:
        """Whether a PodDisruptionBudget is what refused."""
        return any(c.reason == "DisruptionBudget" for c in self.causes)

    @property
    def unasked(self) -> bool:
        """Whether a webhook whose failurePolicy is Fail could not be asked, or did not answer in time."""
        return _UNASKED in self.text

    @property
    def by_webhook(self) -> bool:
        """Whether admission refused: a webhook, which may choose any code, one that could not be asked, or a
        policy. No RBAC rule changes that, and nothing was done."""
        return any(say in self.text for say in _ADMISSION)


_UNASKED = "failed calling webhook"
_ADMISSION = ("admission webhook", "ValidatingAdmissionPolicy", _UNASKED)
"""What the API server says of admission (apiserver pkg/admission/plugin/webhook/errors/statuserror.go and
validating/dispatcher.go). It asks webhooks before it writes anything (apiserver endpoints/handlers/create.go;
for evictions `createValidation` comes first in kubernetes pkg/registry/core/pod/storage/eviction.go). So the
pod is as before, also where the call of a webhook took too long."""


class UnauthorizedError(StatusError):
    """401."""


class ForbiddenError(StatusError):
    """403."""


class NotFoundError(StatusError):
    """404: no such object, or no such API (`kind` is empty then)."""

    def unless_none(self, target: Target) -> None:
        """Raises ResponseError unless it says that there is no such object: then something else has
        answered."""
        if not self.kind:
            say = f"{target}: the answer, {self.code}, is about no object: {self.text}"
            raise ResponseError(say, PROXY, target=target, code=self.code) from self


class ConflictError(StatusError):
    """409."""


class ExpiredError(StatusError):
    """410."""


class TooManyRequestsError(StatusError):
    """429."""


class ServerError(StatusError):
    """5xx."""


def status_class(code: int) -> type[StatusError]:
    """The class of the tree for an HTTP status."""
    if code >= 500:
        return ServerError
    return _CLASSES.get(code, StatusError)


_CLASSES: dict[int, type[StatusError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    429: TooManyRequestsError,
}


# An HTTP answer other than 2xx → the error of the tree, with what a person can do about it.

_LONGEST_QUOTE = 200


class _Details(Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: float = 0


class _Meta(Struct, frozen=True):
    resume: str = msgspec.field(name="continue", default="")


class _Status(Struct, frozen=True, rename="camel"):
    """metav1.Status."""

    kind: str
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    metadata: _Meta = _Meta()


_DECODER = msgspec.json.Decoder(_Status)


def error_of(code: int, headers: Mapping[str, str], body: bytes, target: Target, *, who: str) -> KubeError:
    """The error that an answer means. `who` names server and context for the remedy."""
    try:
        status = _DECODER.decode(body)
    except msgspec.DecodeError:
        status = None
    retry_after = _seconds(headers.get("Retry-After"))
    if status is None or status.kind != "Status":
        if code == 404:
            # A path under a group or version that is not served is answered in plain text.
            return status_class(code)(
                f"{target}: not found: {quoted(body)}",
                _remedy(code, "", target, who),
                target=target,
                code=code,
            )
        if code in (401, 403, 429) or 300 <= code < 400:
            # Proxies and load balancers speak for themselves here; the request went no further.
            return status_class(code)(
                f"{target}: HTTP {code} and no Status in the answer: {quoted(body)}",
                f"something in front of the API server answered ({who}): look at proxies and load balancers",
                target=target,
                code=code,
                retry_after=retry_after,
            )
        return ResponseError(
            f"{target}: HTTP {code} with a body that no API server sends: {quoted(body)}",
            f"is {who} really an API server, with no proxy in between that answers for it?",
            target=target,
            code=code,
        )
    details = status.details or _Details()
    if retry_after is None and details.retry_after_seconds > 0:
        retry_after = details.retry_after_seconds
    text = status.message or status.reason or f"HTTP {code}"
    causes = "; ".join(c.message for c in details.causes if c.message and c.message not in text)
    return status_class(code)(
        f"{target}: {text}" + (f" ({causes})" if causes else ""),
        _remedy(
            code, text, target, who, by_budget=any(c.reason == "DisruptionBudget" for c in details.causes)
        ),
        target=target,
        code=code,
        reason=status.reason,
        text=text,
        causes=details.causes,
        kind=details.kind,
        retry_after=retry_after,
        resume=status.metadata.resume,
    )


def quoted(body: bytes) -> str:
    """The beginning of a body in one printable line."""
    text = " ".join(body[: _LONGEST_QUOTE * 2].decode("utf-8", "replace").split())
    return repr(text[:_LONGEST_QUOTE] + ("…" if len(text) > _LONGEST_QUOTE else "")) if text else "(empty)"


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; the API server never sends the form with a date."""
    return float(header) if header is not None and header.strip().isdecimal() else None


def _remedy(code: int, text: str, target: Target, who: str, *, by_budget: bool = False) -> str:
    if _UNASKED in text:
        return "a webhook with failurePolicy Fail cannot be asked: look at the service behind it"
    if any(say in text for say in _ADMISSION):
        return "an admission policy of the cluster refuses it; RBAC does not change that"
    if code == 401:
        return f"the credentials for {who} are missing, wrong or expired, also after refreshing them once"
    if code == 403 and target.resource is not None:
        # A Role is enough where the request was about one namespace.
        role = "a Role or ClusterRole" if target.namespace else "a ClusterRole"
        check = f"kubectl auth can-i {target.verb} {target.resource.qualified}"
        if target.subresource:
            check += f" --subresource={target.subresource}"
        check += f" -n {target.namespace}" if target.namespace else " --all-namespaces"
        return f"bind {role} with the rule {target.rule}; check with `{check}`"
    if code == 404 and target.resource is not None and not target.name:
        return f"the API {target.resource.group or 'core'}/{target.resource.version} is not served by {who}"
    if by_budget:
        return "the budget has to regain an allowance: more healthy pods, or a looser budget"
    if code == 429:
        return "the API server asks for patience; if it lasts, see its flow-control metrics"
    if code >= 500:
        return f"see the logs of the API server ({who})"
    return ""


class LateError(OSError):
    """What a request rests on had become old when its connection was there. Nothing was sent."""


# The open sockets of one connection pool, so that a thread blocked in a read can be set free by another.


class Sockets:
    """Knows every socket that the pools of its managers opened. Thread-safe."""

    def __init__(self) -> None:
        self._open: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._asked = threading.local()
        self.aborted = False

    def track(self, manager: Any) -> None:
        """Makes a urllib3.PoolManager report its sockets here."""
        pools: dict[str, type] = {}
        for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool)):
            connection = pool.ConnectionCls
            reporting = type(f"Tracked{connection.__name__}", (_Reporting, connection), {"sockets": self})
            pools[scheme] = type(f"Tracked{pool.__name__}", (pool,), {"ConnectionCls": reporting})
        manager.pool_classes_by_scheme = pools

    @contextlib.contextmanager
    def asking(self, fresh: Callable[[], bool] | None) -> Iterator[None]:
        """Requests of this thread are sent only if this says so, when their connection is there. What of one
        without an answer is still on its way is dropped."""
        self._asked.fresh, self._asked.sock = fresh, None
        try:
            yield
        finally:
            self._asked.fresh = None
            if self._asked.sock is not None:
                _when_closed(self._asked.sock, drop=False)

    def ask(self, sock: socket.socket) -> None:
        """The connection is there, nothing is sent yet. Raises LateError."""
        fresh = getattr(self._asked, "fresh", None)
        if fresh is not None:
            if not fresh():
                raise LateError("the connection took so long that what it was sent for had become old")
            self._asked.sock = sock
            _when_closed(sock, drop=True)
        self._asked.sent = True

    @property
    def sent(self) -> bool:
        """Whether this thread's request went out, or a part of it, and not only what connects to a proxy."""
        return getattr(self._asked, "sent", False)

    @sent.setter
    def sent(self, so_far: bool) -> None:
        self._asked.sent = so_far

    def opened(self, sock: socket.socket) -> None:
        """A socket was connected."""
        with self._lock:
            self._open.add(sock)
            late = self.aborted
        if late:
            shut(sock)

    def abort(self) -> None:
        """Ends every read and write at work, for good: sockets that are connected later end at once."""
        with self._lock:
            self.aborted = True
            every = list(self._open)
        for sock in every:
            shut(sock)


class _Reporting:
    """Mixed into urllib3's connections."""

    sockets: Sockets

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        sock = getattr(self, "sock", None)
        if sock is not None:
            self.sockets.opened(sock)

    def endheaders(self, *args: Any, **more: Any) -> None:
        if getattr(self, "sock", None) is None:
            self.connect()
        self.sockets.ask(self.sock)  # type: ignore[attr-defined]
        super().endheaders(*args, **more)  # type: ignore[misc]


def _when_closed(sock: socket.socket, *, drop: bool) -> None:
    """Whether the kernel drops what it has not delivered. By default it goes on trying for minutes."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", drop, 0))


def shut(sock: socket.socket) -> None:
    """Ends reads and writes at work on a socket, whichever thread they are in."""
    # Of the plain class: SSLSocket's own would pull the TLS state from under the thread that reads.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


# An answer that is read as it comes: lines of a watch, a list that is too large to be held.

_PIECE = 65536
_LONGEST_LINE = 64 * 2**20
"""Bytes; etcd holds no object of more than a few MiB, so a longer line is no event."""


class Stream:
    """The body of a 2xx answer. `failed` turns what reading raises into a KubeError."""

    def __init__(self, answer: Any, failed: Callable[[Exception], KubeError]) -> None:
        self._answer = answer
        self._failed = failed

    def batches(self) -> Iterator[list[bytes]]:
        """Complete lines, as many at a time as have come. Ends where the server ends the body.

        A body that ends within a line has been cut. Raises KubeError.
        """
        rest: list[bytes] = []
        size = 0
        for piece in self.pieces():
            *lines, last = piece.split(b"\n")
            if lines:
                lines[0] = b"".join((*rest, lines[0]))
                rest, size = [], 0
                if complete := [line for line in lines if line]:
                    yield complete
            if last:
                rest.append(last)
                size += len(last)
                if size > _LONGEST_LINE:
                    raise self._failed(ConnectionError(f"a line of more than {_LONGEST_LINE >> 20} MiB"))
        if rest:
            raise self._failed(ConnectionError("cut in the middle of an event"))

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes, decompressed. Ends where the server ends it. Raises KubeError."""
        try:
            if self._answer.chunked:
                yield from self._answer.read_chunked(_PIECE, decode_content=True)
                return
            while piece := self._answer.read1(_PIECE, decode_content=True):
                yield piece
        except (HTTPError, OSError, ValueError) as e:
            raise self._failed(e) from e

    def release(self) -> None:
        """The body was read to its end: the connection may serve another request."""
        self._answer.release_conn()

    def close(self) -> None:
        """Closes the connection as well: what is left of the body is of no use to another request."""
        self._answer.close()

    def abort(self) -> None:
        """Ends it from another thread: whoever reads it gets a KubeError."""
        sock = getattr(self._answer.connection, "sock", None)
        if sock is not None:
            shut(sock)
