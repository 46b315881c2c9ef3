"""What may forbid evictions at any moment. Asked before a plan is carried out and before every eviction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from rebalancer.kube.brakes import Brakes
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError
from rebalancer.kube.ledger_store import Place
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot, build_snapshot
from rebalancer.model.workload import PodDisruptionBudget, ResourceQuota, Workload
from rebalancer.planner.plan import Move
from rebalancer.policy.annotations import paused
from rebalancer.policy.budgets import Budget, Budgets
from rebalancer.policy.quota import Charged, Quotas
from rebalancer.policy.windows import Window, outside
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.memory import Memory

FRESH = 1.0
"""Seconds that may pass between the beginning of a last look and the request."""


class Gate:
    """Open by default. Subclasses override what they need. `closed` and `bars` may raise KubeError, which
    ends the cycle."""

    def begin(self) -> None:
        """`closed` will be asked in a moment: reads what takes a request, beside what others read. In any
        thread. What went wrong is for `closed` to raise."""

    def closed(self) -> Reason | None:
        """Why nothing at all may be evicted now."""
        return None

    def bars(self, pod: Pod) -> Reason | None:  # noqa: ARG002
        """Why this pod may not be evicted now, although others may."""
        return None


class Gates(Gate):
    """Several gates, asked in order; the first that is closed answers. Put the cheap ones first."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    def begin(self) -> None:
        for g in self._gates:
            g.begin()

    def closed(self) -> Reason | None:
        return next((r for g in self._gates if (r := g.closed()) is not None), None)

    def bars(self, pod: Pod) -> Reason | None:
        return next((r for g in self._gates if (r := g.bars(pod)) is not None), None)


class WindowGate(Gate):
    """Closed outside of maintenance windows."""

    def __init__(self, windows: Sequence[Window], clock: Clock) -> None:
        self._windows = windows
        self._clock = clock

    def closed(self) -> Reason | None:
        return outside(self._windows, self._clock.now(), self._clock.latest())


class TimeGate(Gate):
    """Closed when the cycle has taken `seconds` since this gate was made."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def closed(self) -> Reason | None:
        if self._clock.monotonic() < self._until:
            return None
        return Reason(
            ReasonCode.CYCLE_TIME,
            f"the cycle has taken {self._seconds:.0f} s, which is all it may",
            {"seconds": int(self._seconds)},
            "the next cycle goes on; see schedule.maxCycleTime",
        )


class LeaderGate(Gate):
    """Closed when this process does not lead. `leading` must answer from its own clock, without a request."""

    def __init__(self, leading: Callable[[], bool]) -> None:
        self._leading = leading

    def closed(self) -> Reason | None:
        if self._leading():
            return None
        return Reason(ReasonCode.NOT_LEADING, "this instance is not the leader any more")

    def bars(self, pod: Pod) -> Reason | None:  # noqa: ARG002
        """Asks again: what was asked for this pod before may have taken long."""
        return self.closed()


class PauseGate(Gate):
    """Closed by the brake, which is read for each answer. Namespaces that are paused are for the last look.

    A brake that is missing or may not be read closes as well. `lease`: the lease's annotations as last seen,
    which paused everything in earlier versions and still do.
    """

    def __init__(
        self, brakes: Brakes, brake: Place, clock: Clock, lease: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._brakes = brakes
        self._brake = brake
        self._clock = clock
        self._lease = lease
        self._begun: tuple[float, Mapping[str, str] | KubeError] | None = None

    def begin(self) -> None:
        at = self._clock.monotonic()
        try:
            self._begun = at, self._brakes.everything(self._brake)
        except KubeError as e:
            self._begun = at, e

    def closed(self) -> Reason | None:
        what = f"configmap {self._brake.name} -n {self._brake.namespace}"
        begun, self._begun = self._begun, None
        try:
            # What was read for a look that went no further may be old by now.
            if begun is None or self._clock.monotonic() - begun[0] >= FRESH:
                there = self._brakes.everything(self._brake)
            elif isinstance(begun[1], KubeError):
                raise begun[1]
            else:
                there = begun[1]
        except NotFoundError:
            say = f"{self._brake}, by which people pause evictions, is missing"
            return _unseen(f"{say}; `rebalancer resume` creates it", "`rebalancer resume` creates it")
        except ForbiddenError as e:
            return _unseen(f"whether evictions are paused cannot be seen: {e.message}", e.remedy)
        now = self._clock.now()
        return paused(what, there, now, "`rebalancer resume`") or paused("lease", self._lease(), now)


def _unseen(message: str, remedy: str) -> Reason:
    return Reason(ReasonCode.NO_BRAKE, message, remedy=remedy)


class CircuitGate(Gate):
    """Closed while the circuit breaker is open because of an earlier cycle."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def closed(self) -> Reason | None:
        return self._memory.circuit_open()


class RivalGate(Gate):
    """Closed while another rebalancer acts on the same ledger."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def closed(self) -> Reason | None:
        return self._memory.rival()


# May a request that can evict a pod be sent now?

_LOOKS = 4
"""Looks in a row. The first of a cycle waits for the watch, and a network may stutter."""


class FreshLook(Protocol):
    """What is asked before each eviction: `rebalancer.runtime.last_look.look.LastLook`."""

    def why_not(
        self, move: Move, in_flight: int = 0, beside: Callable[[], object] = lambda: None
    ) -> Reason | None:
        """Why the move is no longer valid. `beside` is called in a thread of its own while objects are read.

        Raises KubeError.
        """
        ...

    def destinations(self, move: Move) -> tuple[str, ...]:
        """The nodes that the replacement may go to, as the look found them."""
        ...

    def beside(self, move: Move, others: Sequence[Move], unplaced: Collection[str]) -> bool:
        """Whether the move may be in flight beside others that it was not planned beside.

        `unplaced`: the uids of those victims whose replacements are on no node yet. Raises KubeError.
        """
        ...


class NoLook(FreshLook):
    """For dry runs: where nothing is evicted, nothing is looked at."""

    def why_not(
        self,
        move: Move,  # noqa: ARG002
        in_flight: int = 0,  # noqa: ARG002
        beside: Callable[[], object] = lambda: None,  # noqa: ARG002
    ) -> Reason | None:
        """Nothing."""
        return None

    def destinations(self, move: Move) -> tuple[str, ...]:
        """As planned."""
        return move.destinations

    def beside(self, move: Move, others: Sequence[Move], unplaced: Collection[str]) -> bool:  # noqa: ARG002
        """Nobody is in flight."""
        return True


def _stopping(clock: Clock) -> Reason | None:
    return Reason(ReasonCode.STOPPING, "a stop was asked for") if clock.stopping() else None


def _asked_of(question: Callable[[], Reason | None]) -> Reason | None:
    try:
        return question()
    except KubeError as e:
        say = f"whether evictions are paused is not known: {e.message}"
        raise KubeError(say, e.remedy, target=e.target) from e


class Permission:
    """Asked right before each request that can evict a pod, the first and every further one: may it be sent?

    The whole last look, then the gates, and all of it within a second: if the API server took longer to
    answer, what was seen first is old, and everything is asked again. `in_flight`: how many pods of the same
    owner are on their way. `held`: the gate that closed, of the last time.
    """

    def __init__(self, look: FreshLook, gate: Gate, clock: Clock, move: Move, in_flight: int) -> None:
        self._look = look
        self._gate = gate
        self._clock = clock
        self._move = move
        self._in_flight = in_flight
        self.held: Reason | None = None

    def __call__(self) -> Reason | None:
        """Why it must not be sent; None if it may. Raises KubeError."""
        for _ in range(_LOOKS):
            began = self._clock.monotonic()
            reason = self._ask()
            seconds = self._clock.monotonic() - began
            if reason is not None or seconds <= FRESH:
                return reason
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the last look at {self._move.pod.key} took {seconds:.1f} s, {_LOOKS} times in a row: what "
            "it saw first was old by then",
            {},
            "look at the latency of the API server",
        )

    def _ask(self) -> Reason | None:
        self.held = None
        if (stopping := _stopping(self._clock)) is not None:
            return stopping
        # What the gates read is read at the same time as what the look reads.
        reason = self._look.why_not(self._move, self._in_flight, self._gate.begin)
        if reason is not None:
            return reason
        self.held = _asked_of(self._gate.closed)
        return self.held or _asked_of(lambda: self._gate.bars(self._move.pod))


# What may keep a move from going now and passes by itself, as it is watched: asked without a request.
#
# The API server counts an eviction against a budget at once. The disruption controller gives it back, and
# the owner counts its Ready pods anew, some time after the replacement is Ready. The watch shows all of it
# a moment later. So a move that was refused for such a reason waits until budgets or owner have changed.

log = logging.getLogger(__name__)

PASSING = frozenset(
    {
        ReasonCode.PDB_EXHAUSTED,
        ReasonCode.PDB_STALE,
        ReasonCode.REPLACEMENT_NOT_READY,
        ReasonCode.OWNER_SCALING,
        ReasonCode.OWNER_DEGRADED,
    }
)
"""Reasons for which a move may wait a little."""


class Limiting(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here. Raises CacheNotReadyError."""

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace."""
        ...

    def quotas(self, namespace: str) -> tuple[ResourceQuota, ...]:
        """All quotas of a namespace."""
        ...

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name."""
        ...


class WatchedLimits:
    """Budgets, quotas and owners of one plan's moves, made from `snapshot`. What is new is for the last look.

    `watched`: None in dry runs, where nothing is limited.
    """

    def __init__(self, watched: Limiting | None, snapshot: Snapshot) -> None:
        self._watched = watched
        self._snapshot = snapshot
        self._planned = Budgets(snapshot)
        self._refused: dict[str, tuple[str, ...]] = {}

    def allow(self, move: Move) -> bool:
        """Whether the move's budgets have room, and something has changed since it was refused."""
        try:
            budgets = self._budgets([move])
            if move.pod.uid in self._refused and self._refused[move.pod.uid] == self._versions(move):
                return False
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)
            return False
        return all(not b.stale and (not b.costs(move.pod) or b.allowed > 0) for b in budgets)

    def admit(self, move: Move, coming: Sequence[Move]) -> bool:
        """Whether the quotas have room for its replacement beside those that are still to be made."""
        if self._watched is None:
            return True
        try:
            charged = Charged(Quotas(build_snapshot(self._watched.quotas(move.pod.namespace), now=0.0)))
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)
            return False
        for other in coming:
            charged.spend(other.pod, other.owner)
        return charged.fits(move.pod, move.owner)

    def refused(self, move: Move) -> None:
        """Takes down that the move was refused with budgets and owner as they are."""
        try:
            self._refused[move.pod.uid] = self._versions(move)
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)

    def as_planned(self, moves: Iterable[Move]) -> bool:
        """Whether the budgets of these moves allow as much again as when they were planned.

        A plan made before would take them for exhausted.
        """
        moves = list(moves)
        planned = {b.key: b.allowed for m in moves for b in self._planned.of(m.pod)}
        try:
            return all(b.allowed >= planned[b.key] for b in self._budgets(moves))
        except KubeError as e:
            log.info("waiting for budgets: %s", e.message)
            return False

    def _budgets(self, moves: Iterable[Move]) -> list[Budget]:
        """The budgets that cover these pods, as they are."""
        covering = {b.key: b for m in moves for b in self._planned.of(m.pod)}
        if not covering or self._watched is None:
            return []
        there = {
            f"{n}/{b.metadata.name}": b
            for n in {key.partition("/")[0] for key in covering}
            for b in self._watched.budgets(n)
        }
        return [Budget(there[key], b.selector) for key, b in sorted(covering.items()) if key in there]

    def _versions(self, move: Move) -> tuple[str, ...]:
        owner = self._snapshot.owner_of(move.pod.namespace, move.pod.owner)
        found = [b.budget.metadata.resource_version for b in self._budgets([move])]
        if self._watched is not None and owner is not None:
            live = self._watched.workload(owner.kind, owner.namespace, owner.name)
            found.append(live.metadata.resource_version if live is not None else "")
        return tuple(found)
