"""Starts and ends traces and metrics of this process.

Standard `OTEL_…` variables win over the options. Without either nothing is sent; metrics can still be
scraped, and logs carry trace ids.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased

from rebalancer import __version__
from rebalancer.outcome.observer import Observer
from rebalancer.planner.results.pace import Gait
from rebalancer.telemetry.delivery import EXIT, Complaints, CountedExporter, CountedProcessor, DeliveryCounts
from rebalancer.telemetry.destinations import Destinations, resource_of, words
from rebalancer.telemetry.metrics.counters import CycleMetrics
from rebalancer.telemetry.metrics.exemplars import ExemplarReader, ExemplarRegistry
from rebalancer.telemetry.metrics.exposition import exposition, write_textfile
from rebalancer.telemetry.options import TelemetryOptions
from rebalancer.telemetry.traces.names import SCHEMA_URL
from rebalancer.telemetry.traces.sampling import ShareSampler
from rebalancer.telemetry.traces.spans import CycleSpans

log = logging.getLogger(__name__)

_SCOPE = "rebalancer"
_QUEUE = 2048


class Closed(Struct, frozen=True):
    """How telemetry ended: seconds it took, spans that were delivered, spans lost by reason."""

    seconds: float
    delivered: int
    dropped: dict[str, int]


class Telemetry:
    """Traces and metrics of this process. `observers` are told of the cycle; `close` ends it all."""

    def __init__(
        self,
        options: TelemetryOptions,
        *,
        env: Mapping[str, str] = os.environ,
        printer: SpanProcessor | None = None,
    ) -> None:
        self._options = options
        self._tally = DeliveryCounts()
        self._closed: Closed | None = None
        plan = Destinations(options, env)
        resource = resource_of(options, env)
        complaints = Complaints(plan.host) if plan.traces or plan.metrics else None
        self._share = ShareSampler(options.sample_ratio)
        self._tracers = TracerProvider(
            resource=resource,
            sampler=None if env.get("OTEL_TRACES_SAMPLER") else ParentBased(self._share),
            shutdown_on_exit=False,
        )
        if plan.traces and complaints is not None:
            exporter = OTLPSpanExporter(endpoint=plan.url("traces"), timeout=plan.timeout("TRACES"))
            capacity = int(env.get("OTEL_BSP_MAX_QUEUE_SIZE") or _QUEUE)
            counted = CountedExporter(exporter, self._tally, complaints)
            self._tracers.add_span_processor(CountedProcessor(counted, self._tally, capacity))
        if printer is not None:
            self._tracers.add_span_processor(printer)
        self.registry = ExemplarRegistry()
        readers: list[MetricReader] = [ExemplarReader(self.registry)]
        if plan.metrics and complaints is not None:
            pushed = _MetricExporter(plan.url("metrics"), plan.timeout("METRICS"), complaints)
            readers.append(PeriodicExportingMetricReader(pushed))
        self._meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self.spans = CycleSpans(self._tracers.get_tracer(_SCOPE, __version__, SCHEMA_URL))
        self.metrics = CycleMetrics(
            self._meters.get_meter(_SCOPE, __version__, SCHEMA_URL),
            constraint_series=options.constraint_series,
            dropped=self._tally.dropped,
            after_cycle=self._write,
        )

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Traces come first, so that what other observers log belongs to a span."""
        return self.spans, self.metrics

    def change(self, options: TelemetryOptions) -> None:
        """Takes over what can change while it runs: `sample_ratio`, `metrics_file`, `constraint_series`."""
        self._share.ratio = options.sample_ratio
        self.metrics.state.constraint_series = options.constraint_series
        self._options = replace(
            self._options,
            sample_ratio=options.sample_ratio,
            metrics_file=options.metrics_file,
            constraint_series=options.constraint_series,
        )

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """What /metrics answers to a request with this Accept header: a body, and its content type."""
        return exposition(self.registry, accept)

    def watch_caches(self, ages: Callable[[], Mapping[str, float]]) -> None:
        """Sets where the ages of watch caches come from: seconds by kind, asked at each scrape."""
        self.metrics.state.cache_ages = ages

    def watch_excess(self, excess: Callable[[], Mapping[str, int] | None]) -> None:
        """Sets where the excess of this moment comes from: by namespace in scope, asked at each scrape; None
        where it is not known."""
        self.metrics.state.excess_now = excess

    def watch_gait(self, gait: Callable[[], Gait]) -> None:
        """Sets where it comes from what holds evictions back beside the plan, asked at each scrape."""
        self.metrics.state.gait = gait

    def watch_notices(self, results: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        """Sets where the counts of messages come from: by receiver and result, asked at each scrape."""
        self.metrics.state.notices = results

    def dropped(self) -> dict[str, int]:
        """Spans lost so far, by reason."""
        return self._tally.dropped()

    def close(self) -> Closed:
        """Sends what is left, within `exit_timeout` in all. The rest is counted as lost.

        A second call does nothing.
        """
        if self._closed is not None:
            return self._closed
        began = time.monotonic()
        self.spans.abandon()
        self._write()
        enough = self._options.exit_timeout
        # Both signals at the same time, in threads that the end of the process does not wait for.
        ends = [
            threading.Thread(target=self._tracers.shutdown, name="traces-end", daemon=True),
            threading.Thread(
                target=self._meters.shutdown, args=(enough * 1000,), name="metrics-end", daemon=True
            ),
        ]
        for end in ends:
            end.start()
        for end in ends:
            end.join(max(0.0, began + enough - time.monotonic()))
        if (left := self._tally.missing()) > 0:
            self._tally.drop(EXIT, left)
        dropped = self._tally.dropped()
        if any(dropped.values()):
            why = ", ".join(f"{reason} {n}" for reason, n in dropped.items() if n)
            log.warning("%d spans were not delivered: %s", sum(dropped.values()), why)
        self._closed = Closed(time.monotonic() - began, self._tally.delivered, dropped)
        return self._closed

    def _write(self) -> None:
        if self._options.metrics_file:
            write_textfile(self.registry, Path(self._options.metrics_file))


@contextmanager
def telemetry_for(
    options: TelemetryOptions, *, env: Mapping[str, str] = os.environ, print_traces: bool = False
) -> Iterator[Telemetry]:
    """Telemetry while the block runs, as the options and `OTEL_…` variables say.

    `print_traces`: also as trees to standard error. An error that leaves the block ends the cycle that is
    under way. However it ends, what is left to send takes `exit_timeout` at most.
    """
    printer = None
    if print_traces or "console" in words(env, "OTEL_TRACES_EXPORTER"):
        from rebalancer.telemetry.traces.tree import TreePrinter

        printer = TreePrinter()
    telemetry = Telemetry(options, env=env, printer=printer)
    try:
        yield telemetry
    except Exception as e:
        for observer in telemetry.observers:
            observer.on_error(e)
        raise
    finally:
        telemetry.close()


class _MetricExporter(OTLPMetricExporter):
    """Says when metrics do not arrive."""

    def __init__(self, endpoint: str | None, timeout: float | None, complaints: Complaints) -> None:
        super().__init__(endpoint=endpoint, timeout=timeout)
        self._complaints = complaints

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis=timeout_millis, **kwargs)
        self._complaints.result("metrics", result is MetricExportResult.SUCCESS)
        return result
