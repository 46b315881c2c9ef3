"""Which cycles are traced."""

from __future__ import annotations

from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult, TraceIdRatioBased


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
