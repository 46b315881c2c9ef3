"""A cycle as counters and histograms; labels are few and bounded, never a pod's name."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.errors import UserError
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CostResult, CycleReport, End, Eviction, Fate, Observer, Outcome, SteeringReport
from rebalancer.output_file import output_file
from rebalancer.planner.plan import Move, Plan
from rebalancer.telemetry.gauges import State, register

CYCLE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
PHASE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
READY_SECONDS = (1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 300, 600)
"""Bounds of the buckets, seconds: from a small cluster's quick cycle to a large one with many waves."""

_RESULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("evicted", "would-evict", "migrating", "throttled", "refused"), ("",)),
    **dict.fromkeys(("released", "held", "failed", "unknown", "webhook-unreachable"), ("",)),
    "forbidden": ("may-not-evict",),
    "already-gone": ("changed-since-plan",),
    "already-terminating": ("terminating",),
    "budget-exhausted": ("pdb-exhausted",),
    "budget-stale": ("pdb-stale",),
    "several-budgets": ("multiple-pdbs",),
    "skipped": (
        *("changed-since-plan", "nodes-changed", "terminating", "not-running", "would-worsen"),
        *("owner-scaling", "owner-terminating", "rollout-in-progress", "replacement-not-ready"),
        *("cap-reached", "paused-by-annotation"),
    ),
}
"""What may come of an eviction that was due, and the reasons that usually go with it."""
_HELD = (
    *("maintenance-window", "paused-by-annotation", "circuit-breaker", "not-leading", "cycle-time"),
    *("no-brake", "stabilizing", "cluster-unwell", "scheduler-silent"),
)
_PREDICTIONS = ("hit", "alternative", "miss")


def _each(label: str, values: Iterable[str]) -> list[dict[str, str]]:
    return [{label: str(value)} for value in values]


_COUNTERS: dict[str, tuple[str, str, Sequence[dict[str, str]]]] = {
    "cycles": ("Cycles by how they ended.", "", _each("end", (*End, "error"))),
    "evictions": (
        "Evictions that were due, by result and reason.",
        "",
        [{"result": result, "reason": r} for result, reasons in _RESULTS.items() for r in reasons],
    ),
    "eviction.retries": ("Requests of evictions that had to be sent again.", "", [{}]),
    "excess_removed_pods": ("Excess that was gone in the plan after evictions.", "", [{}]),
    "measured_evictions": ("Evictions whose effect on the excess a later plan has shown.", "", [{}]),
    "predictions": (
        "Replacements on the predicted node (hit), on another planned one, elsewhere.",
        "",
        _each("prediction", _PREDICTIONS),
    ),
    "replacements_failed": ("Replacements that did not become Ready in time.", "", [{}]),
    "engine_comparisons": (
        "Decisions of the scheduler compared with the engine's answers, by result.",
        "",
        [{"result": r.value, "certain": certain} for r in Result for certain in ("true", "false")],
    ),
    "rejected": (
        "Evictions of a reviewed plan that are not carried out.",
        "",
        _each("reason", ("changed-since-plan", "not-needed", "terminating")),
    ),
    "held": (
        "Times that evictions were held back: window, pause, breaker, lease.",
        "",
        _each("reason", _HELD),
    ),
    "deletion_costs": (
        "Deletion costs that were to be changed, by what became of it.",
        "",
        _each("result", CostResult),
    ),
    "read": ("Bytes read from the API server for snapshots.", "By", ()),
    "read.retries": ("Requests for snapshots that had to be sent again.", "", [{}]),
}
"""Each counter: what it counts, its unit, and the series that are there from the start."""
_SECONDS = {
    "cycle": ("Duration of cycles.", CYCLE_SECONDS),
    "phase": ("Duration of the phases of a cycle: snapshot, plan, wave.", PHASE_SECONDS),
    "replacement.ready": ("Time from an eviction until its replacement was Ready.", READY_SECONDS),
    "replacement.scheduled": (
        "Time from an eviction until its replacement was seen on a node.",
        READY_SECONDS,
    ),
}


class CycleMetrics(Observer):
    """Counts what one cycle's thread tells. `after_cycle` is called when a cycle's figures are complete."""

    def __init__(
        self,
        meter: Meter,
        *,
        constraint_series: int = 0,
        dropped: Callable[[], Mapping[str, int]] = dict,
        after_cycle: Callable[[], None] = lambda: None,
    ) -> None:
        self.state = State(constraint_series)
        self._after_cycle = after_cycle
        register(meter, self.state)

        self._counters = {
            name: meter.create_counter(f"rebalancer.{name}", unit=unit, description=says)
            for name, (says, unit, _) in _COUNTERS.items()
        }
        self._seconds = {
            name: meter.create_histogram(
                f"rebalancer.{name}.duration",
                unit="s",
                description=says,
                explicit_bucket_boundaries_advisory=bounds,
            )
            for name, (says, bounds) in _SECONDS.items()
        }

        def drops(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(n, {"reason": reason}) for reason, n in dropped().items()]

        meter.create_observable_counter(
            "rebalancer.telemetry.dropped_spans",
            callbacks=[drops],
            description="Spans that never reached the collector.",
        )

        def notices(_: CallbackOptions) -> Iterable[Observation]:
            told = self.state.notices()
            return [Observation(n, {"receiver": to, "result": result}) for (to, result), n in told.items()]

        meter.create_observable_counter(
            "rebalancer.notices",
            callbacks=[notices],
            description="Messages to webhook and chat by what came of them.",
        )
        # A series that begins at its first event shows no increase, and alerts miss it.
        for name, (_, _, series) in _COUNTERS.items():
            for labels in series:
                self._counters[name].add(0, labels)
        self._began = self._mark = 0.0
        self._waves: dict[int, float] = {}
        self._open = False
        self._evicted = 0

    def on_cycle(self, number: int) -> None:  # noqa: ARG002
        self._began = time.monotonic()
        self._open = True

    def on_reading(self) -> None:
        self._mark = time.monotonic()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self._phase("snapshot")
        self.state.snapshot = snapshot
        for read in snapshot.reads:
            self._counters["read"].add(read.bytes, {"kind": read.kind})
            self._counters["read.retries"].add(read.retries)

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """Takes over the plan, and measures what the evictions before it achieved."""
        self._phase("plan")
        before, self.state.plan = self.state.plan, plan
        if self._evicted and before is not None:
            removed = max(0, before.excess - plan.excess)
            self._counters["excess_removed_pods"].add(removed)
            self._counters["measured_evictions"].add(self._evicted)
            self.state.bought = removed / self._evicted
        self._evicted = 0

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:  # noqa: ARG002
        self._counters["rejected"].add(1, {"reason": reason.code.value})

    def on_held(self, reason: Reason) -> None:
        """Counts by reason. That another process opened the circuit breaker is only seen here."""
        self._counters["held"].add(1, {"reason": reason.code.value})
        if reason.code is ReasonCode.CIRCUIT_OPEN:
            self.state.breaker_open = True

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:  # noqa: ARG002
        self._waves[wave] = time.monotonic()

    def on_eviction(self, move: Move, eviction: Eviction) -> None:  # noqa: ARG002
        """Counts pods that go. All other results are counted when the outcome gives the reason."""
        if eviction.posts > 1:
            self._counters["eviction.retries"].add(eviction.posts - 1)
        if eviction.evicted:
            self._evicted += not eviction.released  # its eviction follows
            self._counters["evictions"].add(
                1, {"result": "released" if eviction.released else "evicted", "reason": ""}
            )

    def on_outcome(self, outcome: Outcome) -> None:
        if not outcome.evicted:
            result = outcome.eviction.result if outcome.eviction is not None else outcome.status
            reason = outcome.reason.code.value if outcome.reason is not None else ""
            self._counters["evictions"].add(1, {"result": result.value, "reason": reason})
            return
        if (hit := outcome.prediction) in _PREDICTIONS:
            self._counters["predictions"].add(1, {"prediction": hit})
        if outcome.scheduled is not None:
            self._seconds["replacement.scheduled"].record(outcome.scheduled)
        if outcome.status is Fate.FAILED:
            self._counters["replacements_failed"].add(1)
        elif outcome.node:
            self._seconds["replacement.ready"].record(outcome.seconds)

    def on_wave_end(self, wave: int) -> None:
        """Waves overlap: each has its own beginning."""
        self._mark = self._waves.pop(wave, time.monotonic())
        self._phase("wave")

    def on_report(self, report: CycleReport) -> None:
        self._open = False
        self._counters["cycles"].add(1, {"end": report.end.value})
        self._seconds["cycle"].record(report.seconds)
        self.state.ended(report)
        self._after_cycle()

    def on_error(self, error: Exception) -> None:  # noqa: ARG002
        if not self._open:
            return
        self._open = False
        self._counters["cycles"].add(1, {"end": "error"})
        self._seconds["cycle"].record(time.monotonic() - self._began)
        self.state.ended(None)
        self._after_cycle()

    def on_leading(self, leading: bool) -> None:
        """Forgets the cluster when this process no longer leads: the leader has newer figures."""
        self.state.leading = leading
        if not leading:
            self.state.forget()

    def on_comparison(self, comparison: Comparison) -> None:
        certain = "true" if comparison.certain else "false"
        self._counters["engine_comparisons"].add(1, {"result": comparison.result.value, "certain": certain})
        self.state.compared(comparison)

    def on_steering(self, report: SteeringReport) -> None:
        self.state.foreign_costs = report.steering.foreign
        for outcome in report.outcomes:
            self._counters["deletion_costs"].add(1, {"result": outcome.result.value})

    def on_breaker(self, open_: bool, why: str) -> None:  # noqa: ARG002
        self.state.breaker_open = open_

    def _phase(self, name: str) -> None:
        now = time.monotonic()
        self._seconds["phase"].record(now - self._mark, {"phase": name})
        self._mark = now


# Metrics as text, for a scrape or as a file for the node exporter.

log = logging.getLogger(__name__)
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OPEN_METRICS = "application/openmetrics-text"


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """All metrics, and the content type: OpenMetrics, which has exemplars, for who accepts it, else
    Prometheus' own text format."""
    if _OPEN_METRICS in accept:
        body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return body, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), _CONTENT_TYPE


def write_textfile(registry: CollectorRegistry, path: Path) -> None:
    """Replaces the file in one step, so that no reader sees half of it. A failure is logged."""
    try:
        with output_file(str(path), compress=False) as out:
            # The node exporter runs as another user.
            os.fchmod(out.fileno(), 0o644)
            out.write(exposition(registry)[0])
    except UserError as e:
        log.warning("metrics are not written: %s", e)
