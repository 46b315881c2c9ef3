"""Faults on order: answers, delays, cuts and nonsense, for the requests that a rule matches."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rebalancer.sandbox.resources import ApiError
from tests.support.sandbox.authority import Access


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer with this instead, `after` so many seconds. A dict body is sent as JSON; None: the Status of
    that code."""

    code: int
    body: dict[str, Any] | bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0

    def payload(self) -> dict[str, Any] | bytes:
        if self.body is not None:
            return self.body
        reason = _REASONS.get(self.code, "InternalError")
        retry = self.headers.get("Retry-After", "")
        after = int(retry) if retry.isdigit() else 0
        return ApiError(self.code, reason, f"injected fault {self.code}", retry_after=after).status()


_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict",
    410: "Expired", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError",
    503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait `seconds` before the request is handled; infinity: never answer (a half-open server).

    Within a watch (`after_events` given): go silent after that many events, the connection open.
    """

    seconds: float
    after_events: int | None = None


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until this holds, before the request is handled."""

    met: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection: `before` the request is handled, `after` it was (what it did stays done,
    the answer is lost), or in the middle of the `body`, after `body_bytes`.

    A watch is cut after `after_events` events; with `body_bytes`, that far into the next one.
    """

    when: Literal["before", "after", "body"] = "before"
    body_bytes: int = 0
    after_events: int | None = None


@dataclass(frozen=True, slots=True)
class Garbage:
    """Handle the request, answer its code with this body. A watch sends it as a line, after events."""

    body: bytes = b'{"kind": "Pod", "metadata": {"na\x00\xff'
    after_events: int | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """410 Expired: a list gets it as its answer, a watch as an ERROR event after `after_events`."""

    after_events: int = 0
    message: str = "too old resource version: 1 (2)"


Action = Reply | Delay | Until | Cut | Garbage | Gone


@dataclass(slots=True)
class Fault:
    """What to do to which requests; fields left empty match all.

    `skip` matching requests pass first, then `times` are hit (None: all), each with `probability`.
    `verb` is the authorizer's (get, list, watch, create, …), `path` a regular expression that is searched.
    """

    action: Action
    verb: str = ""
    resource: str = ""
    subresource: str | None = None
    namespace: str = ""
    name: str = ""
    path: str = ""
    user: str = ""
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    seen: int = field(default=0, init=False)
    hits: int = field(default=0, init=False)

    def matches(self, access: Access) -> bool:
        return (
            self.verb in ("", access.verb)
            and self.resource in ("", access.resource)
            and (self.subresource is None or self.subresource == access.subresource)
            and self.namespace in ("", access.namespace)
            and self.name in ("", access.name)
            and self.user in ("", access.user)
            and (not self.path or re.search(self.path, access.path) is not None)
        )


class Faults:
    """The rules in force, in order; the first that hits acts. Thread-safe; `seed` for probabilities."""

    def __init__(self, seed: int = 0) -> None:
        self._rules: list[Fault] = []
        self._rng = random.Random(seed)
        self._lock = threading.Lock()

    def add(self, action: Action, **match: Any) -> Fault:
        """Add a rule; `match` as the fields of Fault. The rule, to read `hits` from or to remove."""
        fault = Fault(action, **match)
        with self._lock:
            self._rules.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._rules = [rule for rule in self._rules if rule is not fault]

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def take(self, access: Access) -> Action | None:
        """The action for this request, counted as a hit; None for most."""
        with self._lock:
            for fault in self._rules:
                if not fault.matches(access) or (fault.times is not None and fault.hits >= fault.times):
                    continue
                fault.seen += 1
                if fault.seen <= fault.skip or self._rng.random() >= fault.probability:
                    continue
                fault.hits += 1
                return fault.action
        return None
