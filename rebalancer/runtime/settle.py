"""After a wave: waiting until each victim is gone and each replacement runs, and finding out where.

A replacement is a pod of the same owner that was not there before the wave; of a StatefulSet, the pod of
the same name with another uid. Replacements of one owner are interchangeable: they are given to moves so that
as many as possible are where they were predicted.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

from msgspec import Struct

from rebalancer.kube.errors import KubeError
from rebalancer.kube.eviction import Eviction
from rebalancer.kube.objects import Objects
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.plan import Move
from rebalancer.policy.budgets import Budgets
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.outcome import MoveStatus, Outcome

log = logging.getLogger(__name__)

InFlight = tuple[Move, Eviction, float]
"""A move, its eviction, and the monotonic time of it."""


class SettleLimits(Struct, frozen=True, kw_only=True):
    """Seconds. `ready`: from the eviction until the replacement is Ready, beyond the victim's grace period;
    `pending`: how long a replacement may be unschedulable once the victims are gone; `budgets`: how long
    budgets may take to notice that all is well again; `poll` between looks."""

    ready: float = 300.0
    pending: float = 60.0
    budgets: float = 15.0
    poll: float = 1.0


_DEFAULTS = SettleLimits()


class Settler:
    """Waits for the replacements of one plan, made from `snapshot`."""

    def __init__(
        self, objects: Objects, snapshot: Snapshot, clock: Clock, limits: SettleLimits = _DEFAULTS
    ) -> None:
        self._objects = objects
        self._snapshot = snapshot
        self._clock = clock
        self._limits = limits
        self._before: dict[str, frozenset[str]] = {}
        self._placed: dict[str, float] = {}

    def before(self, move: Move) -> None:
        """Remembers the owner's pods of now, the first time in a wave. Raises KubeError."""
        owner = _owner_uid(move)
        if owner not in self._before:
            self._before[owner] = frozenset(p.uid for p in self._pods(move))

    def settle(self, flown: Sequence[InFlight], done: Callable[[Outcome], None]) -> list[Outcome]:
        """The outcomes of what is in flight, each told to `done` as soon as it is known.

        Ends when all are known, at the latest when the time is up or a stop is asked for.
        """
        waiting = list(flown)
        outcomes: list[Outcome] = []
        unschedulable: dict[str, float] = {}
        while waiting:
            stop = self._clock.stopping()
            try:
                seen = self._look(waiting, outcomes)
            except KubeError as e:
                log.info("waiting for replacements: %s", e.message)
                seen = {}
            for flight in list(waiting):
                outcome = self._judge(flight, seen.get(flight[0].pod.uid), unschedulable, stop)
                if outcome is not None:
                    waiting.remove(flight)
                    outcomes.append(outcome)
                    done(outcome)
            if waiting:
                self._clock.wait(self._limits.poll)
        self._before.clear()
        self._placed.clear()
        self._until_budgets_know([move for move, _, _ in flown])
        return outcomes

    def _until_budgets_know(self, moves: Sequence[Move]) -> None:
        """Waits until the disruption controller has seen the replacements, some seconds at most.

        It lags behind: a plan made at once would take the budgets for exhausted.
        """
        planned = Budgets(self._snapshot)
        wanted = {b.key: b.allowed for m in moves for b in planned.of(m.pod)}
        deadline = self._clock.monotonic() + self._limits.budgets
        while wanted and self._clock.monotonic() < deadline and not self._clock.stopping():
            try:
                for namespace in {key.partition("/")[0] for key in wanted}:
                    for b in self._objects.budgets(namespace):
                        key = f"{namespace}/{b.metadata.name}"
                        if b.status.disruptions_allowed >= wanted.get(key, 0):
                            wanted.pop(key, None)
            except KubeError as e:
                log.info("waiting for budgets: %s", e.message)
            if wanted:
                self._clock.wait(self._limits.poll)

    def _look(self, waiting: Sequence[InFlight], outcomes: Sequence[Outcome]) -> dict[str, _Seen]:
        """By the victim's uid: whether it is gone, and what came for it."""
        by_owner: dict[str, list[Move]] = defaultdict(list)
        for move, _, _ in waiting:
            by_owner[_owner_uid(move)].append(move)
        taken = {o.replacement for o in outcomes}
        seen: dict[str, _Seen] = {}
        for owner, moves in by_owner.items():
            pods = self._pods(moves[0])
            alive = {p.uid for p in pods}
            new = [
                p
                for p in pods
                if p.uid not in self._before.get(owner, frozenset())
                and not p.terminating
                and not p.finished
                and p.key not in taken
            ]
            given = assign(moves, new)
            live = None
            if len(given) < len(moves):
                live = self._workload(moves[0])
            for m in moves:
                seen[m.pod.uid] = _Seen(m.pod.uid not in alive, given.get(m.pod.uid), live)
        return seen

    def _judge(
        self, flight: InFlight, seen: _Seen | None, unschedulable: dict[str, float], stop: bool
    ) -> Outcome | None:
        move, eviction, since = flight
        now = self._clock.monotonic()
        pod = seen.pod if seen is not None else None
        if pod is not None and pod.node_name:
            self._placed.setdefault(pod.uid, now)

        def ended(status: MoveStatus, message: str) -> Outcome:
            node = pod.node_name if pod is not None else ""
            return Outcome(
                move=move,
                status=status,
                message=f"{move.pod.key} evicted; {message}",
                eviction=eviction,
                replacement=pod.key if pod is not None else "",
                node=node,
                expected=node in move.destinations if node else None,
                scheduled=self._placed[pod.uid] - since if pod is not None and node else None,
                seconds=now - since,
            )

        if seen is not None and seen.gone and pod is not None and pod.node_name and pod.ready:
            landed = "as predicted" if pod.node_name == move.predicted else f"{move.predicted} was predicted"
            return ended(MoveStatus.DONE, f"its replacement {pod.name} is Ready on {pod.node_name}, {landed}")
        if stop:
            return ended(MoveStatus.DONE, "stopped without waiting for its replacement")
        if seen is not None and seen.gone and pod is None and _shrunk(seen.owner, move):
            return ended(MoveStatus.DONE, f"{move.owner.kind} {move.owner.name} was scaled down meanwhile")
        if seen is not None and seen.gone and pod is not None and pod.unschedulable:
            first = unschedulable.setdefault(pod.uid, now)
            if now - first >= self._limits.pending:
                return ended(
                    MoveStatus.FAILED, f"its replacement {pod.name} stays Pending: {pod.unschedulable}"
                )
        if now - since >= self._limits.ready + move.pod.grace_seconds:
            return ended(MoveStatus.FAILED, _late(seen, now - since))
        return None

    def _pods(self, move: Move) -> tuple[Pod, ...]:
        """The pods of the move's owner, now."""
        owner = self._controller(move)
        labels = str(owner.selector) if owner is not None and owner.selector is not None else ""
        uid = _owner_uid(move)
        found = self._objects.pods(move.pod.namespace, labels)
        return tuple(p for p in found if p.owner is not None and p.owner.uid == uid)

    def _controller(self, move: Move) -> Workload | None:
        return self._snapshot.owner_of(move.pod.namespace, move.pod.owner)

    def _workload(self, move: Move) -> Workload | None:
        owner = self._controller(move)
        if owner is None:
            return None
        return self._objects.workload(owner.kind, owner.namespace, owner.name)


class _Seen(Struct, frozen=True, eq=False):
    """What a look found for one victim. `owner` is read only where a replacement is missing."""

    gone: bool
    pod: Pod | None
    owner: Workload | None


def assign(moves: Sequence[Move], pods: Sequence[Pod]) -> dict[str, Pod]:
    """Victim's uid → its replacement, out of an owner's new pods."""
    given: dict[str, Pod] = {}
    left = sorted(pods, key=lambda p: (not p.ready, not p.node_name, p.name))
    ranks: tuple[Callable[[Move, Pod], bool], ...] = (
        lambda m, p: p.node_name == m.predicted,
        lambda m, p: p.node_name in m.destinations,
        lambda _m, _p: True,
    )
    for fits in ranks:
        for move in moves:
            if move.pod.uid in given:
                continue
            by_name = move.owner.kind == "StatefulSet"
            found = next((p for p in left if (p.name == move.pod.name if by_name else fits(move, p))), None)
            if found is not None:
                given[move.pod.uid] = found
                left.remove(found)
    return given


def _owner_uid(move: Move) -> str:
    return move.pod.owner.uid if move.pod.owner is not None else ""


def _shrunk(owner: Workload | None, move: Move) -> bool:
    return owner is not None and owner.replicas < move.owner.replicas


def _late(seen: _Seen | None, seconds: float) -> str:
    after = f"after {seconds:.0f} s"
    if seen is None:
        return f"the cluster could not be looked at for its replacement, {after}"
    if not seen.gone:
        return f"it is still terminating {after}: a finalizer, or a kubelet that does not answer"
    if seen.pod is None:
        return f"no replacement has appeared {after}"
    where = f"on {seen.pod.node_name}" if seen.pod.node_name else "and not scheduled"
    return f"its replacement {seen.pod.name} is not Ready {after}, {seen.pod.phase} {where}"
