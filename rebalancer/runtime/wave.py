"""Evicting the moves of one wave, each after a fresh look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from rebalancer.kube.errors import KubeError
from rebalancer.kube.eviction import Eviction, Evictor, Result
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.plan import Move
from rebalancer.policy.caps import Caps
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.gates import Gate
from rebalancer.runtime.observer import Observer
from rebalancer.runtime.outcome import MoveStatus, Outcome


class FreshLook(Protocol):
    """`rebalancer.kube.fresh.Revalidation`, or a test's."""

    def why_not(self, move: Move, in_flight: int = 0) -> Reason | None:
        """Why the move is no longer valid. Raises KubeError."""
        ...


class Baseline(Protocol):
    """`rebalancer.runtime.settle.Settler`, as far as a wave needs it."""

    def before(self, move: Move) -> None:
        """Remembers which pods the owner has, to know the replacement later. Raises KubeError."""
        ...


class Flown(Struct, frozen=True, eq=False):
    """A wave after its evictions.

    `in_flight`: evicted, to be waited for. `settled`: outcomes that are known already. `trouble`: why the
    next wave must not follow without a new plan; `fatal`: why this cycle should not evict any more, and
    `unwell`: that the API server is the reason. `capped`, `held`: the cap that was reached, the gate that
    closed.
    """

    in_flight: tuple[tuple[Move, Eviction, float], ...]
    settled: tuple[Outcome, ...]
    trouble: str = ""
    fatal: str = ""
    unwell: bool = False
    capped: Reason | None = None
    held: Reason | None = None


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


class Wave:
    """Evicts the moves of one plan, wave by wave."""

    def __init__(
        self,
        *,
        look: FreshLook,
        baseline: Baseline,
        evictor: Evictor,
        caps: Caps,
        clock: Clock,
        observer: Observer,
        gate: Gate,
        leaves: Callable[[Move], Sequence[str]],
        per_second: float | None = None,
    ) -> None:
        self.leaves = leaves
        self._look = look
        self._baseline = baseline
        self._evictor = evictor
        self._caps = caps
        self._clock = clock
        self._observer = observer
        self._gate = gate
        self._pause = 1.0 / per_second if per_second else 0.0
        self._last: float | None = None

    def fly(self, moves: Sequence[Move]) -> Flown:
        """Evicts what is still valid.

        A move that is skipped does not keep the others of its wave back: a wave holds in any order, hence
        also in part. What concerns all of them does: nodes that changed, a gate that closed, missing rights,
        a stop.
        """
        flight = _Flight(self._observer)
        owners: Counter[str] = Counter()
        for move in moves:
            if self._clock.stopping() or self._wait():
                break
            self._observer.on_move(move)
            owner = move.pod.owner.uid if move.pod.owner else ""
            leaves = self.leaves(move)
            try:
                reason = self._look.why_not(move, owners[owner])
                if reason is None:
                    self._baseline.before(move)
                    # Last, as looking may have taken its time.
                    flight.held = self._gate.closed()
                    reason = self._gate.bars(move.pod) if flight.held is None else None
            except KubeError as e:
                flight.unwell = True
                flight.fatal = f"the cluster cannot be looked at: {e.message}"
                flight.settle(move, MoveStatus.FAILED, f"{move.pod.key} was not evicted: {e}")
                break
            if flight.held is not None:
                flight.skip(move, flight.held)
                break
            if reason is not None:
                flight.trouble = flight.trouble or reason.message
                flight.skip(move, reason)
                if reason.code is ReasonCode.NODES_CHANGED:
                    break
                continue
            reason = self._caps.spend(move.pod, leaves)
            if reason is not None:
                flight.capped = flight.capped or reason
                flight.skip(move, reason)
                continue
            if self._clock.stopping():
                break
            eviction = self._evictor.evict(move.pod, move.reason)
            self._last = self._clock.monotonic()
            self._observer.on_eviction(move, eviction)
            if eviction.result is Result.EVICTED:
                owners[owner] += 1
                flight.in_flight.append((move, eviction, self._last))
            elif not self._judge(flight, move, eviction, leaves):
                break
        return flight.flown()

    def _wait(self) -> bool:
        """Keeps to the pace; True: stop."""
        if self._last is None:
            return False
        left = self._last + self._pause - self._clock.monotonic()
        return left > 0 and self._clock.wait(left)

    def _judge(self, flight: _Flight, move: Move, eviction: Eviction, leaves: Sequence[str]) -> bool:
        """Takes down an eviction that did not happen; whether the next may be tried."""
        result, say = eviction.result, eviction.message
        if result is Result.WOULD_EVICT:
            flight.settle(move, MoveStatus.RECORDED, say, eviction)
            return True
        if result is not Result.UNKNOWN:
            self._caps.give_back(move.pod, leaves)
        if result is Result.HELD:
            # By a stop or by a gate, which the next move, or the next plan, finds closed.
            flight.trouble = flight.trouble or say
            flight.settle(move, MoveStatus.SKIPPED, say, eviction)
            return True
        if result in _SKIPPED:
            flight.trouble = flight.trouble or say
            flight.settle(move, MoveStatus.SKIPPED, say, eviction, Reason(_SKIPPED[result], say))
            return True
        flight.settle(move, MoveStatus.FAILED, say, eviction)
        if result is Result.REFUSED:
            flight.trouble = flight.trouble or say
            return True
        flight.fatal = f"{_FATAL[result]}: {say}"
        flight.unwell = result is not Result.FORBIDDEN
        return False


class _Flight:
    """What is known of a wave so far."""

    def __init__(self, observer: Observer) -> None:
        self.in_flight: list[tuple[Move, Eviction, float]] = []
        self.settled: list[Outcome] = []
        self.trouble = self.fatal = ""
        self.unwell = False
        self.capped: Reason | None = None
        self.held: Reason | None = None
        self._observer = observer

    def settle(
        self,
        move: Move,
        status: MoveStatus,
        message: str,
        eviction: Eviction | None = None,
        reason: Reason | None = None,
    ) -> None:
        outcome = Outcome(move=move, status=status, message=message, reason=reason, eviction=eviction)
        self.settled.append(outcome)
        self._observer.on_outcome(outcome)

    def skip(self, move: Move, reason: Reason) -> None:
        say = f"{move.pod.key} was not evicted: {reason.message}"
        self.settle(move, MoveStatus.SKIPPED, say, reason=reason)

    def flown(self) -> Flown:
        return Flown(
            in_flight=tuple(self.in_flight),
            settled=tuple(self.settled),
            trouble=self.trouble,
            fatal=self.fatal,
            unwell=self.unwell,
            capped=self.capped,
            held=self.held,
        )
