"""The cycle in the log: a sentence for people, fields for collectors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.errors import UserError
from rebalancer.kube.patches import EventRecorder, Regarding
from rebalancer.model.reason import Finding, Reason, ReasonCode, plural
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import (
    CostResult,
    CycleReport,
    Eviction,
    Fate,
    Observer,
    Outcome,
    Proposal,
    SteeringReport,
)
from rebalancer.planner.plan import Move, Plan
from rebalancer.report.words import NAMESPACES_HIDDEN, later

log = logging.getLogger(__name__)


def fields(**values: object) -> dict[str, object]:
    """The fields of a structured log line. Empty ones are left out."""
    return {"fields": {name: value for name, value in values.items() if value != ""}}


_MOST_DISAGREEMENTS = 10
"""Lines about disagreements with the scheduler in `_WHILE` seconds; there could be one for each pod."""
_WHILE = 600.0


class LogObserver(Observer):
    """One line for each thing that happens."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._disagreed_since = float("-inf")
        self._disagreements = 0
        self._breaker_open = False
        self._kept: dict[str, int] = {}
        self._unknown = 0
        self._disputed: tuple[str, ...] = ()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        for warning in snapshot.warnings:
            log.warning("%s", warning)

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """The plan in figures; for debugging, what stays and why."""
        log.info(
            "plan: %d of %d constraints violated, excess %d; %s in %s %s %d",
            plan.violated,
            len(plan.constraints),
            plan.excess,
            plural(len(plan.moves), "eviction"),
            plural(len(plan.waves), "wave"),
            "leaves" if len(plan.moves) == 1 else "leave",
            plan.residual_excess,
            extra=fields(
                violated=plan.violated,
                excess=plan.excess,
                residual=plan.residual_excess,
                evictions=len(plan.moves),
                lower_bound=plan.lower_bound,
            ),
        )
        for said in later(plan.moves):
            log.info("%s", said)
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

    def on_proposal(self, proposal: Proposal) -> None:
        log.info(
            "%d evictions wait for approval: %s",
            proposal.evictions,
            proposal.command,
            extra=fields(namespace=proposal.namespace, evictions=proposal.evictions),
        )

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        log.warning(
            "%s/%s is in the reviewed plan and stays: %s",
            namespace,
            pod,
            reason.message,
            extra=fields(namespace=namespace, pod=pod, reason=reason.code.value),
        )

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        log.info("wave %d: %s", wave, plural(len(moves), "eviction"))

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
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
        level = logging.WARNING if outcome.status is Fate.FAILED else logging.INFO
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
        log.info(
            "cycle over (%s): %s; %d evicted, %d failed, %.0f s",
            report.end.value,
            report.says,
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
        if isinstance(error, UserError):
            log.error("cycle failed: %s", error)
        else:
            log.error("cycle failed: this is a bug", exc_info=error)

    def on_held(self, reason: Reason) -> None:
        self._breaker_open = self._breaker_open or reason.code is ReasonCode.CIRCUIT_OPEN
        log.warning("nothing is evicted now: %s; %s", reason.message, reason.remedy)

    def on_notice(self, finding: Finding) -> None:
        log.warning("%s: %s; %s", finding.object, finding.message, finding.remedy)

    def on_steering(self, report: SteeringReport) -> None:
        if report.steering.held_back:
            log.warning("scale-ins are not steered: %s", report.steering.held_back)
        if report.steering.unknown != self._unknown:
            self._unknown = report.steering.unknown
            if self._unknown:
                log.warning("%d owners are left as they are: %s", self._unknown, NAMESPACES_HIDDEN)
        if report.steering.kept != self._kept:
            self._kept = report.steering.kept
            for by, owners in self._kept.items():
                log.warning(
                    "%d owners are left alone: the rebalancer with the brake %s steers them", owners, by
                )
        for owner in set(report.disputed) - set(self._disputed):
            log.warning("%s is left alone for some minutes: somebody changes its deletion costs back", owner)
        self._disputed = report.disputed
        for o in report.outcomes:
            level = logging.WARNING if o.result is CostResult.FAILED else logging.DEBUG
            log.log(
                level,
                "deletion cost %d of %s: %s %s",
                o.change.cost,
                o.change.pod.key,
                o.result.value,
                o.message,
                extra=fields(namespace=o.change.pod.namespace, pod=o.change.pod.name, result=o.result.value),
            )
        log.info(
            "scale-in: %d deletion costs written, %d would be, %d left to others, %d wait",
            report.count(CostResult.WRITTEN),
            report.count(CostResult.RECORDED),
            report.steering.foreign,
            report.waiting,
        )

    def on_reload(self, problem: str) -> None:
        if problem:
            log.error("the changed settings are refused, the old ones stay: %s", problem)
        else:
            log.info("the changed settings are in force")

    def on_comparison(self, comparison: Comparison) -> None:
        c = comparison
        if c.result not in (Result.DISAGREES, Result.OTHER_REASONS):
            return
        now = self._monotonic()
        if now - self._disagreed_since > _WHILE:
            self._disagreed_since, self._disagreements = now, 0
        self._disagreements += 1
        if self._disagreements > _MOST_DISAGREEMENTS:
            return
        last = "; no more of these for some time" if self._disagreements == _MOST_DISAGREEMENTS else ""
        unsure = "" if c.certain else " (the engine was not certain)"
        branch = f" [{'; '.join(c.branches)}]" if c.branches else ""
        log.warning(
            "the engine and the scheduler differ about %s/%s: %s%s%s%s",
            c.namespace,
            c.pod,
            c.message,
            branch,
            unsure,
            last,
            extra=fields(
                namespace=c.namespace,
                pod=c.pod,
                node=c.node,
                result=c.result.value,
                nodes=", ".join(c.nodes),
                plugins=", ".join(c.plugins),
                branches="; ".join(c.branches),
            ),
        )

    def on_breaker(self, open_: bool, why: str) -> None:
        if open_:
            log.error("%s", why)
        elif self._breaker_open:
            log.info("the circuit breaker is closed again")
        self._breaker_open = open_

    def on_leading(self, leading: bool) -> None:
        log.info("this instance leads" if leading else "this instance does not lead")


# Kubernetes Events on evicted pods and their owners, for `kubectl describe`.

EventSetting = Literal["all", "evictions", "none"]
EVICTED = "EvictedForSpread"
PROPOSED = "EvictionsProposed"
ELSEWHERE = "ReplacementAstray"
FAILED = "RebalancingFailed"
_ACTION = "Evict"


class EventObserver(Observer):
    """Writes what was evicted. With `failures` also what did not go as planned, on the owner."""

    def __init__(self, recorder: EventRecorder, *, failures: bool) -> None:
        self._recorder = recorder
        self._failures = failures

    def on_proposal(self, proposal: Proposal) -> None:
        self._recorder.record(
            Regarding("ConfigMap", proposal.namespace, proposal.name),
            reason=PROPOSED,
            action="Approve",
            note=f"{proposal.evictions} evictions wait for approval: {proposal.command}",
        )

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        if not eviction.evicted or eviction.released:
            return
        to = ", ".join(move.destinations[:3])
        more = f" or {len(move.destinations) - 3} more" if len(move.destinations) > 3 else ""
        likely = "" if move.certain else " (likely)"
        note = f"from {move.pod.node_name} to {to}{more}{likely}: {move.reason}"
        pod, owner = _pod(move), _owner(move)
        self._recorder.record(pod, reason=EVICTED, action=_ACTION, note=f"evicted {note}", related=owner)
        self._recorder.record(
            owner, reason=EVICTED, action=_ACTION, note=f"evicted pod {move.pod.name} {note}", related=pod
        )

    def on_outcome(self, outcome: Outcome) -> None:
        """A replacement that went elsewhere or failed, an eviction that was refused."""
        if not self._failures:
            return
        failed = outcome.status is Fate.FAILED
        if failed or outcome.expected is False:
            self._recorder.record(
                _owner(outcome.move),
                reason=FAILED if failed else ELSEWHERE,
                action=_ACTION,
                note=outcome.message,
                kind="Warning",
                related=_pod(outcome.move),
            )


def _pod(move: Move) -> Regarding:
    return Regarding("Pod", move.pod.namespace, move.pod.name, move.pod.uid)


def _owner(move: Move) -> Regarding:
    meta = move.owner.metadata
    return Regarding(move.owner.kind, meta.namespace, meta.name, meta.uid)
