"""All of it, switched on once at the start and off once at the end.

What goes where: standard `OTEL_…` variables first, then the options. Without either nothing is sent, but
metrics can be scraped and logs carry trace ids.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import gethostname
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased
from prometheus_client import CollectorRegistry

from rebalancer import __version__
from rebalancer.telemetry.delivery import EXIT, Complaints, CountedExporter, CountedProcessor, Tally
from rebalancer.telemetry.exposition import exposition, write_textfile
from rebalancer.telemetry.metrics import CycleMetrics
from rebalancer.telemetry.options import TelemetryOptions
from rebalancer.telemetry.sampling import ShareSampler
from rebalancer.telemetry.spans import CycleSpans

log = logging.getLogger(__name__)

_SCOPE = "rebalancer"
_QUEUE = 2048


class Closed(Struct, frozen=True):
    """How it ended: seconds it took, spans that were delivered, and those dropped by reason."""

    seconds: float
    delivered: int
    dropped: dict[str, int]


class Telemetry:
    """Traces and metrics of this process. `spans` and `metrics` listen to the loop; `close` ends it all."""

    def __init__(
        self,
        options: TelemetryOptions,
        *,
        env: Mapping[str, str] = os.environ,
        printer: SpanProcessor | None = None,
        spans: type[CycleSpans] = CycleSpans,
        metrics: type[CycleMetrics] = CycleMetrics,
    ) -> None:
        self._options = options
        self._tally = Tally()
        self._closed: Closed | None = None
        plan = _Destinations(options, env)
        resource = _resource(options, env)
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
        self.registry = CollectorRegistry()
        readers: list[MetricReader] = [
            PrometheusMetricReader(registry=self.registry, scope_info_enabled=False)
        ]
        if plan.metrics and complaints is not None:
            pushed = _MetricExporter(plan.url("metrics"), plan.timeout("METRICS"), complaints)
            readers.append(PeriodicExportingMetricReader(pushed))
        self._meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self.spans = spans(self._tracers.get_tracer(_SCOPE, __version__))
        self.metrics = metrics(
            self._meters.get_meter(_SCOPE, __version__),
            constraint_series=options.constraint_series,
            dropped=self._tally.dropped,
            after_cycle=self._write,
        )

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

    def exposition(self) -> tuple[bytes, str]:
        """All metrics in Prometheus' text format, and its content type: what /metrics answers."""
        return exposition(self.registry)

    def watch_caches(self, ages: Callable[[], Mapping[str, float]]) -> None:
        """Where the ages of watch caches come from: seconds by kind, asked for at each scrape."""
        self.metrics.state.cache_ages = ages

    def dropped(self) -> dict[str, int]:
        """Spans lost so far, by reason."""
        return self._tally.dropped()

    def close(self) -> Closed:
        """Sends what is left, within `exit_timeout` in all; what is not gone by then is counted and lost.

        The one place where telemetry ends; a second call does nothing.
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


def start(
    options: TelemetryOptions,
    *,
    env: Mapping[str, str] = os.environ,
    print_traces: bool = False,
    spans: type[CycleSpans] = CycleSpans,
    metrics: type[CycleMetrics] = CycleMetrics,
) -> Telemetry:
    """Telemetry as the options and `OTEL_…` variables say.

    `print_traces`: also as trees to standard error. `spans`, `metrics`: what listens, if it is to be more.
    """
    printer = None
    if print_traces or "console" in _words(env, "OTEL_TRACES_EXPORTER"):
        from rebalancer.telemetry.tree import TreePrinter

        printer = TreePrinter()
    return Telemetry(options, env=env, printer=printer, spans=spans, metrics=metrics)


class _MetricExporter(OTLPMetricExporter):
    """Says when metrics do not arrive."""

    def __init__(self, endpoint: str | None, timeout: float | None, complaints: Complaints) -> None:
        super().__init__(endpoint=endpoint, timeout=timeout)
        self._complaints = complaints

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        """In the reader's thread."""
        result = super().export(metrics_data, timeout_millis=timeout_millis, **kwargs)
        self._complaints.result("metrics", result is MetricExportResult.SUCCESS)
        return result


class _Destinations:
    """Which signals are sent, and where to."""

    def __init__(self, options: TelemetryOptions, env: Mapping[str, str]) -> None:
        self._options = options
        self._env = env
        off = env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self.traces = not off and self._wanted("TRACES", options.traces)
        self.metrics = not off and self._wanted("METRICS", options.metrics)

    @property
    def host(self) -> str:
        """For messages: without path, and without credentials."""
        parts = urlsplit(
            self._env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            or self._env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
            or self._options.endpoint
            or "http://localhost:4318"
        )
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    def url(self, signal: str) -> str | None:
        """The receiver of a signal; None: the SDK finds it in the environment."""
        if self._named(signal.upper()) or not self._options.endpoint:
            return None
        return f"{self._options.endpoint.rstrip('/')}/v1/{signal}"

    def timeout(self, signal: str) -> float | None:
        """Seconds of one export; None: the environment says so."""
        named = (f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
        return None if any(self._env.get(name) for name in named) else self._options.timeout

    def _named(self, signal: str) -> bool:
        names = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        return any(self._env.get(name) for name in names)

    def _wanted(self, signal: str, chosen: bool) -> bool:
        words = _words(self._env, f"OTEL_{signal}_EXPORTER")
        if words:
            return "otlp" in words
        own = bool(self._env.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
        return own or (chosen and bool(self._options.endpoint or self._named(signal)))


def _words(env: Mapping[str, str], name: str) -> set[str]:
    return {word.strip().lower() for word in env.get(name, "").split(",") if word.strip()}


def _resource(options: TelemetryOptions, env: Mapping[str, str]) -> Resource:
    """Who tells: service, version, instance, cluster, and its own pod where the downward API says it."""
    own: dict[str, str] = {
        "service.name": "rebalancer",
        "service.version": __version__,
        "service.instance.id": options.instance or env.get("POD_NAME") or gethostname(),
        "k8s.cluster.name": options.cluster,
        "k8s.pod.name": env.get("POD_NAME", ""),
        "k8s.namespace.name": env.get("POD_NAMESPACE", ""),
        "k8s.node.name": env.get("NODE_NAME", ""),
    }
    made = Resource.create({key: value for key, value in own.items() if value})
    # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say comes last: it wins.
    return made.merge(OTELResourceDetector().detect())
