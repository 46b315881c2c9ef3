"""What came of the request to evict one pod."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.model.reason import Reason


class Result(StrEnum):
    """How an eviction ended."""

    EVICTED = "evicted"
    """The server took it, or it was read back as taken."""
    MIGRATING = "migrating"
    """Its controller moves it to another node and then ends it: a virtual machine of KubeVirt."""
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
    """Not sent, or not sent again after a try that came to nothing: the last look or a gate forbade it, or a
    stop was asked for."""
    FAILED = "failed"
    """The server tried and failed, or was not reached; the pod was seen to be still there."""
    UNKNOWN = "unknown"
    """Perhaps evicted, and it cannot be found out: nothing more may be evicted on this knowledge."""


class Failed(Struct, frozen=True):
    """A request that was not accepted: HTTP status (0: no answer), class of the error, a sentence, and when,
    in seconds after the first request."""

    status: int
    error: str
    message: str
    seconds: float


class Eviction(Struct, frozen=True, eq=False, kw_only=True):
    """The result of evicting one pod.

    `message` is a sentence. `read_back`: no answer came, and the result was read from the pod. `posts`: how
    many requests were sent. `status`: HTTP status of the last answer, 0 if there was none. `failed`: the
    requests that were not accepted, in order. `error`: the last error that counted. `reason`: what
    forbade the first or a further request.
    """

    result: Result
    message: str
    read_back: bool = False
    posts: int = 0
    status: int = 0
    failed: tuple[Failed, ...] = ()
    error: UserError | None = None
    reason: Reason | None = None

    @property
    def evicted(self) -> bool:
        """Whether the pod goes because of this eviction, now or once it has moved."""
        return self.result in (Result.EVICTED, Result.MIGRATING)

    @property
    def tried(self) -> bool:
        """Whether anything was asked of the server, or recorded instead."""
        return self.posts > 0 or self.result is Result.WOULD_EVICT
