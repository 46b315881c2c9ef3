"""Evicting through the Eviction API, and knowing afterwards what happened.

Rule: kubernetes pkg/registry/core/pod/storage/eviction.go. What makes this more than a POST: an answer may
never come although the server acted. Then the pod itself is asked, by uid, before anything else; and nothing
is sent a second time while the first request may still be at work in the server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import (
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    ServerError,
    StatusError,
    Target,
    TooManyRequestsError,
    TransportError,
    UnauthorizedError,
)
from rebalancer.kube.eviction import Eviction, Failed, Result
from rebalancer.kube.objects import PodReader
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.retry import DEFAULT_BACKOFF, Backoff, Wait
from rebalancer.kube.status import quoted
from rebalancer.model.pod import Pod

log = logging.getLogger(__name__)

REASON = "rebalancer.io/reason"
"""Annotation of the Eviction: why, in a sentence."""
REQUESTER = "rebalancer.io/requested-by"
"""Annotation of the Eviction: which program, of which version."""
_PODS = RESOURCES["Pod"]
_SERVER_DEADLINE = 25
"""Seconds after which the server gives up, told by `?timeout=`; it retries budget conflicts for 10 s."""
_READ_TIMEOUT = 35.0
"""Seconds that we wait for its answer: longer than the server takes, so that a verdict is seldom lost."""
_POLL = 2.0
_READ_BACK_AFTER_ANSWER = 3.0
"""Seconds to watch the pod after a 5xx of the API server itself: etcd may have taken the write even so."""
_PATIENCE = 30.0
"""Seconds that an API server which does not answer is asked for the truth, beyond its deadline."""
_LAST_LOOKS = 6.0
"""Seconds that reading back goes on after a request to stop."""
_STALE_WAIT_LIMIT = 30.0


class LiveEvictor:
    """Evicts for real, or by the server's dry run.

    `read` gives the pod of a name now (`Objects.pod`). `wait` sleeps, True means stop: then no further
    request is sent, but the truth about one that was sent is still looked for some seconds, sleeping with
    `linger`, which does not stop. `monotonic` in seconds.
    `dry_run`: the server judges (budgets, admission) and evicts nothing. `grace_seconds`: None leaves it to
    the pod. `annotations`, asked for each time, are put on the Eviction, for webhooks and audit logs.
    """

    def __init__(
        self,
        connection: Connection,
        read: PodReader,
        *,
        wait: Wait,
        linger: Wait,
        monotonic: Callable[[], float],
        backoff: Backoff = DEFAULT_BACKOFF,
        dry_run: bool = False,
        grace_seconds: int | None = None,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._connection = connection
        self._read = read
        self._wait = wait
        self._linger = linger
        self._one_at_a_time = threading.Lock()
        self._monotonic = monotonic
        self._backoff = backoff
        self._dry_run = dry_run
        self._grace = grace_seconds
        self._annotations = annotations

    def evict(self, pod: Pod, reason: str = "") -> Eviction:
        """The outcome; see `Evictor`. Blocks, in the worst case for a few minutes."""
        with self._one_at_a_time:
            return self._evict(pod, reason)

    def _evict(self, pod: Pod, reason: str) -> Eviction:
        attempt = _Attempt(self._backoff)
        began = self._monotonic()
        while True:
            sent_at = self._monotonic()
            attempt.posts += 1
            try:
                status = self._post(pod, reason)
            except KubeError as e:
                log.info("evict %s: %s", pod.key, e.message)
                attempt.failed.append(
                    Failed(_status(e), type(e).__name__, e.message, self._monotonic() - began)
                )
                outcome = self._after(pod, e, attempt, sent_at)
                if outcome is not None:
                    return outcome
                continue
            result = Result.WOULD_EVICT if self._dry_run else Result.EVICTED
            say = "would be evicted, says the API server" if self._dry_run else "evicted"
            return Eviction(
                result=result,
                message=f"{pod.key} {say}",
                posts=attempt.posts,
                status=status,
                failed=tuple(attempt.failed),
            )

    def _post(self, pod: Pod, reason: str) -> int:
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace}
        if annotations := {**self._annotations(), **({REASON: reason} if reason else {})}:
            metadata["annotations"] = annotations
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if self._grace is not None:
            options["gracePeriodSeconds"] = self._grace
        if self._dry_run:
            options["dryRun"] = ["All"]
        target = Target("create", _PODS, pod.namespace, pod.name, "eviction")
        answer = self._connection.request(
            "POST",
            _PODS.path(pod.namespace, pod.name, "eviction"),
            target,
            query={"timeout": f"{_SERVER_DEADLINE}s"},
            body={
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": metadata,
                "deleteOptions": options,
            },
            read_timeout=_READ_TIMEOUT,
        )
        if b'"Success"' not in answer.body:
            text = f"{target}: HTTP {answer.code} with {quoted(answer.body)}"
            raise ResponseError(
                text, "is there a proxy that answers for the API server?", target=target, code=answer.code
            )
        return answer.code

    def _after(self, pod: Pod, e: KubeError, attempt: _Attempt, sent_at: float) -> Eviction | None:
        """What an error means; None: it is safe and sensible to send it again."""

        def ended(result: Result, message: str, *, read_back: bool = False) -> Eviction:
            return Eviction(
                result=result,
                message=message,
                read_back=read_back,
                posts=attempt.posts,
                status=_status(e),
                failed=tuple(attempt.failed),
                error=e,
            )

        match e:
            case NotFoundError(kind="pods"):
                return ended(Result.GONE, f"{pod.key} is gone already")
            case ConflictError():
                return self._again(pod, e, attempt, ended, attempt.delay(e))
            case TooManyRequestsError(from_budget=True, retry_after=None):
                return ended(Result.BLOCKED, f"{pod.key} is blocked by its budget: {_causes(e)}")
            case TooManyRequestsError(from_budget=True):
                if attempt.stale or (e.retry_after or 0) > _STALE_WAIT_LIMIT:
                    return ended(Result.STALE_BUDGET, f"{pod.key}: {_causes(e)}")
                attempt.stale = True
                return self._again(pod, e, attempt, ended, attempt.delay(e), bounded=False)
            case TooManyRequestsError():
                attempt.throttled += 1
                if (
                    attempt.throttled >= self._backoff.tries
                    or (e.retry_after or 0) > self._backoff.longest_wait
                ):
                    return ended(Result.THROTTLED, f"{pod.key}: the API server is too busy: {e.message}")
                return self._again(pod, e, attempt, ended, attempt.delay(e), bounded=False)
            case ServerError() if "more than one PodDisruptionBudget" in e.text:
                return ended(Result.SEVERAL_BUDGETS, f"{pod.key}: {e.text}")
            case ForbiddenError() if "isruptions allowed is negative" in e.text or "DisruptedPods" in e.text:
                return ended(Result.BLOCKED, f"{pod.key} is blocked by its budget: {e.text}")
            case ForbiddenError(by_webhook=True):
                return ended(Result.REFUSED, str(e))
            case ForbiddenError() | UnauthorizedError() | ConfigurationError():
                return ended(Result.FORBIDDEN, str(e))
            case StatusError() if e.code < 500:
                return ended(Result.REFUSED, str(e))
        if self._dry_run:
            return ended(Result.FAILED, str(e))
        if isinstance(e, TransportError) and not e.sent:
            return self._again(pod, e, attempt, ended, attempt.delay(e))
        # Nobody knows. A Status came from the API server, which is done with the request; anything else may
        # be a proxy giving up on a request that is still at work behind it, until the server's own deadline.
        finished = isinstance(e, ServerError) and bool(e.text) and e.code != 504
        until = (
            self._monotonic() + _READ_BACK_AFTER_ANSWER if finished else sent_at + _SERVER_DEADLINE + _POLL
        )
        return self._read_back(pod, e, attempt, ended, until)

    def _read_back(
        self, pod: Pod, e: KubeError, attempt: _Attempt, ended: Callable[..., Eviction], until: float
    ) -> Eviction | None:
        """Asks the pod itself until it tells, or until no request of ours can be at work any more."""
        wait, stopped = self._wait, False
        give_up = until + _PATIENCE
        while True:
            try:
                found = self._read(pod.namespace, pod.name)
            except KubeError as again:
                unread, left = again.message, give_up - self._monotonic()
            else:
                if found is None or found.uid != pod.uid or found.terminating:
                    what = "is terminating" if found is not None and found.uid == pod.uid else "is gone"
                    say = f"{pod.key} {what}, read back after: {e.message}"
                    return ended(Result.EVICTED, say, read_back=True)
                unread, left = "", until - self._monotonic()
            if left <= 0:
                break
            if wait(min(_POLL, left)) and not stopped:
                # Asked to end: whether this one went is still worth a few seconds.
                stopped, wait = True, self._linger
                until = give_up = min(until, self._monotonic() + _LAST_LOOKS)
        if unread:
            say = f"{pod.key}: whether it was evicted is not known: {e.message}; reading it back: {unread}"
            return ended(Result.UNKNOWN, say)
        if stopped:
            return ended(Result.UNKNOWN, f"{pod.key}: stopped before it was clear: {e.message}")
        if not attempt.may_repeat():
            return ended(Result.FAILED, f"{pod.key} is still there: {e}", read_back=True)
        return None

    def _again(
        self,
        pod: Pod,
        e: KubeError,
        attempt: _Attempt,
        ended: Callable[..., Eviction],
        delay: float,
        *,
        bounded: bool = True,
    ) -> Eviction | None:
        """Waits and looks at the pod before the same request goes out again; nothing of ours is at work."""
        if bounded and not attempt.may_repeat():
            return ended(Result.FAILED, str(e))
        if self._wait(delay):
            return ended(Result.FAILED, f"{pod.key}: stopped before trying again: {e.message}")
        try:
            found = self._read(pod.namespace, pod.name)
        except KubeError as again:
            return ended(Result.FAILED, f"{pod.key} was not evicted: {e.message}; then: {again}")
        if found is None or found.uid != pod.uid:
            return ended(Result.GONE, f"{pod.key} is gone; not by this eviction")
        if found.terminating:
            return ended(Result.TERMINATING, f"{pod.key} is terminating; not by this eviction")
        if found.phase != "Running":
            return ended(Result.REFUSED, f"{pod.key} is {found.phase} by now: its budget would not be asked")
        return None


class _Attempt:
    """Counts what one eviction has used up."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.posts = 0
        self.failed: list[Failed] = []
        self.throttled = 0
        self.stale = False
        self._repeated = False

    def may_repeat(self) -> bool:
        """Once, for whatever failed without saying why."""
        self._repeated, before = True, self._repeated
        return not before

    def delay(self, e: KubeError) -> float:
        """Seconds before the next request."""
        return self._backoff.delay(self.posts, getattr(e, "retry_after", None))


def _status(e: KubeError) -> int:
    return e.code if isinstance(e, StatusError | ResponseError) else 0


def _causes(e: StatusError) -> str:
    return "; ".join(c.message for c in e.causes if c.message) or e.text
