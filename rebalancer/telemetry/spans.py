"""A cycle as a trace: cycle → snapshot, constraints, plan, waves → evictions → replacements.

Spans of snapshot and plan are made once it is known that there is something to see: a cycle that finds
nothing is one span. A trace tells why a pod moved (the eviction's attributes), and why another did not: the
plan has an event for each reason, with pods. There is no span for a pod that is not evicted.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, Eviction, Fate, Observer, Outcome, Result
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.budgets import Budgets
from rebalancer.telemetry import span_attributes
from rebalancer.telemetry.span_attributes import Attributes, own

_MOST_CONSTRAINTS = 50
_MOST_COMPONENTS = 100
"""Violated constraints and components shown of one plan, worst first; a span keeps 128 events."""
_NS = 1_000_000_000


class CycleSpans(Observer):
    """Makes spans of what one cycle's thread tells. The last span is current, so that logs refer to it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._token: Token[Context] | None = None
        self._thread = 0
        self._reset()

    def _reset(self) -> None:
        self._cycle: Span | None = None
        self._waves: dict[int, Span] = {}
        self._move: Span | None = None
        self._moving, self._began = "", 0
        self._reading: int | None = None
        self._read: tuple[int, int] | None = None
        self._snapshot: Snapshot | None = None
        self._plan: Plan | None = None
        self._budgets: Budgets | None = None
        self._flights: dict[str, tuple[Span, int]] = {}

    def on_cycle(self, number: int) -> None:
        self.abandon()
        self._cycle = self._tracer.start_span(
            span_attributes.CYCLE, context=Context(), attributes={own("cycle"): number}
        )
        self._enter(self._cycle)

    def on_reading(self) -> None:
        self._reading = time.time_ns()
        self._enter(self._cycle)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self._read = (self._reading or time.time_ns(), time.time_ns())
        self._reading = None
        self._snapshot = snapshot

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Spans of snapshot and plan, unless there is nothing to see."""
        first, self._plan, self._budgets = self._plan is None, plan, Budgets(snapshot)
        if self._cycle is None or self._read is None:
            return
        if first and not plan.moves and not plan.violated:
            self._cycle.set_attributes(
                span_attributes.of_snapshot(snapshot) | span_attributes.of_constraints(plan)
            )
            return
        self._snapshot_spans(snapshot)
        start, end = self._read[1], time.time_ns()
        # Planning is pure: it tells no times. So what follows from the snapshot is a point in time.
        found = self._child(
            self._cycle, span_attributes.CONSTRAINTS, span_attributes.of_constraints(plan), start
        )
        worst = sorted((c for c in plan.constraints if c.in_scope and c.excess), key=lambda c: -c.excess)
        for result in worst[:_MOST_CONSTRAINTS]:
            found.add_event("violated", span_attributes.of_constraint(result), start)
        found.end(start)
        planned = self._child(self._cycle, span_attributes.PLAN, span_attributes.of_plan(plan), start)
        for c in sorted(plan.components, key=lambda c: (-c.residual, -c.moves))[:_MOST_COMPONENTS]:
            self._child(planned, span_attributes.COMPONENT, span_attributes.of_component(c, plan), start).end(
                start
            )
        for blocked in span_attributes.of_blocked(plan.blocked):
            planned.add_event("blocked", blocked, end)
        for finding in plan.findings[: span_attributes.NAMED]:
            planned.add_event("finding", span_attributes.of_finding(finding), end)
        planned.end(end)

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        if self._cycle is not None:
            self._cycle.add_event(
                "rejected",
                {
                    span_attributes.NAMESPACE: namespace,
                    span_attributes.POD: pod,
                    own("reason"): reason.code.value,
                    own("message"): reason.message,
                },
            )

    def on_held(self, reason: Reason) -> None:
        if self._cycle is not None:
            self._cycle.add_event("held", {own("reason"): reason.code.value, own("message"): reason.message})

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        self._end_move()
        if self._cycle is not None:
            told: Attributes = {own("wave"): wave, own("evictions"): len(moves)}
            self._waves[wave] = self._child(self._cycle, span_attributes.WAVE, told)
            self._enter(self._waves[wave])

    def on_move(self, move: Move) -> None:
        """Opens the eviction's span. The last look is part of it."""
        self._end_move()
        wave = self._waves.get(move.wave)
        self._move = self._child(wave, span_attributes.EVICTION, self._of_move(move), kind=SpanKind.CLIENT)
        self._moving = move.pod.uid
        self._began = time.time_ns()
        self._enter(self._move)

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        if self._move is None or self._moving != move.pod.uid:
            self.on_move(move)
        span = self._move
        assert span is not None
        span.set_attributes(span_attributes.of_eviction(eviction))
        for n, failed in enumerate(eviction.failed, 1):
            at = self._began + int(failed.seconds * _NS)
            told: Attributes = {span_attributes.ERROR_TYPE: failed.error, own("message"): failed.message}
            if failed.status:
                told[span_attributes.STATUS_CODE] = failed.status
            span.add_event("retry" if n < eviction.posts else "failed", told, min(at, time.time_ns()))
        if eviction.evicted:
            self._flights[move.pod.uid] = (span, time.time_ns())
        elif eviction.result is not Result.WOULD_EVICT:
            if eviction.error is not None:
                span.record_exception(eviction.error)
            span.set_status(StatusCode.ERROR, eviction.message)
        self._move = None
        span.end()

    def on_outcome(self, outcome: Outcome) -> None:
        """The replacement's span, or the end of a skipped move."""
        flight = self._flights.pop(outcome.move.pod.uid, None)
        if flight is not None:
            evicted, at = flight
            span = self._child(
                evicted, span_attributes.REPLACEMENT, span_attributes.of_replacement(outcome), at
            )
            if outcome.scheduled is not None:
                span.add_event(
                    "scheduled", {span_attributes.NODE: outcome.node}, at + int(outcome.scheduled * _NS)
                )
            if outcome.status is Fate.FAILED:
                span.set_status(StatusCode.ERROR, outcome.message)
            span.end()
            self._enter(span)
        elif self._move is not None and self._moving == outcome.move.pod.uid:
            self._move.set_attributes({own("result"): outcome.status.value, own("message"): outcome.message})
            if outcome.reason is not None:
                self._move.set_attribute(own("skipped"), outcome.reason.code.value)
            if outcome.status is Fate.FAILED:
                self._move.set_status(StatusCode.ERROR, outcome.message)
            self._end_move()

    def on_wave_end(self, wave: int) -> None:
        self._end_move()
        if (span := self._waves.pop(wave, None)) is not None:
            span.end()
        self._enter(self._cycle)

    def on_report(self, report: CycleReport) -> None:
        cycle = self._cycle
        if cycle is None:
            return
        self._unread(report.message)
        cycle.set_attributes(span_attributes.of_report(report))
        if not report.ok:
            cycle.set_status(StatusCode.ERROR, report.message)
        self._end_cycle()

    def on_error(self, error: Exception) -> None:
        cycle = self._cycle
        if cycle is None:
            return
        self._unread(str(error), error)
        cycle.record_exception(error)
        cycle.set_attribute(span_attributes.ERROR_TYPE, type(error).__name__)
        cycle.set_status(StatusCode.ERROR, str(error))
        self._end_cycle()

    def abandon(self) -> None:
        """Closes open spans when nobody told how the cycle ended. Afterwards no span is current."""
        if self._cycle is not None:
            self._cycle.set_status(StatusCode.ERROR, "ended without a report")
            self._end_cycle()
        self._enter(None)

    # -- spans

    def _child(
        self,
        parent: Span | None,
        name: str,
        values: Attributes,
        start: int | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        above = trace.set_span_in_context(parent or self._cycle or trace.INVALID_SPAN, Context())
        return self._tracer.start_span(name, context=above, kind=kind, attributes=values, start_time=start)

    def _snapshot_spans(self, snapshot: Snapshot) -> None:
        assert self._read is not None
        start, end = self._read
        span = self._child(
            self._cycle, span_attributes.SNAPSHOT, span_attributes.of_snapshot(snapshot), start
        )
        for read in snapshot.reads:
            began = start + int(read.started * _NS)
            how, kind = (
                (span_attributes.LIST, SpanKind.CLIENT)
                if read.age is None
                else (span_attributes.CACHE, SpanKind.INTERNAL)
            )
            listed = self._child(span, f"{how} {read.kind}", span_attributes.of_kind(read), began, kind)
            listed.end(min(began + int(read.seconds * _NS), end))
        span.end(end)

    def _unread(self, message: str, error: Exception | None = None) -> None:
        """The span of a snapshot that could not be read."""
        if self._reading is None:
            return
        span = self._child(self._cycle, span_attributes.SNAPSHOT, {}, self._reading)
        if error is not None:
            span.record_exception(error)
        span.set_status(StatusCode.ERROR, message)
        span.end()

    def _of_move(self, move: Move) -> Attributes:
        if self._snapshot is None or self._plan is None or self._budgets is None:
            return {span_attributes.NAMESPACE: move.pod.namespace, span_attributes.POD: move.pod.name}
        return span_attributes.of_move(move, self._snapshot, self._plan, self._budgets)

    def _end_move(self) -> None:
        if self._move is not None:
            self._move.end()
        self._move = None

    def _end_cycle(self) -> None:
        for wave in list(self._waves):
            self.on_wave_end(wave)
        self._end_move()
        self._enter(self._cycle)
        if self._cycle is not None:
            self._cycle.end()
        # The ended span stays current: what is logged about the end belongs to the cycle.
        token, thread = self._token, self._thread
        self._reset()
        self._token, self._thread = token, thread

    def _enter(self, span: Span | None) -> None:
        """Makes the span the thread's current one."""
        if self._token is not None and self._thread == threading.get_ident():
            contexts.detach(self._token)
        self._token, self._thread = None, threading.get_ident()
        if span is not None:
            self._token = contexts.attach(trace.set_span_in_context(span))


# Which cycles are traced.


class ShareSampler(Sampler):
    """Samples a share of all traces by their ids. The share may change while the process runs; a trace keeps
    the decision that it began with."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio

    def should_sample(
        self, parent_context: Context | None, trace_id: int, name: str, *more: Any, **named: Any
    ) -> SamplingResult:
        return TraceIdRatioBased(self.ratio).should_sample(parent_context, trace_id, name, *more, **named)

    def get_description(self) -> str:
        return f"ShareSampler{{{self.ratio}}}"


# A trace as a tree in the terminal, for people without a backend.

_HEAD = {
    span_attributes.CYCLE: (own("cycle"),),
    span_attributes.WAVE: (own("wave"),),
    span_attributes.EVICTION: (span_attributes.NAMESPACE, span_attributes.POD),
    span_attributes.REPLACEMENT: (span_attributes.NAMESPACE, span_attributes.POD),
}
"""What stands right behind a span's name."""
_TOLD = (
    "code",
    "seconds",
    "known",
    "kind",
    "message",
    "reason",
    "owner",
    "status",
    "read_back",
    "assumptions",
)
_HIDDEN = {span_attributes.POD_UID, *span_attributes.OWNERS.values(), *map(own, _TOLD)}
"""What the tree shows otherwise, or what only a machine needs: a backend has it all."""
_SHOWN_IN = {
    "blocked": own("reason"),
    "rejected": own("reason"),
    "held": own("reason"),
    "finding": own("code"),
    "violated": own("status"),
}
"""Events where a hidden attribute is what matters."""
_WIDTH = 132
_MOST_LISTED = 20
"""Values of one list that are shown."""


class TreePrinter(SpanProcessor):
    """Collects the spans of each trace and prints them when its root ends."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _console()
        self._lock = threading.Lock()
        self._spans: dict[int, list[ReadableSpan]] = defaultdict(list)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None:
            return
        with self._lock:
            spans = self._spans[span.context.trace_id]
            spans.append(span)
            if span.parent is not None:
                return
            del self._spans[span.context.trace_id]
        self._console.print(tree(spans))


def _console() -> Console:
    """Writes to standard error. A pipe has no width, so it gets a wide one."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def tree(spans: Sequence[ReadableSpan]) -> Tree:
    """The spans of one trace below its root, each with its duration, attributes and events."""
    below: dict[int, list[ReadableSpan]] = defaultdict(list)
    roots = []
    for span in spans:
        if span.parent is None:
            roots.append(span)
        else:
            below[span.parent.span_id].append(span)
    (root,) = roots
    zero = root.start_time or 0

    def grow(span: ReadableSpan, branch: Tree) -> None:
        assert span.context is not None
        items: list[tuple[int, int, Callable[[], None]]] = []
        for n, event in enumerate(span.events):
            items.append((event.timestamp, n, lambda e=event: _leaf(branch, e)))  # type: ignore[misc]
        children, empty = below[span.context.span_id], 0
        if span.name == span_attributes.SNAPSHOT:
            children = [c for c in children if _matters(c)]
            empty = len(below[span.context.span_id]) - len(children)
        for n, child in enumerate(children):
            at = child.start_time or 0
            items.append((at, n, lambda c=child: grow(c, branch.add(_head(c, zero)))))  # type: ignore[misc]
        for _, _, add in sorted(items, key=lambda i: i[:2]):
            add()
        if empty:
            branch.add(Text(f"… {empty} more kinds, of which there are no objects", "dim"))

    top = Tree(_head(root, zero), guide_style="dim")
    grow(root, top)
    return top


def _head(span: ReadableSpan, zero: int) -> Text:
    start, end = span.start_time or 0, span.end_time or 0
    failed = span.status.status_code is StatusCode.ERROR
    attributes = dict(span.attributes or {})
    head = "/".join(_clean(str(attributes.pop(key, ""))) for key in _HEAD.get(span.name, ()))
    text = Text(f"{span.name} {head}".strip(), "bold red" if failed else "bold")
    text.append(f"  +{(start - zero) / _NS:.3f} s", "dim")
    if end > start:
        text.append(f"  {_seconds((end - start) / _NS)}", "cyan")
    if failed and span.status.description:
        text.append(f"  {_clean(span.status.description)}", "red")
    text.append_text(_values(attributes))
    if span.parent is None and span.context is not None:
        text.append(f"\ntrace {span.context.trace_id:032x}", "dim")
    return text


def _matters(listed: ReadableSpan) -> bool:
    """Whether the list of a kind found something or went wrong."""
    attributes = listed.attributes or {}
    return bool(attributes.get(own("objects")) or not attributes.get(own("known")))


def _leaf(branch: Tree, event: Event) -> None:
    text = Text("· ", "dim")
    text.append(event.name, "yellow")
    attributes = dict(event.attributes or {})
    if (key := _SHOWN_IN.get(event.name)) is not None:
        text.append(f" {_clean(str(attributes.get(key, '')))}", "bold")
    text.append_text(_values(attributes))
    branch.add(text)


def _values(attributes: Mapping[str, Any]) -> Text:
    """Short values behind the name, long ones and lists on lines of their own."""
    text = Text()
    long: list[tuple[str, str]] = []
    for key, value in attributes.items():
        if key in _HIDDEN or value in ("", ()) or key == "exception.stacktrace":
            continue
        key = key.removeprefix("rebalancer.").removeprefix("k8s.").removesuffix(".name")
        if isinstance(value, tuple):
            shown = [_clean(str(v)) for v in value[:_MOST_LISTED]]
            if len(shown) == 1 and len(shown[0]) < 40:
                text.append(f"  {key}=", "dim").append(shown[0])
            else:
                long += [(key, v) for v in shown]
        elif len(shown_ := _clean(_scalar(value))) > 40:
            long.append((key, shown_))
        else:
            text.append(f"  {key}=", "dim").append(shown_)
    for key, line in long:
        text.append(f"\n  {key}: ", "dim").append(line)
    return text


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _clean(text: str) -> str:
    """Names come from a cluster: nothing in them may control the terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
