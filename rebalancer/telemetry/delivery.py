"""Spans and metrics on their way to a collector: bounded, counted, and never waited for.

The SDK's batch processor hands spans over in a thread of its own; what a full queue, a refusal or the end of
the process costs is counted here, because nobody misses a span that he does not know of.
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


class Tally:
    """Spans that ended, those delivered, and those dropped by reason. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ended = 0
        self.delivered = 0
        self._dropped: Counter[str] = Counter({FULL: 0, FAILED: 0, EXIT: 0})

    def end(self) -> None:
        """A span is to be delivered."""
        with self._lock:
            self.ended += 1

    def deliver(self, count: int) -> None:
        """The collector has them."""
        with self._lock:
            self.delivered += count

    def drop(self, reason: str, count: int = 1) -> None:
        """They are lost."""
        with self._lock:
            self._dropped[reason] += count

    def dropped(self) -> dict[str, int]:
        """By reason."""
        with self._lock:
            return dict(self._dropped)

    def missing(self) -> int:
        """Ended, and neither delivered nor counted as dropped: still queued, or on the way."""
        with self._lock:
            return self.ended - self.delivered - sum(self._dropped.values())


class Complaints(logging.Handler):
    """Says once that a signal does not arrive, with the exporter's own words, and once that it does again."""

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
        """Keeps the words."""
        self._why = " ".join(record.getMessage().split())

    def result(self, signal: str, ok: bool) -> None:
        """An export ended."""
        if not ok and signal not in self._failing:
            self._failing.add(signal)
            log.warning("%s do not reach %s: %s", signal, self._where, self._why or "no reason is known")
        elif ok and signal in self._failing:
            self._failing.remove(signal)
            log.info("%s reach %s again", signal, self._where)


class CountedExporter(SpanExporter):
    """Exports through another exporter and counts."""

    def __init__(self, inner: SpanExporter, tally: Tally, complaints: Complaints) -> None:
        self._inner = inner
        self._tally = tally
        self._complaints = complaints
        self.exporting = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """In the processor's thread."""
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
        """Ends the try at work, too."""
        self._inner.shutdown()


class CountedProcessor(BatchSpanProcessor):
    """The SDK's batch processor (`OTEL_BSP_…`), which drops without a word when its queue is full."""

    def __init__(self, exporter: CountedExporter, tally: Tally, capacity: int) -> None:
        super().__init__(
            exporter, max_queue_size=capacity, max_export_batch_size=capacity if capacity < _BATCH else None
        )
        self._exporter = exporter
        self._tally = tally
        self._capacity = capacity

    def on_end(self, span: ReadableSpan) -> None:
        """Queues it; the oldest one gives way when there is no room."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._tally.missing() - self._exporter.exporting >= self._capacity:
            self._tally.drop(FULL)
        self._tally.end()
        super().on_end(span)
