"""What one eviction has used up, and what of it may still be at work in the server."""

from __future__ import annotations

from rebalancer.kube.client.retry import Backoff
from rebalancer.kube.errors import KubeError, ResponseError, StatusError, UnauthorizedError
from rebalancer.model.reason import Reason
from rebalancer.outcome.eviction import Eviction, Failed, Result


class Attempt:
    """Counts the requests of one eviction. Times in seconds of a monotonic clock, from `began` on.

    `at_work`: until when an earlier request, of which nothing is known, may still be at work; None: there is
    none. What a later one is answered may be the earlier one's doing.
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

    def failed(self, e: KubeError, now: float) -> None:
        """A request was not accepted."""
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

    def done(self, result: Result, message: str, status: int) -> Eviction:
        """It was accepted."""
        return Eviction(
            result=result, message=message, posts=self.posts, status=status, failed=tuple(self._failed)
        )

    def not_sent(
        self, result: Result, message: str, error: KubeError | None, reason: Reason | None
    ) -> Eviction:
        """The first, or a further request was not sent, for this reason or because of that error."""
        return Eviction(
            result=result,
            message=message,
            posts=self.posts,
            status=_status(error) if error is not None else 0,
            failed=tuple(self._failed),
            error=error,
            reason=reason,
        )

    def ended(self, result: Result, message: str, e: KubeError, *, read_back: bool = False) -> Eviction:
        """It came to this by an error, which was not the pod's last word where it was read back."""
        return Eviction(
            result=result,
            message=message,
            read_back=read_back,
            posts=self.posts,
            status=_status(e),
            failed=tuple(self._failed),
            error=e,
        )


def _status(e: KubeError) -> int:
    return e.code if isinstance(e, StatusError | ResponseError) else 0
