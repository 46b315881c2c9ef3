"""What a failure below HTTP means, in words, and whether the server may have received the request."""

from __future__ import annotations

import ssl
from http.client import IncompleteRead
from typing import Any

from kubernetes.client.exceptions import ApiException
from msgspec import Struct
from urllib3 import exceptions as urllib3


class Failure(Struct, frozen=True):
    """`text` what happened, `sent` whether the request may have arrived, `remedy` "" for the usual one.
    `ended`: the other side ended the connection, instead of keeping silent. `lasting`: somebody has to change
    something before the same request gets an answer."""

    text: str
    sent: bool
    remedy: str = ""
    ended: bool = False
    lasting: bool = False


def explain(e: Exception, *, connect_timeout: float, read_timeout: float) -> Failure:
    """The meaning of what urllib3, the client or a socket raised. In doubt, the request was sent."""
    chain = _chain(e)
    deepest = chain[-1]

    def has(*types: type[BaseException]) -> bool:
        return any(isinstance(c, types) for c in chain)

    # Order matters: what fails on the way to a proxy looks like the other kinds as well, and a refused
    # connection is a kind of connect timeout to urllib3.
    if has(urllib3.ProxyError):
        remedy = "see proxy-url in the kubeconfig, $HTTPS_PROXY and $NO_PROXY"
        return Failure(f"the proxy does not connect: {deepest}", False, remedy)
    if has(urllib3.NameResolutionError):
        return Failure("the server's name does not resolve", False, lasting=True)
    if has(urllib3.NewConnectionError):
        return Failure(
            "connection refused" if has(ConnectionRefusedError) else f"no connection: {deepest}", False
        )
    if has(urllib3.ConnectTimeoutError):
        return Failure(f"no connection within {connect_timeout:g} s", False)
    if has(ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(e):
        remedy = "certificate-authority in the kubeconfig belongs to another cluster, or the name differs"
        return Failure(f"the server's certificate is not trusted: {deepest}", False, remedy, lasting=True)
    if has(urllib3.TimeoutError, TimeoutError):
        return Failure(f"no answer within {read_timeout:g} s", True)
    if isinstance(e, urllib3.LocationValueError) or type(e) in (ValueError, UnicodeEncodeError):
        remedy = "see server, proxy-url and the token in the kubeconfig"
        return Failure(f"the request cannot be made: {e}", False, remedy, lasting=True)
    ended = has(
        ConnectionError, IncompleteRead, urllib3.IncompleteRead, ssl.SSLEOFError, ssl.SSLZeroReturnError
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
