"""Prints a cycle as it happens, in plain lines on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import typer

from rebalancer.model.node import HOSTNAME
from rebalancer.model.reason import Finding, Reason, ReasonCode, clean, plural
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, End, Eviction, Fate, Observer, Outcome, SteeringReport
from rebalancer.planner.plan import ConstraintResult, Move, Plan
from rebalancer.report.output import render_lines
from rebalancer.report.text import WHOLE, Names, said_move, short_names
from rebalancer.report.words import later, steering_lines


def say(line: str, short: Names = WHOLE, *, err: bool = False) -> None:
    """Prints a line: on a terminal as wide as that, with short names of nodes; elsewhere whole, as in a log.
    Control characters in names are made visible."""
    stream = sys.stderr if err else sys.stdout
    shown = render_lines([short.within(line)], stream) if stream.isatty() else f"{clean(line)}\n"
    with suppress(BrokenPipeError):  # nobody reads on; what was begun goes on
        typer.echo(shown, nl=False, err=err)


class Lines(Observer):
    """Prints what happens. `expected`: constraints as a plan that somebody looked at leaves them."""

    def __init__(self, expected: Sequence[ConstraintResult] = ()) -> None:
        self._expected = expected
        self._snapshot: Snapshot | None = None
        self._short = WHOLE

    def _say(self, line: str) -> None:
        say(line, self._short)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Prints what could not be read."""
        if self._snapshot is None:
            for warning in snapshot.warnings:
                say(f"warning: {warning}", err=True)
            self._short = short_names({HOSTNAME: {n.name for n in snapshot.nodes}})
            if self._short.note and sys.stdout.isatty():
                self._say(self._short.note)
        self._snapshot = snapshot

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """Prints the plan in one line."""
        if not plan.moves:
            return
        moves = f"{plural(len(plan.moves), 'eviction')} in {plural(len(plan.waves), 'wave')}"
        broken = f"{plural(plan.violated, 'constraint')} violated, excess {plan.excess}"
        leave = "leaves" if len(plan.moves) == 1 else "leave"
        self._say(f"plan: {broken}; {moves} {leave} {plan.residual_excess}")
        for said in later(plan.moves):
            self._say(f"  {said}")

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """Prints an eviction that was reviewed beforehand and is not carried out."""
        self._say(f"  not evicted: {namespace}/{pod}: {reason.message} ({reason.code.value})")

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """Prints an eviction that was accepted, and before it a release. The others are printed with their
        outcome."""
        if eviction.evicted:
            self._say(f"  {'released' if eviction.released else 'evicted'}: {said_move(move)}")

    def on_outcome(self, outcome: Outcome) -> None:
        """Prints how a move ended."""
        if outcome.status is Fate.RECORDED:
            said = outcome.message.removeprefix(outcome.move.pod.key).strip()
            self._say(f"  {said}: {said_move(outcome.move)}")
        else:
            self._say(f"  {outcome.status.value}: {outcome.message}")

    def on_notice(self, finding: Finding) -> None:
        """Prints what else moves pods in this cluster."""
        say(f"note: {finding.object}: {finding.message}; {finding.remedy}", err=True)

    def on_steering(self, report: SteeringReport) -> None:
        """Prints deletion costs, and why there are none."""
        for line in steering_lines(report):
            self._say(line)

    def on_report(self, report: CycleReport) -> None:
        """Prints the result, and what stays. A dry run ends with what its caller says."""
        if report.end is not End.RECORDED:
            self._say(f"{report.end.value}: {report.says}")
        if report.evicted or report.end is End.STOPPED:
            evicted = plural(report.evicted, "pod")
            self._say(f"evicted {evicted}, {report.failed} failed, in {report.seconds:.0f} s")
        if report.last is None or report.last.moves:
            return
        left = [c for c in report.last.constraints if c.in_scope and c.residual_excess]
        # That a pod is not in a reviewed plan says nothing of why its constraint stays as it is.
        if any(r.code is ReasonCode.NOT_IN_PLAN for c in left for r in c.reasons):
            left = [c for c in self._expected if c.in_scope and c.residual_excess]
        if sum(c.residual_excess for c in left) != report.last.residual_excess:
            self._say(f"  stays: an excess of {report.last.residual_excess}; `rebalancer report` says why")
            return
        for c in left:
            why = "; ".join(r.message for r in c.reasons) or "no reason is known"
            name = f"{c.constraint.namespace} {', '.join(c.workloads)} over {c.constraint.topology_key}"
            self._say(f"  stays: {name}: excess {c.residual_excess}: {why}")
