"""What the loop tells. Logs, the live view and telemetry listen; the loop knows none of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rebalancer.errors import UserError
from rebalancer.kube.eviction import Eviction
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Finding, Move, Plan
from rebalancer.runtime.outcome import CycleReport, MoveStatus, Outcome
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


def fields(**values: object) -> dict[str, object]:
    """What a structured log has beside the sentence; empty ones are left out."""
    return {"fields": {name: value for name, value in values.items() if value != ""}}


class LogObserver(Observer):
    """One line for each thing that happens."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """What was read, and what not."""
        for warning in snapshot.warnings:
            log.warning("%s", warning)

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """The plan in figures; for debugging, what stays and why."""
        log.info(
            "plan: %d of %d constraints violated, excess %d; %d evictions in %d waves leave %d",
            plan.violated,
            len(plan.constraints),
            plan.excess,
            len(plan.moves),
            len(plan.waves),
            plan.residual_excess,
            extra=fields(
                violated=plan.violated,
                excess=plan.excess,
                residual=plan.residual_excess,
                evictions=len(plan.moves),
                lower_bound=plan.lower_bound,
            ),
        )
        for c in plan.constraints:
            if c.in_scope and c.residual_excess:
                why = "; ".join(r.message for r in c.reasons) or "no reason is known"
                log.debug(
                    "an excess of %d stays: %s",
                    c.residual_excess,
                    why,
                    extra=fields(
                        namespace=c.constraint.namespace,
                        workload=", ".join(c.workloads),
                        topology_key=c.constraint.topology_key,
                        reason=", ".join(r.code.value for r in c.reasons),
                    ),
                )
        for b in plan.blocked:
            log.debug(
                "%s stays: %s",
                b.pod.key,
                b.reason.message,
                extra=fields(namespace=b.pod.namespace, pod=b.pod.name, reason=b.reason.code.value),
            )

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """Why not."""
        log.warning(
            "%s/%s is in the reviewed plan and stays: %s",
            namespace,
            pod,
            reason.message,
            extra=fields(namespace=namespace, pod=pod, reason=reason.code.value),
        )

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """Its size."""
        log.info("wave %d: %d evictions", wave, len(moves))

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """The verdict, with the move's reason."""
        level = logging.INFO if eviction.evicted else logging.DEBUG
        log.log(
            level,
            "%s from %s: %s",
            eviction.message,
            move.pod.node_name,
            move.reason,
            extra=fields(
                namespace=move.pod.namespace,
                pod=move.pod.name,
                node=move.pod.node_name,
                predicted=move.predicted,
                owner=f"{move.owner.kind}/{move.owner.name}",
                wave=move.wave,
                result=eviction.result.value,
            ),
        )

    def on_outcome(self, outcome: Outcome) -> None:
        """What became of it."""
        level = logging.WARNING if outcome.status is MoveStatus.FAILED else logging.INFO
        log.log(
            level,
            "%s: %s",
            outcome.status.value,
            outcome.message,
            extra=fields(
                namespace=outcome.move.pod.namespace,
                pod=outcome.move.pod.name,
                status=outcome.status.value,
                reason=outcome.reason.code.value if outcome.reason is not None else "",
                replacement=outcome.replacement.partition("/")[2],
                node=outcome.node,
            ),
        )

    def on_report(self, report: CycleReport) -> None:
        """The cycle in figures."""
        log.info(
            "cycle over (%s): %s; %d evicted, %d failed, %.0f s",
            report.end.value,
            report.message,
            report.evicted,
            report.failed,
            report.seconds,
            extra=fields(
                end=report.end.value,
                evicted=report.evicted,
                failed=report.failed,
                seconds=round(report.seconds, 3),
            ),
        )

    def on_error(self, error: Exception) -> None:
        """With a traceback only where it is a bug."""
        if isinstance(error, UserError):
            log.error("cycle failed: %s", error)
        else:
            log.error("cycle failed: this is a bug", exc_info=error)

    def on_held(self, reason: Reason) -> None:
        """Why, and what to do."""
        log.warning("nothing is evicted now: %s; %s", reason.message, reason.remedy)

    def on_notice(self, finding: Finding) -> None:
        """What was seen."""
        log.warning("%s: %s; %s", finding.object, finding.message, finding.remedy)

    def on_reload(self, problem: str) -> None:
        """Whether the new settings hold."""
        if problem:
            log.error("the changed settings are refused, the old ones stay: %s", problem)
        else:
            log.info("the changed settings are in force")

    def on_breaker(self, open_: bool, why: str) -> None:
        """Its state."""
        if open_:
            log.error("%s", why)
        else:
            log.info("the circuit breaker is closed again")

    def on_leading(self, leading: bool) -> None:
        """Whether this instance acts."""
        log.info("this instance leads" if leading else "this instance does not lead")
