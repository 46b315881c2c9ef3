"""The span that this thread is in, for logs and annotations; loads only opentelemetry's API."""

from __future__ import annotations

from msgspec import Struct
from opentelemetry import trace

from rebalancer.telemetry.names import TRACEPARENT


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
    """What an Eviction or an event carries, so that its trace is found: W3C Trace Context's traceparent."""
    ids = current()
    return {} if ids is None else {TRACEPARENT: f"00-{ids.trace}-{ids.span}-{'01' if ids.sampled else '00'}"}
