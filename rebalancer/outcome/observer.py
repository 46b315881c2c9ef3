"""What a cycle and the daemon tell to those who listen: logs, the live view, telemetry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rebalancer.engine.agreement import Comparison
from rebalancer.model.finding import Finding
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport, Outcome
from rebalancer.outcome.eviction import Eviction
from rebalancer.outcome.steering import SteeringReport
from rebalancer.planner.plan import Move, Plan

log = logging.getLogger(__name__)


class Observer:
    """Override what is of interest. Called in the cycle's thread, in this order; should return quickly."""

    def on_cycle(self, number: int) -> None:
        """A cycle begins; they count from 1."""

    def on_reading(self) -> None:
        """The cluster is about to be read; once for each plan."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """The cluster was read; planning begins."""

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """A plan was made from that snapshot. Happens again in a cycle when the cluster does not behave as
        planned."""

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """An eviction of a reviewed plan is not carried out."""

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """The first move of a wave starts; waves overlap."""

    def on_move(self, move: Move) -> None:
        """A move's turn has come: a last look follows, then it is carried out or skipped."""

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """An eviction was tried; its outcome follows once the replacement is Ready."""

    def on_outcome(self, outcome: Outcome) -> None:
        """It is known what became of a move, evicted or not."""

    def on_wave_end(self, wave: int) -> None:
        """All outcomes of the wave are known, or no more of it follows in this plan."""

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
        """Another program moves pods in this cluster. Told once as long as it is there."""

    def on_comparison(self, comparison: Comparison) -> None:
        """What the scheduler did with a pod, beside what the engine says of it; from a thread of its own."""

    def on_steering(self, report: SteeringReport) -> None:
        """Scale-ins were looked at, and there is news; in the daemon from a thread of its own."""

    def on_reload(self, problem: str) -> None:
        """Changed settings were taken over (""), or refused because of `problem`."""


class Observers(Observer):
    """Tells several observers. One that fails is logged and ignored: no eviction depends on a display."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def _tell(self, method: str, *args: object) -> None:
        for observer in self._observers:
            try:
                getattr(observer, method)(*args)
            except Exception:
                log.exception("%s.%s failed", type(observer).__name__, method)


def _passed_on(method: str) -> Callable[..., None]:
    def tell(self: Observers, *args: object) -> None:
        self._tell(method, *args)

    return tell


for _method in [name for name in vars(Observer) if name.startswith("on_")]:
    setattr(Observers, _method, _passed_on(_method))
