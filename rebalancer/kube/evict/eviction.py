"""Who evicts a pod: the protocol that all evictors keep, and the one of dry runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from rebalancer.kube.errors import KubeError
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.outcome.eviction import Eviction, Result

REASON = "rebalancer.io/reason"
"""Annotation of what asks for an eviction: why, in a sentence."""
REQUESTER = "rebalancer.io/requested-by"
"""Annotation of what asks for an eviction: which program, of which version."""
Question = Callable[[], Reason | None]
"""Why a request to evict must not be sent now; None if it may. May raise KubeError."""


def unasked() -> Reason | None:
    """Nothing forbids it."""
    return None


class Forbidden(Struct, frozen=True):
    """Why the last look forbids a request: a reason, or an error that kept it from looking; in words."""

    result: Result
    say: str
    error: KubeError | None = None
    reason: Reason | None = None


def forbidden(may_not: Question) -> Forbidden | None:
    """What the last look says now; None if the request may be sent."""
    try:
        why = may_not()
    except KubeError as e:
        return Forbidden(Result.FAILED, f"the cluster cannot be looked at: {e.message}", error=e)
    return Forbidden(Result.HELD, why.message, reason=why) if why is not None else None


class Evictor(Protocol):
    """Evicts one pod, and says how it ended; never raises KubeError."""

    def evict(self, pod: Pod, reason: str = "", may_not: Question = unasked) -> Eviction:
        """Evicts the pod of that uid. `reason`: a sentence, for those who look at the request.

        `may_not` is asked right before every request, the first and each further one. It has to see that the
        pod runs under this uid and is not terminating: the server answers 201 for a pod that was terminating
        already, and charges a budget before it compares uids.
        """
        ...


class RecordingEvictor(Evictor):
    """Dry run: remembers what it was asked to evict, and does nothing."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def evict(self, pod: Pod, reason: str = "", may_not: Question = unasked) -> Eviction:  # noqa: ARG002
        """Records the pod."""
        try:
            why = may_not()
        except KubeError as e:
            return Eviction(result=Result.FAILED, message=f"{pod.key}: {e.message}", error=e)
        if why is not None:
            return Eviction(result=Result.HELD, message=f"{pod.key}: {why.message}", reason=why)
        self.pods.append(pod)
        return Eviction(result=Result.WOULD_EVICT, message=f"{pod.key} would be evicted")
