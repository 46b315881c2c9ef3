"""The current span of this thread, for logs and annotations. Loads only opentelemetry's API."""

from __future__ import annotations

from msgspec import Struct
from opentelemetry import trace

from rebalancer.telemetry.traces.names import TRACEPARENT


class Ids(Struct, frozen=True):
    """Hexadecimal, as backends show them."""

    trace: str
    span: str
    sampled: bool


def current() -> Ids | None:
    """The ids of the current span; None outside any."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return Ids(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled)


def trace_annotations() -> dict[str, str]:
    """Annotations of Evictions and Events that lead to the trace: W3C Trace Context's traceparent."""
    ids = current()
    return {} if ids is None else {TRACEPARENT: f"00-{ids.trace}-{ids.span}-{'01' if ids.sampled else '00'}"}
