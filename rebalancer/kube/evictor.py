"""Evicting through the Eviction API, and knowing afterwards what happened.

Rule: kubernetes pkg/registry/core/pod/storage/eviction.go. What makes this more than a POST: an answer may
never come although the server acted. Then the pod itself is asked, by uid, before anything else.

When it is sent again: after silence, only when the server's own deadline is over, as it may be at work until
then. After a connection that the other side ended, as soon as the pod has had a moment to show otherwise: a
server ends the requests of a connection with it. Should a proxy in between have kept the first request alive,
nothing is evicted twice, as both name the same uid; but what the second is answered (an exhausted budget, a
missing pod) may be the doing of the first, so that is not believed before the pod was asked. After a first
401, with credentials that were refreshed meanwhile.

Nothing below sends it again by itself: only here is it known that the cluster was looked at right before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait
from rebalancer.kube.errors import (
    PROXY,
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
    quoted,
)
from rebalancer.kube.reading import PodReader
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.outcome import Eviction, Failed, Result

# What one eviction has used up, and what of it may still be at work in the server.


class Attempt:
    """Counts the requests of one eviction. Times in seconds of a monotonic clock, from `began` on.

    `at_work`: until when an earlier request, of which nothing is known, may still be at work; None: there is
    none. What a later one is answered may be the earlier one's doing. `unanswered`: see `Eviction`.
    """

    def __init__(self, backoff: Backoff, began: float) -> None:
        self._backoff = backoff
        self._began = began
        self._failed: list[Failed] = []
        self.posts = 0
        self.throttled = 0
        self.stale = False
        self.repeated = False
        self._renewed = False
        self.at_work: float | None = None
        self.unanswered = False

    def failed(self, e: KubeError, now: float) -> None:
        """A request was not accepted, or was sent and never answered by the API server."""
        self.unanswered |= _in_doubt(e)
        self._failed.append(Failed(_status(e), type(e).__name__, e.message, now - self._began))

    def may_repeat(self) -> bool:
        """Once, for whatever failed without saying why."""
        self.repeated, before = True, self.repeated
        return not before

    def renewed(self, e: KubeError) -> bool:
        """Whether this is the first 401. The credentials have been refreshed since, and may do now."""
        first = isinstance(e, UnauthorizedError) and not self._renewed
        self._renewed = self._renewed or first
        return first

    def delay(self, e: KubeError) -> float:
        """Seconds before the next request."""
        return self._backoff.delay(self.posts, getattr(e, "retry_after", None))

    def ended(
        self,
        result: Result,
        message: str,
        e: UserError | None = None,
        *,
        status: int = 0,
        read_back: bool = False,
        reason: Reason | None = None,
    ) -> Eviction:
        """It came to this: by an error, which was not the pod's last word where it was read back, or for a
        reason."""
        return Eviction(
            result=result,
            message=message,
            read_back=read_back,
            posts=self.posts,
            status=status or _status(e),
            failed=tuple(self._failed),
            unanswered=self.unanswered,
            error=e,
            reason=reason,
        )


def _in_doubt(e: KubeError) -> bool:
    """Whether the eviction may be carried out later, all the same: nobody answered, or a proxy did; or the
    API server has no answer of etcd, which may commit what it was sent. A webhook is asked before that."""
    if isinstance(e, ServerError):
        return not (e.by_webhook or _SEVERAL in e.text)
    return isinstance(e, ResponseError) or (isinstance(e, TransportError) and e.sent)


def _status(e: UserError | None) -> int:
    return e.code if isinstance(e, StatusError | ResponseError) else 0


# Who evicts a pod: the protocol that all evictors keep, and the one of dry runs.

REASON = "rebalancer.io/reason"
"""Annotation of what asks for an eviction: why, in a sentence."""
REQUESTER = "rebalancer.io/requested-by"
"""Annotation of what asks for an eviction: which program, of which version."""
Question = Callable[[], Reason | None]
"""Why a request to evict must not be sent now; None if it may. May raise KubeError."""


def unasked() -> Reason | None:
    """Nothing forbids it."""
    return None


def always() -> bool:
    """What was asked does not get old."""
    return True


def refusal(may_not: Question) -> Eviction | None:
    """What the last look says now; None if the request may be sent."""
    try:
        why = may_not()
    except KubeError as e:
        return Eviction(
            result=Result.FAILED, message=f"the cluster cannot be looked at: {e.message}", error=e
        )
    return Eviction(result=Result.HELD, message=why.message, reason=why) if why is not None else None


class Evictor(Protocol):
    """Evicts one pod, and says how it ended; never raises KubeError."""

    def evict(
        self,
        pod: Pod,
        reason: str = "",
        may_not: Question = unasked,
        fresh: Callable[[], bool] = always,
    ) -> Eviction:
        """Evicts the pod of that uid. `reason`: a sentence, for those who look at the request.

        `may_not` is asked right before every request, the first and each further one. It has to see that the
        pod runs under this uid and is not terminating: the server answers 201 for a pod that was terminating
        already, and charges a budget before it compares uids. `fresh`: whether the last answer may still be
        believed; asked when the connection is there, as making one may take seconds.
        """
        ...


class RecordingEvictor(Evictor):
    """Dry run: remembers what it was asked to evict, and does nothing."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def evict(
        self,
        pod: Pod,
        reason: str = "",  # noqa: ARG002
        may_not: Question = unasked,
        fresh: Callable[[], bool] = always,  # noqa: ARG002
    ) -> Eviction:
        """Records the pod."""
        if (no := refusal(may_not)) is not None:
            return replace(no, message=f"{pod.key}: {no.message}")
        self.pods.append(pod)
        return Eviction(result=Result.WOULD_EVICT, message=f"{pod.key} would be evicted")


log = logging.getLogger(__name__)

EVACUATION = "Eviction triggered evacuation"
"""What KubeVirt's webhook answers with 429 when the eviction of a launcher begins a live migration
(pod-eviction-admitter.go); descheduler knows it by the same words."""
_SEVERAL = "more than one PodDisruptionBudget"
"""What the API server says, with 500, where it cannot tell which budget to charge."""
_PODS = RESOURCES["Pod"]
_SERVER_DEADLINE = 25
"""Seconds after which the server gives up, told by `?timeout=`; it retries budget conflicts for 10 s."""
_READ_TIMEOUT = 35.0
"""Seconds that we wait for its answer: longer than the server takes, so that a verdict is seldom lost."""
_POLL = 2.0
_SHORT_LOOK = 3.0
"""Seconds to watch the pod after a 5xx of the API server itself, or a connection that it ended: the write may
have been on its way to etcd even so."""
_PATIENCE = 30.0
"""Seconds that an API server which does not answer is asked for the truth, beyond its deadline."""
_LAST_LOOKS = 6.0
"""Seconds that reading back goes on after a request to stop."""
_STALE_WAIT_LIMIT = 30.0


class LiveEvictor(Evictor):
    """Evicts for real, or by the server's dry run.

    `read` gives the pod of a name now (`Objects.pod`). `wait` sleeps, True means stop: then no further
    request is sent, but the truth about one that was sent is still looked for some seconds, sleeping with
    `linger`, which does not stop. `monotonic` in seconds.
    `dry_run`: the server judges (budgets, admission) and evicts nothing. `grace_seconds` and
    `annotations` are asked for each time: None leaves it to the pod; these are put on the Eviction, for
    webhooks and audit logs.
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
        grace_seconds: Callable[[], int | None] = lambda: None,
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

    def evict(
        self,
        pod: Pod,
        reason: str = "",
        may_not: Question = unasked,
        fresh: Callable[[], bool] = always,
    ) -> Eviction:
        """The outcome; see `Evictor`. Blocks, in the worst case for a few minutes."""
        with self._one_at_a_time:
            return self._evict(pod, reason, may_not, fresh)

    def _evict(self, pod: Pod, reason: str, may_not: Question, fresh: Callable[[], bool]) -> Eviction:
        attempt = Attempt(self._backoff, self._monotonic())
        last: KubeError | None = None
        while True:
            # Nothing comes between this question and the request.
            if (no := self._not_sent(pod, attempt, last, may_not)) is not None:
                return no
            sent_at = self._monotonic()
            attempt.posts += 1
            try:
                with nullcontext() if self._dry_run else self._connection.evicting(_SERVER_DEADLINE):
                    status = self._post(pod, reason, fresh)
            except KubeError as e:
                log.info("evict %s: %s", pod.key, e.message)
                attempt.failed(e, self._monotonic())
                last = e
                outcome = self._earlier(pod, e, attempt) or self._after(pod, e, attempt, sent_at)
                if outcome is not None:
                    return outcome
                continue
            if self._dry_run:
                say = f"{pod.key} would be evicted, says the API server"
                return attempt.ended(Result.WOULD_EVICT, say, status=status)
            return attempt.ended(Result.EVICTED, f"{pod.key} evicted", status=status)

    def _not_sent(
        self, pod: Pod, attempt: Attempt, last: KubeError | None, may_not: Question
    ) -> Eviction | None:
        """Why a request is not sent, or not sent again although that would be safe; None if it is."""
        if (no := refusal(may_not)) is None:
            return None
        error = no.error or last
        if last is None:
            return attempt.ended(
                no.result, f"{pod.key} was not evicted: {no.message}", error, reason=no.reason
            )
        say = f"{pod.key} was not evicted: {last.message}; it is not tried again: {no.message}"
        return self._earlier(pod, last, attempt) or attempt.ended(no.result, say, error, reason=no.reason)

    def _post(self, pod: Pod, reason: str, fresh: Callable[[], bool]) -> int:
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace}
        if annotations := {**self._annotations(), **({REASON: reason} if reason else {})}:
            metadata["annotations"] = annotations
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if (grace := self._grace()) is not None:
            options["gracePeriodSeconds"] = grace
        query = {"timeout": f"{_SERVER_DEADLINE}s"}
        if self._dry_run:
            options["dryRun"] = ["All"]
            # Webhooks are told by the query alone (apiserver pkg/endpoints/handlers/create.go).
            query["dryRun"] = "All"
        target = Target("create", _PODS, pod.namespace, pod.name, "eviction")
        answer = self._connection.request(
            "POST",
            _PODS.path(pod.namespace, pod.name, "eviction"),
            target,
            query=query,
            body={
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": metadata,
                "deleteOptions": options,
            },
            read_timeout=_READ_TIMEOUT,
            once=True,
            fresh=fresh,
        )
        said = self._connection.decoded(answer.body, dict[str, Any], target)
        if (said.get("kind"), said.get("status")) != ("Status", "Success"):
            text = f"{target}: HTTP {answer.code} with {quoted(answer.body)}"
            raise ResponseError(text, PROXY, target=target, code=answer.code)
        return answer.code

    def _earlier(self, pod: Pod, e: KubeError, attempt: Attempt) -> Eviction | None:
        """What became of an earlier request that may still be at work; None: nothing, or there is none."""
        until, attempt.at_work = attempt.at_work, None
        return self._read_back(pod, e, attempt, until) if until is not None else None

    def _after(self, pod: Pod, e: KubeError, attempt: Attempt, sent_at: float) -> Eviction | None:
        """What an error means; None: it is safe and sensible to send it again."""

        def ended(result: Result, message: str) -> Eviction:
            return attempt.ended(result, message, e)

        if isinstance(e, StatusError) and e.by_webhook:
            return self._not_admitted(pod, e, attempt)
        if attempt.renewed(e):
            return None
        match e:
            case NotFoundError(kind="pods"):
                return _gone(pod, None, attempt, e)
            case ConflictError():
                return self._again(pod, e, attempt)
            case TooManyRequestsError():
                return self._refused_for_now(pod, e, attempt)
            case ServerError() if _SEVERAL in e.text:
                return ended(Result.SEVERAL_BUDGETS, f"{pod.key}: {e.text}")
            case ForbiddenError() if "isruptions allowed is negative" in e.text or "DisruptedPods" in e.text:
                return ended(Result.BLOCKED, f"{pod.key} is blocked by its budget: {e.text}")
            case ForbiddenError() | UnauthorizedError() | ConfigurationError():
                return ended(Result.FORBIDDEN, str(e))
            case StatusError() if e.code < 500:
                return ended(Result.REFUSED, str(e))
        if self._dry_run:
            return ended(Result.FAILED, str(e))
        if isinstance(e, TransportError) and not e.sent:
            return self._again(pod, e, attempt)
        return self._unknown(pod, e, attempt, sent_at)

    def _not_admitted(self, pod: Pod, e: StatusError, attempt: Attempt) -> Eviction:
        """By a webhook or a policy, whatever the code: asking again at once changes nothing."""
        if EVACUATION in e.text:
            if self._dry_run:
                say = f"{pod.key} would be moved by its controller, says the API server"
                return attempt.ended(Result.WOULD_EVICT, say, status=e.code)
            return attempt.ended(Result.MIGRATING, f"{pod.key} is moved by its controller: {e.text}", e)
        return attempt.ended(Result.UNASKED if e.unasked else Result.REFUSED, str(e), e)

    def _refused_for_now(self, pod: Pod, e: TooManyRequestsError, attempt: Attempt) -> Eviction | None:
        """429: by a budget that is exhausted, by one whose status is stale, or by a busy server."""
        asked = e.retry_after or 0
        if e.from_budget and e.retry_after is None:
            return attempt.ended(Result.BLOCKED, f"{pod.key} is blocked by its budget: {_causes(e)}", e)
        if e.from_budget:
            if attempt.stale or asked > _STALE_WAIT_LIMIT:
                return attempt.ended(Result.STALE_BUDGET, f"{pod.key}: {_causes(e)}", e)
            attempt.stale = True
        else:
            attempt.throttled += 1
            if attempt.throttled >= self._backoff.tries or asked > self._backoff.longest_wait:
                say = f"{pod.key}: the API server is too busy: {e.message}"
                return attempt.ended(Result.THROTTLED, say, e)
        return self._again(pod, e, attempt, bounded=False)

    def _unknown(self, pod: Pod, e: KubeError, attempt: Attempt, sent_at: float) -> Eviction | None:
        """Nobody knows what became of it; None: nothing did, and it may be sent again."""
        until = sent_at + _SERVER_DEADLINE + _POLL
        soon = min(until, self._monotonic() + _SHORT_LOOK)
        if isinstance(e, ServerError) and e.text and e.code != 504:
            # A Status came from the API server, which is done with the request; anything else may be a proxy
            # giving up on one that is still at work behind it.
            until = soon
        elif isinstance(e, TransportError) and e.ended and not attempt.repeated:
            # The last word, without another try, is not said before the whole time is over.
            attempt.at_work, until = until, soon
        seen = self._read_back(pod, e, attempt, until)
        if seen is None and not attempt.may_repeat():
            return attempt.ended(Result.FAILED, f"{pod.key} is still there: {e}", e, read_back=True)
        return seen

    def _read_back(self, pod: Pod, e: KubeError, attempt: Attempt, until: float) -> Eviction | None:
        """Asks the pod itself until it tells, or until that time; None: it is there as before."""
        wait, stopped = self._wait, False
        latest = max(until, attempt.at_work or until)
        give_up = latest + _PATIENCE
        while True:
            found = None
            try:
                found = self._read(pod.namespace, pod.name)
            except KubeError as again:
                unread, left = again.message, give_up - self._monotonic()
            else:
                if (gone := _gone(pod, found, attempt, e)) is not None:
                    return gone
                unread, left = "", until - self._monotonic()
            if left <= 0:
                break
            if wait(min(_POLL, left)) and not stopped:
                # Asked to end: whether this one went is still worth a few seconds.
                stopped, wait = True, self._linger
                until = give_up = min(latest, self._monotonic() + _LAST_LOOKS)
        if unread:
            say = f"{pod.key}: whether it was evicted is not known: {e.message}; reading it back: {unread}"
            return attempt.ended(Result.UNKNOWN, say, e)
        if stopped:
            return attempt.ended(Result.UNKNOWN, f"{pod.key}: stopped before it was clear: {e.message}", e)
        return _unwanted(found, attempt, e)

    def _again(self, pod: Pod, e: KubeError, attempt: Attempt, *, bounded: bool = True) -> Eviction | None:
        """Waits and looks at the pod before the same request goes out again; nothing of ours is at work."""
        if bounded and not attempt.may_repeat():
            return attempt.ended(Result.FAILED, str(e), e)
        if self._wait(attempt.delay(e)):
            return attempt.ended(Result.HELD, f"{pod.key}: stopped before trying again: {e.message}", e)
        try:
            found = self._read(pod.namespace, pod.name)
        except KubeError as again:
            say = f"{pod.key} was not evicted: {e.message}; then: {again}"
            return attempt.ended(Result.FAILED, say, e)
        return _gone(pod, found, attempt, e) or _unwanted(found, attempt, e)


def _gone(pod: Pod, found: Pod | None, attempt: Attempt, e: KubeError) -> Eviction | None:
    """The pod is gone or going; None: it is there as before. Where an earlier request may be carried out
    late, nothing tells that this was not it."""
    there = found is not None and found.uid == pod.uid
    if found is not None and there and not found.terminating:
        return None
    what = f"{pod.key} is {'terminating' if there else 'gone'}"
    if attempt.unanswered:
        return attempt.ended(Result.EVICTED, f"{what}, read back after: {e.message}", e, read_back=True)
    result = Result.TERMINATING if there else Result.GONE
    return attempt.ended(result, f"{what}; not by this eviction", e)


def _unwanted(found: Pod | None, attempt: Attempt, e: KubeError) -> Eviction | None:
    """Why a pod that is still there is not to be evicted any more."""
    if found is None or found.phase == "Running":
        return None
    say = f"{found.key} is {found.phase} by now: its budget would not be asked"
    return attempt.ended(Result.REFUSED, say, e)


def _causes(e: StatusError) -> str:
    return "; ".join(c.message for c in e.causes if c.message) or e.text
