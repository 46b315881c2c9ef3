"""How a fault is carried out on the wire: responses that hang, break off, or say nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rebalancer.sandbox.listing import error_event
from rebalancer.sandbox.resources import expired
from tests.support.sandbox.faults import Action, Cut, Delay, Garbage, Gone


class Broken(Response):
    """Closes the connection without a word."""

    def __init__(self, transport: Any) -> None:
        super().__init__()
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, send
        await _close(self._transport, receive, hard=True)


class Hung(Response):
    """Never answers: holds the connection until the client goes or the server ends."""

    def __init__(self, transport: Any) -> None:
        super().__init__()
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, send
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            if self._transport is not None:  # not even a 500 when the server ends
                self._transport.abort()


class Shortened(Response):
    """Promises all of the body, sends the first bytes, closes."""

    def __init__(self, whole: Response, size: int, transport: Any) -> None:
        super().__init__()
        self._whole, self._size, self._transport = whole, size, transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        start = {
            "type": "http.response.start",
            "status": self._whole.status_code,
            "headers": self._whole.raw_headers,
        }
        await send(start)
        piece = bytes(self._whole.body)[: self._size]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await _close(self._transport, receive, hard=False)


async def _close(transport: Any, receive: Receive, *, hard: bool) -> None:
    if transport is not None:
        if hard:
            transport.abort()
        else:
            transport.close()
    # Returning before the server has noticed would make it answer 500.
    while (await receive())["type"] != "http.disconnect":
        pass


def sabotaged(response: Response, action: Action | None, transport: Any) -> Response:
    """The response as the fault leaves it."""
    if action is None:
        return response
    if isinstance(response, StreamingResponse):
        response.body_iterator = _stream(response.body_iterator, action, transport)  # type: ignore[arg-type]
        return response
    match action:
        case Cut("after"):
            return Broken(transport)
        case Cut("body", size):
            return Shortened(response, size, transport)
        case Garbage(body):
            headers = {
                k: v for k, v in response.headers.items() if k not in ("content-length", "content-encoding")
            }
            return Response(body, response.status_code, headers)
    return response


async def _stream(lines: AsyncIterator[bytes], action: Action, transport: Any) -> AsyncIterator[bytes]:
    """A watch; its fault comes right after the ordered number of events."""
    after = getattr(action, "after_events", None)
    if after is None:
        after = 0 if isinstance(action, Cut | Garbage) else -1
    inside = isinstance(action, Cut) and action.body_bytes > 0
    passed = 0
    if passed == after and not inside:
        piece, ended = await _act(action, transport)
        if piece:
            yield piece
        if ended:
            return
    async for line in lines:
        if inside and isinstance(action, Cut) and passed == after:
            yield line[: action.body_bytes]
            await _act(action, transport)
            return
        yield line
        passed += 1
        if passed == after and not inside:
            piece, ended = await _act(action, transport)
            if piece:
                yield piece
            if ended:
                return


async def _act(action: Action, transport: Any) -> tuple[bytes, bool]:
    """(what to send, whether the watch ends with it)."""
    match action:
        case Garbage(body):
            return body + b"\n", False
        case Gone():
            return error_event(expired(action.message)), True
        case Delay(seconds, at) if at is not None:
            await asyncio.sleep(min(seconds, 86400.0))
        case Cut():
            if transport is not None:
                transport.close()
            # Until the connection is seen to be gone: an orderly end of the body must not follow.
            await asyncio.sleep(0.05)
            return b"", True
    return b"", False
