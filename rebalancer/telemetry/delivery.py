"""Delivery of spans and metrics to a collector: bounded, counted, never waited for.

The SDK's batch processor exports in a thread of its own. Spans that are lost to a full queue, a refusal or
the end of the process are counted here, because nobody would miss them otherwise.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

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
