"""Requests to the API server through the official client's transport: bytes in, bytes out.

The client brings TLS, proxies, the connection pool and credentials. Retries, redirects and models of the
client are not used.
"""

from __future__ import annotations

import logging
import math
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.client import IncompleteRead
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.config_exception import ConfigException
from msgspec import Struct
from msgspec.structs import replace
from urllib3 import exceptions as urllib3_errors
from urllib3.exceptions import HTTPError

from rebalancer import __version__
from rebalancer.kube.config import IN_CLUSTER, ClusterOptions, Loaded, load
from rebalancer.kube.errors import (
    PROXY,
    ConfigurationError,
    KubeError,
    LateError,
    ResponseError,
    ServerError,
    Sockets,
    StatusError,
    Stream,
    Target,
    TooManyRequestsError,
    TransportError,
    UnauthorizedError,
    error_of,
    quoted,
)
from rebalancer.model.decode import MALFORMED

# What a failure below HTTP means, in words, and whether the server may have received the request.


class Failure(Struct, frozen=True):
    """`text` what happened, `sent` whether the request may have arrived, `remedy` "" for the usual one.
    `ended`: the other side ended the connection, instead of keeping silent. `lasting`: somebody has to change
    something before the same request gets an answer."""

    text: str
    sent: bool
    remedy: str = ""
    ended: bool = False
    lasting: bool = False


def explain(e: Exception, *, connect_timeout: float, read_timeout: float, sent: bool) -> Failure:
    """The meaning of what urllib3, the client or a socket raised. In doubt, the request was sent; `sent`: it
    went out, at least in part."""
    chain = _chain(e)
    deepest = chain[-1]

    def has(*types: type[BaseException]) -> bool:
        return any(isinstance(c, types) for c in chain)

    # Order matters: what fails on the way to a proxy looks like the other kinds as well, and a refused
    # connection is a kind of connect timeout to urllib3.
    if has(LateError):
        return Failure(f"not sent: {deepest}", False, "look at the network between here and the API server")
    # Behind a proxy a connection that is lost later is one to urllib3, too.
    if has(urllib3_errors.ProxyError) and not sent:
        remedy = "see proxy-url in the kubeconfig, $HTTPS_PROXY and $NO_PROXY"
        return Failure(f"the proxy does not connect: {deepest}", False, remedy)
    if has(urllib3_errors.NameResolutionError):
        return Failure("the server's name does not resolve", False, lasting=True)
    if has(urllib3_errors.NewConnectionError):
        return Failure(
            "connection refused" if has(ConnectionRefusedError) else f"no connection: {deepest}", False
        )
    if has(urllib3_errors.ConnectTimeoutError):
        return Failure(f"no connection within {connect_timeout:g} s", False)
    if has(ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(e):
        remedy = "certificate-authority in the kubeconfig belongs to another cluster, or the name differs"
        return Failure(f"the server's certificate is not trusted: {deepest}", False, remedy, lasting=True)
    if has(urllib3_errors.TimeoutError, TimeoutError):
        return Failure(f"no answer within {read_timeout:g} s", True)
    if isinstance(e, urllib3_errors.LocationValueError) or type(e) in (ValueError, UnicodeEncodeError):
        remedy = "see server, proxy-url and the token in the kubeconfig"
        return Failure(f"the request cannot be made: {e}", False, remedy, lasting=True)
    ended = has(
        ConnectionError,
        IncompleteRead,
        urllib3_errors.IncompleteRead,
        ssl.SSLEOFError,
        ssl.SSLZeroReturnError,
    )
    return Failure(f"connection lost: {deepest}", True, ended=ended)


def _chain(e: BaseException) -> list[BaseException]:
    """The exception and what it wraps, outermost first; urllib3 keeps causes in attributes and arguments."""
    chain: list[BaseException] = []
    todo: list[Any] = [e]
    while todo:
        c = todo.pop(0)
        if isinstance(c, BaseException) and c not in chain:
            chain.append(c)
            todo += [getattr(c, "original_error", None), getattr(c, "reason", None), c.__cause__, *c.args]
            # The context may be an older error that somebody up the stack is just handling.
            if isinstance(c, ApiException):
                todo.append(c.__context__)
    return chain


# The clock by which the age of what is known is measured.


def steady() -> float:
    """Seconds of a clock that never jumps and, where the system has one, goes on while it sleeps.

    After a suspended machine wakes up, leases have run out and watches are dead; `time.monotonic` would not
    have noticed.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(clock) if clock is not None else time.monotonic()


T = TypeVar("T")

log = logging.getLogger(__name__)
_DEFAULTS = ClusterOptions()
_REMEMBERED = 600.0
"""Seconds after which an answer's Date begins to be forgotten."""


class Response(Struct, frozen=True, eq=False):
    """A 2xx answer: headers case-insensitive, body decompressed."""

    code: int
    headers: Mapping[str, str]
    body: bytes


class ServerTime:
    """What the API server's clock shows, by the Date of its answers. Thread-safe.

    A Date says that it is that late at least. It goes on by a clock that is never set, so that setting the
    machine's changes nothing. Of the last ten to twenty minutes the latest counts: an older Date, by another
    server of the cluster or out of a cache, is no step back, and none counts for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: list[float] = []
        """By how much it is ahead of the steady clock: of late, and in the ten minutes before."""
        self._began = 0.0

    def heard(self, date: str | None) -> None:
        """An answer has come."""
        at = steady()
        try:
            ahead = parsedate_to_datetime(date or "").timestamp() - at
        except (ValueError, OverflowError):
            return
        with self._lock:
            if not self._ahead or at - self._began > _REMEMBERED:
                self._ahead, self._began = [ahead, *self._ahead[:1]], at
            self._ahead[0] = max(ahead, self._ahead[0])

    def __call__(self) -> float | None:
        """Seconds since the epoch; None if no answer had a Date."""
        with self._lock:
            return max(self._ahead) + steady() if self._ahead else None


class Connection:
    """One API server and one identity. Safe to use from several threads.

    `source`: hands out the configuration, and is asked again when the server answers 401: for credentials,
    never for another cluster. `beside`: a connection to the same server. `time`: what the server's clock
    shows. `evicting_until`: by the steady clock, until when a request sent while `evicting` may still be
    carried out.
    """

    def __init__(
        self,
        options: ClusterOptions = _DEFAULTS,
        source: Callable[[], Loaded] | None = None,
        *,
        beside: Connection | None = None,
    ):
        self.options = options
        self._source = source or (lambda: load(self.options))
        self._lock = threading.Lock()
        self._generation = 0
        self._sockets = Sockets()
        self.time: ServerTime = beside.time if beside is not None else ServerTime()
        self.evicting_until = 0.0
        self._loaded = beside._again() if beside is not None else self._source()
        if self._loaded.context != IN_CLUSTER:
            # `kubectl config use-context` is not meant for who is at work already.
            self.options = replace(options, context=self._loaded.context)
        self._rest = self._client()

    @property
    def server(self) -> str:
        """Base URL."""
        return str(self._loaded.client.host)

    @property
    def context(self) -> str:
        """Name of the kubeconfig's context, or "in-cluster"."""
        return self._loaded.context

    @property
    def namespace(self) -> str:
        """The context's own namespace."""
        return self._loaded.namespace

    @property
    def who(self) -> str:
        """Server and context, for messages."""
        return f"{self.server}, context {self.context}"

    def request(
        self,
        method: str,
        path: str,
        target: Target,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        accept: str = "application/json",
        read_timeout: float | None = None,
        gzip: bool = False,
        content_type: str = "application/json",
        once: bool = False,
        fresh: Callable[[], bool] | None = None,
    ) -> Response:
        """The 2xx answer; everything else raises a KubeError.

        `body`: a JSON value, of that `content_type`. A 401 refreshes the credentials and tries once more,
        which changes nothing twice: the server has not looked at the request.

        `once`: for a request that can evict. A 401 refreshes the credentials here too, but is raised: that
        may have taken long, so the caller looks at the cluster before it sends the request again. `fresh` is
        asked once its connection is there, which may have taken long as well: if it says no, nothing is sent.
        """
        timeout = (self.options.connect_timeout, read_timeout or self.options.read_timeout)

        def ask() -> Response:
            with self._sockets.asking(fresh):
                answer = self._send(
                    method, path, target, query, body, accept, timeout, gzip, content_type, renew=not once
                )
            return Response(answer.status, answer.headers, self._whole(answer, target, timeout))

        return self._authorized(ask, once=once)

    def stream(
        self,
        path: str,
        target: Target,
        *,
        query: Mapping[str, str | int],
        accept: str = "application/json",
        read_timeout: float,
        gzip: bool = False,
    ) -> Stream:
        """The body of a 2xx answer to a GET, to be read as it comes and to be closed by the caller.

        `read_timeout`: seconds of silence after which the connection is taken for dead. Raises KubeError.
        """
        timeout = (self.options.connect_timeout, read_timeout)

        def ask() -> Stream:
            answer = self._send("GET", path, target, query, None, accept, timeout, gzip)
            return Stream(answer, lambda e: self._no_answer(e, target, timeout))

        return self._authorized(ask)

    @contextmanager
    def evicting(self, deadline: float) -> Iterator[None]:
        """While a request is on its way that evicts a pod, releases it or undoes that: nobody is told before
        its end that a pause binds this process. `deadline`: seconds after which the server has given it up,
        where it is not known to have refused it."""
        earlier, until = self.evicting_until, steady() + deadline
        self.evicting_until = math.inf
        try:
            yield
            until = 0.0
        except StatusError as e:
            until = until if isinstance(e, ServerError) else 0.0
            raise
        finally:
            self.evicting_until = max(earlier, until)

    def decoded(self, body: bytes | msgspec.Raw, of: type[T], target: Target) -> T:
        """What an answer says. Raises ResponseError where that cannot be of an API server."""
        try:
            return msgspec.json.decode(body, type=of)
        except MALFORMED as e:
            raise ResponseError(
                f"{target}: cannot be read: {e}: {quoted(bytes(body))}",
                f"is {self.who} really an API server, with no proxy in between that answers for it?",
                target=target,
                code=200,
            ) from e

    def close(self) -> None:
        """Closes idle sockets; a request after that opens new ones."""
        self._rest.close()

    def abort(self) -> None:
        """Ends every request at work, in whatever thread, and every later one: they raise TransportError."""
        self._sockets.abort()
        self._rest.close()

    def twin(self) -> Connection:
        """Another connection to the same server as the same identity; aborting one spares the other."""
        return Connection(self.options, self._source, beside=self)

    def _client(self) -> Any:
        rest = RESTClientObject(self._loaded.client)
        self._sockets.track(rest.pool_manager)
        return rest

    def _authorized(self, ask: Callable[[], T], *, once: bool = False) -> T:
        generation = self._generation
        try:
            return ask()
        except UnauthorizedError as e:
            log.debug("%s; refreshing credentials", e.message)
            self._refresh(generation)
            if once:
                raise
        return ask()

    def _send(
        self,
        method: str,
        path: str,
        target: Target,
        query: Mapping[str, str | int] | None,
        body: Any,
        accept: str,
        timeout: tuple[float, float],
        gzip: bool,
        content_type: str = "application/json",
        *,
        renew: bool = True,
    ) -> Any:
        """urllib3's response with a 2xx status, its body not read yet."""
        rest = self._rest
        self._sockets.sent = False
        url = self.server + path + (f"?{urlencode(query)}" if query else "")
        headers = self._headers(target, accept, content_type if body is not None else "", gzip, renew)
        try:
            if self._sockets.aborted:
                raise OSError("this connection has been ended")
            answer = rest.request(method, url, headers=headers, body=body, _request_timeout=timeout).response
        except (HTTPError, ApiException, OSError, ValueError) as e:
            raise self._no_answer(e, target, timeout) from e
        age = answer.headers.get("Age", "0") if method == "GET" else "0"
        if 200 <= answer.status < 300 and age == "0":
            self.time.heard(answer.headers.get("Date"))
            return answer
        if age != "0":
            answer.close()  # a watch does not end
            say = f"{target}: the answer is {age} s old: a cache gave it, and not the API server"
            raise ResponseError(say, PROXY, target=target, code=answer.status)
        data = self._whole(answer, target, timeout)
        raise error_of(answer.status, answer.headers, data, target, who=self.who)

    def _whole(self, answer: Any, target: Target, timeout: tuple[float, float]) -> bytes:
        try:
            try:
                data: bytes = answer.read(decode_content=True)
            finally:
                answer.release_conn()
        except (HTTPError, OSError, ValueError) as e:
            raise self._no_answer(e, target, timeout) from e
        return data

    def _headers(self, target: Target, accept: str, content_type: str, gzip: bool, renew: bool) -> Any:
        # The API server asks all caches not to keep its answers; some do.
        headers = urllib3.HTTPHeaderDict({"Accept": accept, "User-Agent": f"rebalancer/{__version__}"})
        headers["Cache-Control"] = "no-cache"
        if content_type:
            headers["Content-Type"] = content_type
        if gzip:
            headers["Accept-Encoding"] = "gzip"
        loaded = self._loaded
        try:
            # Expired tokens are renewed in here by running the plugin, which may take long; once is enough
            # for all threads. A request that must not wait takes the token as it is.
            if renew and loaded.client.refresh_api_key_hook is not None:
                with self._lock:
                    loaded.client.refresh_api_key_hook(loaded.client)
            token = loaded.client.api_key.get("BearerToken")
        except (ConfigException, OSError, ValueError) as e:
            raise ConfigurationError(
                f"{target}: no credentials for {self.who}: {e}", "log in again", target=target
            ) from e
        if token:
            # Token files end in a newline more often than not.
            headers["Authorization"] = token.strip()
        headers.update(loaded.headers)
        for group in loaded.groups:
            headers.add("Impersonate-Group", group)
        return headers

    def _refresh(self, seen: int) -> None:
        """Reads the configuration again, unless another thread has since `seen`."""
        with self._lock:
            if self._generation != seen:
                return
            self._loaded = self._again()
            old, self._rest = self._rest, self._client()
            self._generation += 1
        old.close()

    def _again(self) -> Loaded:
        """The configuration as it is now. Raises ConfigurationError if it names another server."""
        loaded = self._source()
        if loaded.client.host != self.server:
            raise ConfigurationError(
                f"context {self.context} names {loaded.client.host} now, and named {self.server} before",
                "start anew for another cluster, or another address of this one",
            )
        return loaded

    def _no_answer(self, e: Exception, target: Target, timeout: tuple[float, float]) -> KubeError:
        sent = self._sockets.sent
        failure = explain(e, connect_timeout=timeout[0], read_timeout=timeout[1], sent=sent)
        remedy = failure.remedy or (
            f"is the API server up, and this the right context? `{self._kubectl()} get --raw /readyz`"
        )
        text = f"{target}: {self.who}: {failure.text}"
        return TransportError(
            text, remedy, target=target, sent=failure.sent, ended=failure.ended, lasting=failure.lasting
        )

    def _kubectl(self) -> str:
        return "kubectl" if self.context == IN_CLUSTER else f"kubectl --context {self.context}"


# Trying again: jittered, bounded, honouring Retry-After, and ending at once when asked to stop.
#
# The official client has helpers for this; they stop trying as soon as the delay reaches their cap, know no
# bound on the total and cannot be interrupted, so the thirty lines are here.

Wait = Callable[[float], bool]
"""Sleeps so many seconds; True means: stop now. `threading.Event().wait` is one."""

_DOUBLED = 60
"""Times, beyond which a float overflows in the end: what is watched is tried for as long as the process
lives."""


class Backoff(Struct, frozen=True):
    """How often and how long. Seconds; the delay before try n is first·2ⁿ⁻¹, at most `cap`, of which a random
    half is taken away. A Retry-After above `longest_wait` is not waited for."""

    tries: int = 5
    first: float = 0.5
    cap: float = 15.0
    longest_wait: float = 60.0

    def delay(self, tried: int, retry_after: float | None, rng: Callable[[], float] = random.random) -> float:
        """Seconds to wait after so many tries; what the server asked for at least, up to `longest_wait`."""
        own = min(self.cap, self.first * 2.0 ** min(tried - 1, _DOUBLED)) * (0.5 + 0.5 * rng())
        # Many clients were told the same number: spread them.
        return max(own, min(retry_after, self.longest_wait) + rng()) if retry_after is not None else own


def retriable(error: KubeError) -> bool:
    """Whether a *read* may succeed if it is asked again."""
    if isinstance(error, TransportError):
        return not error.lasting
    return isinstance(error, ResponseError | TooManyRequestsError | ServerError)


DEFAULT_BACKOFF = Backoff()


def retry(call: Callable[[], T], *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> T:
    """The result of `call`, tried again while its error is retriable. Only for requests that change nothing,
    or that the server refuses the second time.

    Raises the last error: when tries are used up, when the server asks for more patience than allowed, or
    when `wait` says stop.
    """
    tried = 0
    while True:
        tried += 1
        try:
            return call()
        except KubeError as e:
            if not retriable(e) or tried >= backoff.tries:
                raise
            after = getattr(e, "retry_after", None)
            if after is not None and after > backoff.longest_wait:
                raise
            delay = backoff.delay(tried, after)
            log.info("%s; try %d of %d in %.1f s", e.message, tried + 1, backoff.tries, delay)
            if wait(delay):
                raise


def begun_anew(call: Callable[[], T], overtaken: type[KubeError], tries: int) -> T:
    """The result of the call, which is made so many times in all where others overtook it."""
    for _ in range(1, tries):
        try:
            return call()
        except overtaken as e:
            log.info("%s; begun anew", e.message)
    return call()
