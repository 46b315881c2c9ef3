"""What the loop tells. Logs, the live view and telemetry listen; the loop knows none of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rebalancer.kube.eviction import Eviction
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Finding, Move, Plan
from rebalancer.runtime.outcome import CycleReport, Outcome
from rebalancer.settings import Settings

log = logging.getLogger(__name__)


class Observer:
    """Override what is of interest. Called in the loop's thread, in this order; should return quickly."""

    def on_cycle(self, number: int) -> None:
        """A cycle begins; they count from 1."""

    def on_reading(self) -> None:
        """The cluster is about to be read; once for each plan."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """The cluster was read; planning begins."""

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """A plan was made from that snapshot; several times a cycle if the world moves."""

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """An eviction of a reviewed plan is not carried out."""

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """A wave begins."""

    def on_move(self, move: Move) -> None:
        """A move's turn has come: it is looked at once more, then carried out or skipped."""

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """An eviction was tried; its outcome follows once the replacement is Ready."""

    def on_outcome(self, outcome: Outcome) -> None:
        """It is settled what became of a move, evicted or not."""

    def on_wave_end(self, wave: int) -> None:
        """All outcomes of the wave are known."""

    def on_report(self, report: CycleReport) -> None:
        """The cycle is over."""

    def on_error(self, error: Exception) -> None:
        """The cycle ended in an error instead: the cluster could not be read, or a bug."""

    def on_leading(self, leading: bool) -> None:
        """This instance became the leader, or no longer is; from the thread of the election, at any time."""

    def on_breaker(self, open_: bool, why: str) -> None:
        """The circuit breaker opened, so that nothing is evicted, or closed again."""

    def on_held(self, reason: Reason) -> None:
        """There is something to do, and evicting is not allowed now."""

    def on_notice(self, finding: Finding) -> None:
        """Something else in the cluster that moves pods; once, as long as it is there."""

    def on_settings(self, settings: Settings) -> None:
        """Other settings are in force from now on."""

    def on_reload(self, problem: str) -> None:
        """Changed settings were taken over (""), or refused because of `problem`."""


class Observers(Observer):
    """Tells several. One that fails is logged and does not stop the loop: no pod is stuck for a display."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def on_cycle(self, number: int) -> None:
        """Passed on."""
        self._tell("on_cycle", number)

    def on_reading(self) -> None:
        """Passed on."""
        self._tell("on_reading")

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Passed on."""
        self._tell("on_snapshot", snapshot)

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Passed on."""
        self._tell("on_plan", snapshot, plan)

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """Passed on."""
        self._tell("on_rejected", namespace, pod, reason)

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """Passed on."""
        self._tell("on_wave", wave, moves)

    def on_move(self, move: Move) -> None:
        """Passed on."""
        self._tell("on_move", move)

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """Passed on."""
        self._tell("on_eviction", move, eviction)

    def on_outcome(self, outcome: Outcome) -> None:
        """Passed on."""
        self._tell("on_outcome", outcome)

    def on_wave_end(self, wave: int) -> None:
        """Passed on."""
        self._tell("on_wave_end", wave)

    def on_report(self, report: CycleReport) -> None:
        """Passed on."""
        self._tell("on_report", report)

    def on_error(self, error: Exception) -> None:
        """Passed on."""
        self._tell("on_error", error)

    def on_leading(self, leading: bool) -> None:
        """Passed on."""
        self._tell("on_leading", leading)

    def on_breaker(self, open_: bool, why: str) -> None:
        """Passed on."""
        self._tell("on_breaker", open_, why)

    def on_held(self, reason: Reason) -> None:
        """Passed on."""
        self._tell("on_held", reason)

    def on_notice(self, finding: Finding) -> None:
        """Passed on."""
        self._tell("on_notice", finding)

    def on_settings(self, settings: Settings) -> None:
        """Passed on."""
        self._tell("on_settings", settings)

    def on_reload(self, problem: str) -> None:
        """Passed on."""
        self._tell("on_reload", problem)

    def _tell(self, method: str, *args: object) -> None:
        for observer in self._observers:
            try:
                getattr(observer, method)(*args)
            except Exception:
                log.exception("%s.%s failed", type(observer).__name__, method)
