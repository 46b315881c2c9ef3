"""Prints a cycle as it happens, in plain lines on standard output."""

from __future__ import annotations

import typer

from rebalancer.model.reason import Finding, Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, End, Eviction, Observer, Outcome, SteeringReport
from rebalancer.planner.plan import Move, Plan
from rebalancer.report.text import clean, plural
from rebalancer.report.words import steering_lines


class Lines(Observer):
    """Prints what happens. Control characters in names are made visible."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Prints what could not be read."""
        if self._snapshot is None:
            for warning in snapshot.warnings:
                typer.echo(f"warning: {clean(warning)}", err=True)
        self._snapshot = snapshot

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """Prints the plan in one line."""
        if not plan.moves:
            return
        moves = f"{plural(len(plan.moves), 'eviction')} in {plural(len(plan.waves), 'wave')}"
        broken = f"{plural(plan.violated, 'constraint')} violated, excess {plan.excess}"
        leave = "leaves" if len(plan.moves) == 1 else "leave"
        typer.echo(f"plan: {broken}; {moves} {leave} {plan.residual_excess}")

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """Prints an eviction that was reviewed beforehand and is not carried out."""
        typer.echo(clean(f"  not evicted: {namespace}/{pod}: {reason.message} ({reason.code.value})"))

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """Prints an eviction that was accepted. The others are printed with their outcome."""
        if eviction.evicted:
            typer.echo(clean(f"  evicted: {move.pod.key} from {move.pod.node_name}: {move.reason}"))

    def on_outcome(self, outcome: Outcome) -> None:
        """Prints how a move ended."""
        typer.echo(clean(f"  {outcome.status.value}: {outcome.message}"))

    def on_notice(self, finding: Finding) -> None:
        """Prints what else moves pods in this cluster."""
        typer.echo(clean(f"note: {finding.object}: {finding.message}; {finding.remedy}"), err=True)

    def on_steering(self, report: SteeringReport) -> None:
        """Prints deletion costs, and why there are none."""
        for line in steering_lines(report):
            typer.echo(clean(line))

    def on_report(self, report: CycleReport) -> None:
        """Prints the result, and what stays."""
        typer.echo(clean(f"{report.end.value}: {report.message}"))
        if report.evicted or report.end is End.STOPPED:
            typer.echo(
                f"evicted {plural(report.evicted, 'pod')}, {report.failed} failed, in {report.seconds:.0f} s"
            )
        if report.last is None or report.last.moves:
            return
        left = [c for c in report.last.constraints if c.in_scope and c.residual_excess]
        # That a pod is not in a reviewed plan says nothing of why its constraint stays as it is.
        if any(r.code is ReasonCode.NOT_IN_PLAN for c in left for r in c.reasons):
            typer.echo(f"  stays: an excess of {report.last.residual_excess}; `rebalancer report` says why")
            return
        for c in left:
            why = "; ".join(r.message for r in c.reasons) or "no reason is known"
            name = f"{c.constraint.namespace} {', '.join(c.workloads)} over {c.constraint.topology_key}"
            typer.echo(clean(f"  stays: {name}: excess {c.residual_excess}: {why}"))
