"""Exemplars: for each bucket of a histogram the last trace that fell into it.

The SDK notes which sampled span was current when a value was recorded; its Prometheus reader leaves that out.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import Histogram, MetricsData
from prometheus_client import CollectorRegistry
from prometheus_client.core import Exemplar, Metric
from prometheus_client.samples import Sample

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
