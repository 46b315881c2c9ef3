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
    next wave must not follow without a new plan; `fatal`: why this cycle should not evict any more.
    """

    in_flight: tuple[tuple[Move, Eviction, float], ...]
    settled: tuple[Outcome, ...]
    trouble: str = ""
    fatal: str = ""
    capped: bool = False


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


def fly(
    moves: Sequence[Move],
    *,
    leaves: Callable[[Move], Sequence[str]],
    look: FreshLook,
    baseline: Baseline,
    evictor: Evictor,
    caps: Caps,
    clock: Clock,
    observer: Observer,
) -> Flown:
    """Evicts what is still valid. `leaves`: the domains (key=value) that a move empties, for the caps.

    A move that is skipped does not keep the others of its wave back: a wave holds in any order, hence also
    in part. What concerns all of them does: nodes that changed, rights that are missing, a stop.
    """
    in_flight: list[tuple[Move, Eviction, float]] = []
    settled: list[Outcome] = []
    owners: Counter[str] = Counter()
    trouble = fatal = ""
    capped = False

    def settle(outcome: Outcome) -> None:
        settled.append(outcome)
        observer.on_outcome(outcome)

    for move in moves:
        if clock.stopping():
            break
        observer.on_move(move)
        owner = move.pod.owner.uid if move.pod.owner else ""
        try:
            reason = look.why_not(move, owners[owner])
            if reason is None:
                baseline.before(move)
        except KubeError as e:
            fatal = f"the cluster cannot be looked at: {e.message}"
            settle(
                Outcome(move=move, status=MoveStatus.FAILED, message=f"{move.pod.key} was not evicted: {e}")
            )
            break
        if reason is not None:
            trouble = trouble or reason.message
            settle(_skipped(move, reason))
            if reason.code is ReasonCode.NODES_CHANGED:
                break
            continue
        reason = caps.spend(move.pod, leaves(move))
        if reason is not None:
            capped = True
            settle(_skipped(move, reason))
            continue
        if clock.stopping():
            break
        eviction = evictor.evict(move.pod)
        observer.on_eviction(move, eviction)
        match eviction.result:
            case Result.EVICTED:
                owners[owner] += 1
                in_flight.append((move, eviction, clock.monotonic()))
            case Result.WOULD_EVICT:
                settle(_outcome(move, MoveStatus.RECORDED, eviction))
            case result if result in _SKIPPED:
                trouble = trouble or eviction.message
                settle(
                    _outcome(move, MoveStatus.SKIPPED, eviction, Reason(_SKIPPED[result], eviction.message))
                )
            case Result.REFUSED:
                trouble = trouble or eviction.message
                settle(_outcome(move, MoveStatus.FAILED, eviction))
            case result:
                fatal = f"{_FATAL[result]}: {eviction.message}"
                settle(_outcome(move, MoveStatus.FAILED, eviction))
                break
    return Flown(tuple(in_flight), tuple(settled), trouble, fatal, capped)


def _skipped(move: Move, reason: Reason) -> Outcome:
    return Outcome(
        move=move,
        status=MoveStatus.SKIPPED,
        message=f"{move.pod.key} was not evicted: {reason.message}",
        reason=reason,
    )


def _outcome(move: Move, status: MoveStatus, eviction: Eviction, reason: Reason | None = None) -> Outcome:
    return Outcome(move=move, status=status, message=eviction.message, reason=reason, eviction=eviction)
