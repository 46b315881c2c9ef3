"""What evicting means to the rest: a victim, a typed result, and the protocol that both evictors keep."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from rebalancer.kube.errors import KubeError
from rebalancer.model.pod import Pod


class Result(StrEnum):
    """How an eviction ended."""

    EVICTED = "evicted"
    """The server took it, or it was read back as taken."""
    WOULD_EVICT = "would-evict"
    """Dry run: recorded only, or accepted by the server's own dry run."""
    GONE = "already-gone"
    """There is no such pod any more, or another one of its name."""
    TERMINATING = "already-terminating"
    """Somebody else was quicker; not an eviction of ours."""
    BLOCKED = "budget-exhausted"
    STALE_BUDGET = "budget-stale"
    SEVERAL_BUDGETS = "several-budgets"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    """Flow control, also after waiting."""
    REFUSED = "refused"
    """Any other 4xx: the request itself is wrong, or a webhook's."""
    HELD = "held"
    """Not sent again after a try that came to nothing: a stop was asked for, or evicting is not allowed any
    more."""
    FAILED = "failed"
    """The server tried and failed, or was not reached; the pod was seen to be still there."""
    UNKNOWN = "unknown"
    """Perhaps evicted, and it cannot be found out: nothing more may be evicted on this knowledge."""


class Failed(Struct, frozen=True):
    """A request of an eviction that was not accepted: HTTP status (0: no answer), the error's class, a
    sentence, and when, in seconds after the first request was sent."""

    status: int
    error: str
    message: str
    seconds: float


class Eviction(Struct, frozen=True, eq=False, kw_only=True):
    """The outcome of evicting one pod.

    `message` is a sentence for people; `read_back`: nobody answered, and the pod itself told. `posts`: how
    many requests were sent. `status`: HTTP status of the last answer, 0 if there was none. `failed`: the
    requests that were not accepted, in order. `error`: the last one that counted.
    """

    result: Result
    message: str
    read_back: bool = False
    posts: int = 0
    status: int = 0
    failed: tuple[Failed, ...] = ()
    error: KubeError | None = None

    @property
    def evicted(self) -> bool:
        """Whether the pod goes because of us."""
        return self.result is Result.EVICTED


class Evictor(Protocol):
    """Evicts one pod, and says how it ended; never raises KubeError.

    Callers have just seen the pod running under this uid and not terminating: the server answers 201 for a
    pod that was terminating already, and charges a budget before it compares uids.
    """

    def evict(self, pod: Pod, reason: str = "") -> Eviction:
        """Evicts the pod of that uid. `reason`: a sentence, for those who look at the request."""
        ...


class RecordingEvictor:
    """Dry run: remembers what it was asked to evict, and does nothing."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def evict(self, pod: Pod, reason: str = "") -> Eviction:  # noqa: ARG002
        """Records the pod."""
        self.pods.append(pod)
        return Eviction(result=Result.WOULD_EVICT, message=f"{pod.key} would be evicted")
