"""Evicting by EvictionRequest: it is asked for, then it is pending, and it can be withdrawn.

While it is pending, the caller asks `follow` again and again, which repeats the last look. Where that fails,
the request is withdrawn. A responder may be at work at that very moment, so what counts is the pod: only when
the cluster has said that it works on the request no longer, and the pod has been there for some seconds
after, the pod counts as not evicted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from rebalancer.kube.client.retry import Backoff, Wait, retriable
from rebalancer.kube.errors import (
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    KubeError,
    ResponseError,
    ServerError,
    TooManyRequestsError,
    TransportError,
    UnauthorizedError,
)
from rebalancer.kube.evict.attempt import Attempt
from rebalancer.kube.evict.eviction import REASON, Evictor, Forbidden, Question, forbidden, unasked
from rebalancer.kube.evict.eviction_requests import EvictionRequests, key_of, name_of
from rebalancer.kube.evict.leftovers import PATIENCE, SETTLED, Leftovers, goes
from rebalancer.kube.read.objects import PodReader
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome.eviction import Eviction, Result

log = logging.getLogger(__name__)

_LONGEST = 1200.0
"""Seconds that a request may be pending: as long as Kubernetes waits for a sign of life of a responder."""
_ARRIVING = 30.0
"""Seconds in which a request of which no answer came may still arrive: the server has ended it by then."""


class _Pending(Struct):
    """A request. Times are monotonic. `ends`: how the eviction will end once the request is out of the world,
    None while it is wanted; `since`: from then on; `called_off`: since when nobody works on it."""

    attempt: Attempt
    began: float
    unsure: bool = False
    ends: Eviction | None = None
    since: float = 0.0
    called_off: float | None = None


class RequestingEvictor(Evictor):
    """Asks for evictions where the API is served; `otherwise` evicts where it is not.

    `otherwise` also evicts what an EvictionRequest cannot: pods in a PodGroup, and KubeVirt's, whose
    migration only the Eviction API tells of. `read` gives the pod of a name now.
    """

    def __init__(
        self,
        requests: EvictionRequests,
        otherwise: Evictor,
        read: PodReader,
        *,
        wait: Wait,
        monotonic: Callable[[], float],
        backoff: Backoff,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._requests = requests
        self._otherwise = otherwise
        self._read = read
        self._wait = wait
        self._monotonic = monotonic
        self._backoff = backoff
        self._annotations = annotations
        self._served = False
        self._pending: dict[str, _Pending] = {}
        self._leftovers = Leftovers(requests, read, wait=wait, monotonic=monotonic)

    def begin(self) -> None:
        """Withdraws what a process that ended left pending, and waits for its end. Raises KubeError."""
        found = self._requests.ours()
        self._served = found is not None
        if found is None:
            log.info("EvictionRequests are not served here: pods are evicted by the Eviction API")
        self._leftovers.clear(found or ())

    def evict(self, pod: Pod, reason: str = "", may_not: Question = unasked) -> Eviction:
        """`Result.REQUESTED`, or why it was not requested."""
        if key_of(pod) in self._leftovers.stuck:
            return _held(pod, _LEFT)
        if not self._served and pod.template.eviction_responders:
            return _held(pod, _RESPONDERS)
        if not self._served or _beyond_requests(pod):
            return self._otherwise.evict(pod, reason, may_not)
        attempt = Attempt(self._backoff, self._monotonic())
        refused, unsure = self._request(pod, reason, may_not, attempt)
        if refused is not None and not unsure:
            return refused
        self._pending[pod.uid] = _Pending(attempt, self._monotonic(), unsure)
        return attempt.done(Result.REQUESTED, f"the eviction of {pod.key} is requested", 0)

    def _request(
        self, pod: Pod, reason: str, may_not: Question, attempt: Attempt
    ) -> tuple[Eviction | None, bool]:
        """(why the pod's eviction was not requested, whether it may have been all the same).

        As two requests of one pod have one name, asking again does no harm.
        """
        unsure = False
        exists: ConflictError | None = None
        while True:
            if (refused := _asked(pod, may_not, attempt)) is not None:
                return refused, unsure
            attempt.posts += 1
            try:
                self._ask(pod, reason, exists)
            except KubeError as e:
                log.info("request the eviction of %s: %s", pod.key, e.message)
                attempt.failed(e, self._monotonic())
                unsure = unsure or _may_have_acted(e)
                if isinstance(e, ConflictError) and exists is None:
                    # An earlier try arrived, or one of an earlier cycle was withdrawn and is not deleted yet.
                    exists = e
                    continue
                if attempt.renewed(e):
                    continue
                if not retriable(e) or attempt.posts >= self._backoff.tries:
                    return _refused(pod, e, attempt), unsure
                if self._wait(attempt.delay(e)):
                    say = f"{pod.key}: stopped before trying again: {e.message}"
                    return attempt.ended(Result.HELD, say, e), unsure
            else:
                return None, False

    def follow(self, pod: Pod, may_not: Question) -> Eviction | None:
        """What became of a request; None while it is pending. Repeats the last look by `may_not`."""
        state = self._pending[pod.uid]
        try:
            ended = self._followed(pod, state, may_not)
        except KubeError as e:
            log.info("following the eviction of %s: %s", pod.key, e.message)
            now = self._monotonic()
            state.since = state.since or now
            ended = None
            # What cannot be read may still be called off: the look goes on, the withdrawal is tried unseen.
            state.ends = state.ends or _asked(pod, may_not, state.attempt)
            out_of_patience = now - state.since > PATIENCE
            if state.ends is not None or out_of_patience:
                self._withdraw([pod])
            if out_of_patience:
                say = f"{pod.key}: whether it is evicted is not known: {e.message}"
                ended = state.attempt.ended(Result.UNKNOWN, say, e)
        else:
            if state.ends is None:
                state.since = 0.0
        if ended is not None:
            del self._pending[pod.uid]
        return ended

    def recall(self, pods: Sequence[Pod], no: Forbidden) -> None:
        """Withdraws all of them side by side, without a look at each."""
        wanted = [pod for pod in pods if self._pending[pod.uid].ends is None]
        for pod in wanted:
            state = self._pending[pod.uid]
            state.ends, state.since = _ended_by(pod, no, state.attempt), self._monotonic()
        self._withdraw(wanted)

    def _withdraw(self, pods: Sequence[Pod]) -> None:
        for (_, name), e in self._requests.withdraw([key_of(pod) for pod in pods]).items():
            log.warning("%s could not be withdrawn: %s", name, e.message)

    def _ask(self, pod: Pod, reason: str, exists: ConflictError | None) -> None:
        """Makes the request, or makes one wanted again that `exists`. One request to the server, no more.

        Raises KubeError.
        """
        if exists is None:
            self._requests.create(pod, {**self._annotations(), **({REASON: reason} if reason else {})})
        elif self._requests.set_intent(pod.namespace, name_of(pod), "Eviction") is None:
            raise exists

    def _followed(self, pod: Pod, state: _Pending, may_not: Question) -> Eviction | None:
        if goes(self._read, pod.namespace, pod.name, pod.uid):
            return state.attempt.done(Result.EVICTED, f"{pod.key} evicted, as was requested", 0)
        request = self._requests.get(pod.namespace, name_of(pod))
        now = self._monotonic()
        state.unsure = state.unsure and request is None and now - state.began < _ARRIVING
        if state.ends is None:
            over = ""
            if request is None and not state.unsure:
                over = "the request is gone"
            elif request is not None and not request.wanted:
                over = "the request was withdrawn by somebody else"
            elif request is not None:
                over = request.failed
            if not over and now - state.began > _LONGEST:
                over = f"it was not evicted in {_LONGEST / 60:.0f} minutes"
            state.ends = _given_up(pod, over, state.attempt) if over else _asked(pod, may_not, state.attempt)
            if state.ends is None:
                return None
            state.since = now
        if request is not None and request.wanted:
            request = self._requests.set_intent(pod.namespace, name_of(pod), "Withdrawn")
        if state.called_off is None and (request.failed if request is not None else not state.unsure):
            state.called_off = self._monotonic()
        return self._out_of_the_world(pod, state)

    def _out_of_the_world(self, pod: Pod, state: _Pending) -> Eviction | None:
        """How it ends, once no responder can be at work any more."""
        now = self._monotonic()
        assert state.ends is not None
        if state.called_off is None:
            if now - state.since <= PATIENCE:
                return None
            say = f"{pod.key}: the request was withdrawn, and the cluster has not said that it is called off"
            return state.attempt.done(Result.UNKNOWN, say, 0)
        if now - state.called_off < SETTLED:
            return None
        try:
            self._requests.delete(pod.namespace, name_of(pod))
        except KubeError as e:
            # Nobody works on it any more, so what became of the pod is known.
            log.warning("%s, which is called off, could not be deleted: %s", name_of(pod), e.message)
        return state.ends


_RESPONDERS = Reason(
    ReasonCode.EVICTION_RESPONDER,
    "handles its evictions itself, and EvictionRequests are not served here",
    {},
    "turn on the feature gate EvictionRequestAPI",
)
_LEFT = Reason(
    ReasonCode.CHANGED_SINCE_PLAN,
    "a request of an earlier process for its eviction could not be called off: it may be evicted already",
    {},
    "look at the EvictionRequests of its namespace",
)


def _beyond_requests(pod: Pod) -> bool:
    kubevirt = pod.owner is not None and pod.owner.kind == "VirtualMachineInstance"
    return kubevirt or bool(pod.template.scheduling_group)


def _held(pod: Pod, why: Reason) -> Eviction:
    return Eviction(result=Result.HELD, message=f"{pod.key} was not evicted: {why.message}", reason=why)


def _asked(pod: Pod, may_not: Question, attempt: Attempt) -> Eviction | None:
    """How it ends if the last look forbids it by now."""
    no = forbidden(may_not)
    return _ended_by(pod, no, attempt) if no is not None else None


def _ended_by(pod: Pod, no: Forbidden, attempt: Attempt) -> Eviction:
    """How it ends, as this forbids it."""
    withdrawn = "the request was withdrawn: " if attempt.posts else ""
    return attempt.not_sent(no.result, f"{pod.key} was not evicted: {withdrawn}{no.say}", no.error, no.reason)


def _given_up(pod: Pod, why: str, attempt: Attempt) -> Eviction:
    return attempt.done(Result.REFUSED, f"{pod.key} was not evicted: {why}", 0)


def _may_have_acted(e: KubeError) -> bool:
    """Whether the server may have made the request, now or later."""
    return e.sent if isinstance(e, TransportError) else isinstance(e, ResponseError | ServerError)


def _refused(pod: Pod, e: KubeError, attempt: Attempt) -> Eviction:
    match e:
        case TooManyRequestsError():
            result = Result.THROTTLED
        case ForbiddenError(by_webhook=True):
            result = Result.REFUSED
        case ForbiddenError() | UnauthorizedError() | ConfigurationError():
            result = Result.FORBIDDEN
        case TransportError() | ServerError() | ResponseError():
            result = Result.FAILED
        case _:
            result = Result.REFUSED
    return attempt.ended(result, f"{pod.key}: {e}", e)
