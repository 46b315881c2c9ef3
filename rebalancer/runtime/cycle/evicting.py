"""Evicting one pod after the other, each after a last look, and what is in the way of the next."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.evict.eviction import Evictor
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome.cycle import MoveStatus, Outcome
from rebalancer.outcome.eviction import Eviction, Result
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.gates.gates import Gate
from rebalancer.runtime.cycle.gates.permission import FreshLook, Permission


class Obstacles(Struct, eq=False):
    """What stood in the way of a plan's evictions so far.

    `fatal`: why this cycle must not evict any more; `unwell`: because of the API server. `held`: the gate
    that closed. `blind`: the watch is behind, so that no further move can be judged.
    """

    fatal: str = ""
    unwell: bool = False
    held: Reason | None = None
    blind: bool = False


_SKIPPED = {
    Result.GONE: ReasonCode.CHANGED_SINCE_PLAN,
    Result.TERMINATING: ReasonCode.TERMINATING,
    Result.BLOCKED: ReasonCode.PDB_EXHAUSTED,
    Result.STALE_BUDGET: ReasonCode.PDB_STALE,
    Result.SEVERAL_BUDGETS: ReasonCode.MULTIPLE_PDBS,
}
_FATAL = {
    Result.FORBIDDEN: "evicting is forbidden",
    Result.THROTTLED: "the API server is too busy",
    Result.FAILED: "the API server is unwell",
    Result.UNKNOWN: "the outcome of an eviction is unknown",
}


class Evicting:
    """Evicts pods of one plan."""

    def __init__(
        self,
        *,
        look: FreshLook,
        evictor: Evictor,
        clock: Clock,
        observer: Observer,
        gate: Gate,
    ) -> None:
        self.obstacles = Obstacles()
        self._look = look
        self._evictor = evictor
        self._clock = clock
        self._observer = observer
        self._gate = gate

    def evict(self, move: Move, in_flight: int) -> Outcome | None:
        """Evicts the pod if its move is still right; None: a stop was asked for.

        `in_flight`: how many pods of its owner are on their way. The outcome is not told to the observer:
        some of what is refused can be tried again.
        """
        self._observer.on_move(move)
        permission = Permission(self._look, self._gate, self._clock, move, in_flight)
        eviction = self._evictor.evict(move.pod, move.reason, permission)
        self.obstacles.held = permission.held
        if not eviction.tried:
            return self._untried(move, eviction)
        return self._tried(move, eviction)

    def _tried(self, move: Move, eviction: Eviction) -> Outcome:
        """A move for which a request was sent."""
        at = self._clock.monotonic()
        self._observer.on_eviction(move, eviction)
        if eviction.evicted:
            now = replace(move, destinations=self._look.destinations(move))
            return Outcome(
                move=now, status=MoveStatus.EVICTED, message=eviction.message, eviction=eviction, at=at
            )
        return self._not_evicted(move, eviction)

    def unseen(self, move: Move, e: UserError | None) -> Outcome:
        """The cluster could not be looked at."""
        self.obstacles.unwell = True
        self.obstacles.fatal = f"the cluster cannot be looked at: {e.message if e is not None else ''}"
        return Outcome(move=move, status=MoveStatus.FAILED, message=f"{move.pod.key} was not evicted: {e}")

    def _untried(self, move: Move, eviction: Eviction) -> Outcome | None:
        """A move for which no request was sent."""
        reason = eviction.reason
        if reason is None:
            return self.unseen(move, eviction.error)
        if reason.code is ReasonCode.STOPPING:
            return None
        self.obstacles.blind = reason.code is ReasonCode.NOT_CURRENT
        return _skipped(move, reason)

    def _not_evicted(self, move: Move, eviction: Eviction) -> Outcome:
        """A request that came to nothing, or may have."""
        result, say = eviction.result, eviction.message
        status, reason = MoveStatus.FAILED, None
        if result is Result.WOULD_EVICT:
            status = MoveStatus.RECORDED
        elif result is Result.HELD:
            status, reason = MoveStatus.SKIPPED, eviction.reason
        elif result in _SKIPPED:
            status, reason = MoveStatus.SKIPPED, Reason(_SKIPPED[result], say)
        elif result is not Result.REFUSED:
            self.obstacles.fatal = f"{_FATAL[result]}: {say}"
            self.obstacles.unwell = result is not Result.FORBIDDEN
        return Outcome(move=move, status=status, message=say, reason=reason, eviction=eviction)


def _skipped(move: Move, reason: Reason) -> Outcome:
    say = f"{move.pod.key} was not evicted: {reason.message}"
    return Outcome(move=move, status=MoveStatus.SKIPPED, message=say, reason=reason)
