"""Starts, delivers and ends traces and metrics of this process.

Standard `OTEL_…` variables win over the options. Without either nothing is sent; metrics can still be
scraped, and logs carry trace ids.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    Histogram,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased
from prometheus_client import CollectorRegistry
from prometheus_client.core import Exemplar, Metric
from prometheus_client.samples import Sample

from rebalancer import __version__
from rebalancer.outcome import Observer
from rebalancer.telemetry.metrics import CycleMetrics, exposition, write_textfile
from rebalancer.telemetry.span_attributes import SCHEMA_URL
from rebalancer.telemetry.spans import CycleSpans, ShareSampler

# Delivery of spans and metrics to a collector: bounded, counted, never waited for.
#
# The SDK's batch processor exports in a thread of its own. Spans that are lost to a full queue, a refusal
# or the end of the process are counted here, because nobody would miss them otherwise.

log = logging.getLogger(__name__)

FULL = "queue-full"
FAILED = "export-failed"
EXIT = "exit"
_BATCH = 512
"""Spans of one export, the SDK's default; a queue must hold one at least."""


class DeliveryCounts:
    """Spans that ended, those delivered, and those dropped by reason. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ended = 0
        self.delivered = 0
        self._dropped: Counter[str] = Counter({FULL: 0, FAILED: 0, EXIT: 0})

    def end(self) -> None:
        """Counts a span that is to be delivered."""
        with self._lock:
            self.ended += 1

    def deliver(self, count: int) -> None:
        """Counts spans that were delivered."""
        with self._lock:
            self.delivered += count

    def drop(self, reason: str, count: int = 1) -> None:
        """Counts spans that were lost."""
        with self._lock:
            self._dropped[reason] += count

    def dropped(self) -> dict[str, int]:
        """Lost spans by reason."""
        with self._lock:
            return dict(self._dropped)

    def missing(self) -> int:
        """Spans that ended and are neither delivered nor lost: queued, or on the way."""
        with self._lock:
            return self.ended - self.delivered - sum(self._dropped.values())


class Complaints(logging.Handler):
    """Logs once, in the exporter's words, that a signal does not arrive, and once that it arrives again."""

    def __init__(self, where: str) -> None:
        super().__init__(logging.WARNING)
        self._where = where
        self._why = ""
        self._failing: set[str] = set()
        # The exporters tell of every single try; of that, only the reason is of interest.
        library = logging.getLogger("opentelemetry.exporter")
        library.propagate = False
        library.handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self._why = " ".join(record.getMessage().split())

    def result(self, signal: str, ok: bool) -> None:
        """Records the result of an export."""
        if not ok and signal not in self._failing:
            self._failing.add(signal)
            log.warning("%s do not reach %s: %s", signal, self._where, self._why or "no reason is known")
        elif ok and signal in self._failing:
            self._failing.remove(signal)
            log.info("%s reach %s again", signal, self._where)


class CountedExporter(SpanExporter):
    """Exports through another exporter and counts."""

    def __init__(self, inner: SpanExporter, tally: DeliveryCounts, complaints: Complaints) -> None:
        self._inner = inner
        self._tally = tally
        self._complaints = complaints
        self.exporting = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.exporting = len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            self.exporting = 0
            ok = result is SpanExportResult.SUCCESS
            if ok:
                self._tally.deliver(len(spans))
            else:
                self._tally.drop(FAILED, len(spans))
            self._complaints.result("traces", ok)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class CountedProcessor(BatchSpanProcessor):
    """The SDK's batch processor (`OTEL_BSP_…`), which drops silently when its queue is full."""

    def __init__(self, exporter: CountedExporter, tally: DeliveryCounts, capacity: int) -> None:
        super().__init__(
            exporter, max_queue_size=capacity, max_export_batch_size=capacity if capacity < _BATCH else None
        )
        self._exporter = exporter
        self._tally = tally
        self._capacity = capacity

    def on_end(self, span: ReadableSpan) -> None:
        """Queues the span. The oldest is dropped when the queue is full."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._tally.missing() - self._exporter.exporting >= self._capacity:
            self._tally.drop(FULL)
        self._tally.end()
        super().on_end(span)


# Options of telemetry.


class TelemetryOptions(Struct, frozen=True, kw_only=True):
    """Traces and metrics of one process.

    `endpoint`: base URL of an OTLP/HTTP receiver; "" = what `OTEL_EXPORTER_OTLP_…` say, else nothing is sent.
    `traces`, `metrics`: which signals go there. `timeout` of one export, `exit_timeout` of everything at the
    end, in seconds. `sample_ratio`: share of the cycles that are traced. `metrics_file`: written when a cycle
    ends, for the node exporter's textfile collector. `constraint_series`: constraints with a series of their
    own, 0 = none. `cluster`: k8s.cluster.name. `instance`: service.instance.id, "" = the host's name.
    Standard `OTEL_…` variables win over all of these.
    """

    endpoint: str = ""
    traces: bool = True
    metrics: bool = False
    timeout: float = 2.0
    exit_timeout: float = 2.5
    sample_ratio: float = 1.0
    metrics_file: str = ""
    constraint_series: int = 100
    cluster: str = ""
    instance: str = ""


# Where signals are sent. Standard `OTEL_…` variables win over the options.


class Destinations:
    """Which signals are sent, and where to."""

    def __init__(self, options: TelemetryOptions, env: Mapping[str, str]) -> None:
        self._options = options
        self._env = env
        off = env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self.traces = not off and self._wanted("TRACES", options.traces)
        self.metrics = not off and self._wanted("METRICS", options.metrics)

    @property
    def host(self) -> str:
        """For messages: without path and credentials."""
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
        named = words(self._env, f"OTEL_{signal}_EXPORTER")
        if named:
            return "otlp" in named
        own = bool(self._env.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
        return own or (chosen and bool(self._options.endpoint or self._named(signal)))


def words(env: Mapping[str, str], name: str) -> set[str]:
    return {word.strip().lower() for word in env.get(name, "").split(",") if word.strip()}


def resource_of(options: TelemetryOptions, env: Mapping[str, str]) -> Resource:
    """What identifies this process: service, version, instance, cluster, and its pod if the downward API
    names it."""
    own: dict[str, str] = {
        "service.name": "rebalancer",
        "service.version": __version__,
        "service.instance.id": options.instance or env.get("POD_NAME") or gethostname(),
        "k8s.cluster.name": options.cluster,
        "k8s.pod.name": env.get("POD_NAME", ""),
        "k8s.namespace.name": env.get("POD_NAMESPACE", ""),
        "k8s.node.name": env.get("NODE_NAME", ""),
    }
    made = Resource.create({key: value for key, value in own.items() if value}, SCHEMA_URL)
    # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say comes last: it wins.
    return made.merge(OTELResourceDetector().detect())


# Exemplars: for each bucket of a histogram the last trace that fell into it.
#
# The SDK notes which sampled span was current when a value was recorded; its Prometheus reader leaves that
# out.

_NS = 1e9
_Key = tuple[str, frozenset[tuple[str, str]], float]
"""Name of the family, labels, upper bound of the bucket."""


class ExemplarRegistry(CollectorRegistry):
    """A registry whose buckets carry exemplars, which only the OpenMetrics format shows."""

    def __init__(self) -> None:
        super().__init__()
        self._lock_of_exemplars = threading.Lock()
        self._last: dict[_Key, Exemplar] = {}

    def note(self, data: MetricsData) -> None:
        """Takes over the exemplars of a collection; those of earlier ones stay until newer ones come."""
        for metrics in data.resource_metrics:
            for scope in metrics.scope_metrics:
                for metric in scope.metrics:
                    if isinstance(metric.data, Histogram):
                        family = f"{metric.name.replace('.', '_')}_seconds"
                        for point in metric.data.data_points:
                            self._note(family, point)

    def collect(self) -> Iterable[Metric]:
        """All families."""
        for family in super().collect():
            if family.type == "histogram":
                family.samples = [self._with(family.name, s) for s in family.samples]
            yield family

    def _note(self, family: str, point: object) -> None:
        labels = _labels(getattr(point, "attributes", None) or {})
        bounds = [*getattr(point, "explicit_bounds", ()), float("inf")]
        for e in getattr(point, "exemplars", ()):
            if e.trace_id and e.span_id:
                trace = {"trace_id": f"{e.trace_id:032x}", "span_id": f"{e.span_id:016x}"}
                made = Exemplar(trace, e.value, e.time_unix_nano / _NS)
                with self._lock_of_exemplars:
                    self._last[family, labels, bounds[bisect_left(bounds, e.value)]] = made

    def _with(self, family: str, sample: Sample) -> Sample:
        if not sample.name.endswith("_bucket"):
            return sample
        labels = _labels({k: v for k, v in sample.labels.items() if k != "le"})
        with self._lock_of_exemplars:
            found = self._last.get((family, labels, float(sample.labels["le"])))
        return sample if found is None else sample._replace(exemplar=found)


class ExemplarReader(PrometheusMetricReader):
    """Prometheus' reader of the SDK, which hands exemplars to the registry."""

    def __init__(self, registry: ExemplarRegistry) -> None:
        self._noting = registry
        super().__init__(registry=registry, scope_info_enabled=False)

    def _receive_metrics(
        self, metrics_data: MetricsData | None, timeout_millis: float = 10_000, **kwargs: object
    ) -> None:
        # The SDK may hand over nothing at all.
        if metrics_data is not None:
            self._noting.note(metrics_data)
            super()._receive_metrics(metrics_data, timeout_millis, **kwargs)


def _labels(attributes: Mapping[str, object]) -> frozenset[tuple[str, str]]:
    return frozenset((key.replace(".", "_"), str(value)) for key, value in attributes.items())


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
        from rebalancer.telemetry.spans import TreePrinter

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
