"""A cycle as a trace: cycle → snapshot, constraints, plan, waves → evictions → replacements.

Spans of snapshot and plan are made once it is known that there is something to see: a cycle that finds
nothing is one span. A trace tells why a pod moved (the eviction's attributes), and why another did not: the
plan has an event for each reason, with pods. There is no span for a pod that is not evicted.
"""

from __future__ import annotations

import threading
import time
from contextvars import Token

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer

from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.budgets import Budgets
from rebalancer.telemetry import labels, names
from rebalancer.telemetry.labels import Attributes
from rebalancer.telemetry.names import own
from rebalancer.telemetry.seen import Eviction, Outcome, Report

_MOST_CONSTRAINTS = 50
_MOST_COMPONENTS = 100
"""Violated constraints and components shown of one plan, worst first; a span keeps 128 events."""
_NS = 1_000_000_000


class CycleSpans:
    """Listens to one loop, in its thread. What the last call was about is the current span, for logs."""

    _cycle: Span | None
    _wave: Span | None
    _move: Span | None
    _reading: int | None
    _read: tuple[int, int] | None
    _snapshot: Snapshot | None
    _plan: Plan | None
    _budgets: Budgets | None
    _flights: dict[str, tuple[Span, int]]
    _moving: str
    _began: int

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._token: Token[Context] | None = None
        self._thread = 0
        self._reset()

    def on_cycle(self, number: int) -> None:
        """The root."""
        self.abandon()
        self._cycle = self._tracer.start_span(
            names.CYCLE, context=Context(), attributes={own("cycle"): number}
        )
        self._enter(self._cycle)

    def on_reading(self) -> None:
        """Remembers the time."""
        self._reading = time.time_ns()
        self._enter(self._cycle)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Remembers the time."""
        self._read = (self._reading or time.time_ns(), time.time_ns())
        self._reading = None
        self._snapshot = snapshot

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Everything that led to the plan, unless there is nothing to see."""
        first, self._plan, self._budgets = self._plan is None, plan, Budgets(snapshot)
        if self._cycle is None or self._read is None:
            return
        if first and not plan.moves and not plan.violated:
            self._cycle.set_attributes(labels.of_snapshot(snapshot) | labels.of_constraints(plan))
            return
        self._snapshot_spans(snapshot)
        start, end = self._read[1], time.time_ns()
        # Planning is pure: it tells no times. So what follows from the snapshot is a point in time.
        found = self._child(self._cycle, names.CONSTRAINTS, labels.of_constraints(plan), start)
        worst = sorted((c for c in plan.constraints if c.in_scope and c.excess), key=lambda c: -c.excess)
        for result in worst[:_MOST_CONSTRAINTS]:
            found.add_event("violated", labels.of_constraint(result), start)
        found.end(start)
        planned = self._child(self._cycle, names.PLAN, labels.of_plan(plan), start)
        for c in sorted(plan.components, key=lambda c: (-c.residual, -c.moves))[:_MOST_COMPONENTS]:
            self._child(planned, names.COMPONENT, labels.of_component(c, plan), start).end(start)
        for attributes in labels.of_blocked(plan.blocked):
            planned.add_event("blocked", attributes, end)
        for finding in plan.findings[: labels.NAMED]:
            planned.add_event("finding", labels.of_finding(finding), end)
        planned.end(end)

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """An event of the cycle."""
        if self._cycle is not None:
            self._cycle.add_event(
                "rejected",
                {
                    names.NAMESPACE: namespace,
                    names.POD: pod,
                    own("reason"): reason.code.value,
                    own("message"): reason.message,
                },
            )

    def on_held(self, reason: Reason) -> None:
        """An event of the cycle: no eviction at present."""
        if self._cycle is not None:
            self._cycle.add_event("held", {own("reason"): reason.code.value, own("message"): reason.message})

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """Opens it."""
        self._end_wave()
        if self._cycle is not None:
            self._wave = self._child(
                self._cycle, names.WAVE, {own("wave"): wave, own("evictions"): len(moves)}
            )
            self._enter(self._wave)

    def on_move(self, move: Move) -> None:
        """Opens the eviction's span; the look before it is part of it."""
        self._end_move()
        self._move = self._child(self._wave, names.EVICTION, self._of_move(move), kind=SpanKind.CLIENT)
        self._moving = move.pod.uid
        self._began = time.time_ns()
        self._enter(self._move)

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """Closes it; the replacement follows under it."""
        if self._move is None or self._moving != move.pod.uid:
            self.on_move(move)
        span = self._move
        assert span is not None
        span.set_attributes(labels.of_eviction(eviction))
        for n, failed in enumerate(eviction.failed, 1):
            at = self._began + int(failed.seconds * _NS)
            attributes: Attributes = {names.ERROR_TYPE: failed.error, own("message"): failed.message}
            if failed.status:
                attributes[names.STATUS_CODE] = failed.status
            span.add_event("retry" if n < eviction.posts else "failed", attributes, min(at, time.time_ns()))
        if eviction.evicted:
            self._flights[move.pod.uid] = (span, time.time_ns())
        elif eviction.result != "would-evict":
            if eviction.error is not None:
                span.record_exception(eviction.error)
            span.set_status(StatusCode.ERROR, eviction.message)
        self._move = None
        span.end()

    def on_outcome(self, outcome: Outcome) -> None:
        """The replacement's span, or the end of a move that was skipped."""
        flight = self._flights.pop(outcome.move.pod.uid, None)
        if flight is not None:
            evicted, at = flight
            span = self._child(evicted, names.REPLACEMENT, labels.of_replacement(outcome), at)
            if outcome.scheduled is not None:
                span.add_event("scheduled", {names.NODE: outcome.node}, at + int(outcome.scheduled * _NS))
            if outcome.status == "failed":
                span.set_status(StatusCode.ERROR, outcome.message)
            span.end()
            self._enter(span)
        elif self._move is not None and self._moving == outcome.move.pod.uid:
            self._move.set_attributes({own("result"): str(outcome.status), own("message"): outcome.message})
            if outcome.reason is not None:
                self._move.set_attribute(own("skipped"), outcome.reason.code.value)
            if outcome.status == "failed":
                self._move.set_status(StatusCode.ERROR, outcome.message)
            self._end_move()

    def on_wave_end(self, wave: int) -> None:  # noqa: ARG002
        """Closes it."""
        self._end_wave()

    def on_report(self, report: Report) -> None:
        """Closes the cycle."""
        cycle = self._cycle
        if cycle is None:
            return
        self._unread(report.message)
        cycle.set_attributes(labels.of_report(report))
        if not report.ok:
            cycle.set_status(StatusCode.ERROR, report.message)
        self._end_cycle()

    def on_error(self, error: Exception) -> None:
        """Closes the cycle with the error."""
        cycle = self._cycle
        if cycle is None:
            return
        self._unread(str(error), error)
        cycle.record_exception(error)
        cycle.set_attribute(names.ERROR_TYPE, type(error).__name__)
        cycle.set_status(StatusCode.ERROR, str(error))
        self._end_cycle()

    def abandon(self) -> None:
        """Closes what is open, as nobody said how the cycle ended; no span is current then."""
        if self._cycle is not None:
            self._cycle.set_status(StatusCode.ERROR, "ended without a report")
            self._end_cycle()
        self._enter(None)

    # -- spans

    def _child(
        self,
        parent: Span | None,
        name: str,
        attributes: Attributes,
        start: int | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        above = trace.set_span_in_context(parent or self._cycle or trace.INVALID_SPAN, Context())
        return self._tracer.start_span(
            name, context=above, kind=kind, attributes=attributes, start_time=start
        )

    def _snapshot_spans(self, snapshot: Snapshot) -> None:
        assert self._read is not None
        start, end = self._read
        span = self._child(self._cycle, names.SNAPSHOT, labels.of_snapshot(snapshot), start)
        for read in snapshot.reads:
            began = start + int(read.started * _NS)
            how, kind = (
                (names.LIST, SpanKind.CLIENT) if read.age is None else (names.CACHE, SpanKind.INTERNAL)
            )
            listed = self._child(span, f"{how} {read.kind}", labels.of_kind(read), began, kind)
            listed.end(min(began + int(read.seconds * _NS), end))
        span.end(end)

    def _unread(self, message: str, error: Exception | None = None) -> None:
        """The snapshot that did not come about."""
        if self._reading is None:
            return
        span = self._child(self._cycle, names.SNAPSHOT, {}, self._reading)
        if error is not None:
            span.record_exception(error)
        span.set_status(StatusCode.ERROR, message)
        span.end()

    def _of_move(self, move: Move) -> Attributes:
        if self._snapshot is None or self._plan is None or self._budgets is None:
            return {names.NAMESPACE: move.pod.namespace, names.POD: move.pod.name}
        return labels.of_move(move, self._snapshot, self._plan, self._budgets)

    def _end_move(self) -> None:
        if self._move is not None:
            self._move.end()
        self._move = None

    def _end_wave(self) -> None:
        self._end_move()
        if self._wave is not None:
            self._wave.end()
        self._wave = None
        self._flights.clear()
        self._enter(self._cycle)

    def _end_cycle(self) -> None:
        self._end_wave()
        if self._cycle is not None:
            self._cycle.end()
        # The ended span stays current: what is logged about the end belongs to the cycle.
        token, thread = self._token, self._thread
        self._reset()
        self._token, self._thread = token, thread

    def _reset(self) -> None:
        self._cycle = None
        self._wave = None
        self._move = None
        self._moving = ""
        self._began = 0
        self._reading = None
        self._read = None
        self._snapshot = None
        self._plan = None
        self._budgets = None
        self._flights = {}

    def _enter(self, span: Span | None) -> None:
        """Makes the span the thread's current one."""
        if self._token is not None and self._thread == threading.get_ident():
            contexts.detach(self._token)
        self._token, self._thread = None, threading.get_ident()
        if span is not None:
            self._token = contexts.attach(trace.set_span_in_context(span))
