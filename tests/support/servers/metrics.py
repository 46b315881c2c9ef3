"""Metrics as a scrape gives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.telemetry.start import Telemetry, TelemetryOptions, telemetry_for
from tests.support.build import nodes, objects, pdb, workload
from tests.support.runs.one_cycle import EXECUTE, cycle
from tests.support.sandbox import ApiServer

RUNBOOK = Path(__file__).parents[3] / "docs" / "observability.md"


STUCK = (
    *nodes(a=1, b=1, c=1),
    workload("web").spread("zone", 1).placed({"a-0": 6}),
    workload("held").spread("zone", 1).placed({"a-0": 3}),
    pdb("held", {"app": "held"}, min_available=3),
    workload("soft").placed({"b-0": 1}),
)


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(telemetry: Telemetry) -> Samples:
    """All samples by name and labels."""
    body, kind = telemetry.exposition()
    assert kind.startswith("text/plain; version=0.0.4")
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(body.decode())
        for s in family.samples
    }


@contextmanager
def after_a_cycle(options: TelemetryOptions | None = None) -> Iterator[Telemetry]:
    """Telemetry of a daemon that has mended what it could."""
    with (
        ApiServer(objects(STUCK)) as server,
        telemetry_for(options or TelemetryOptions(constraint_series=10)) as telemetry,
    ):
        report = cycle(server, EXECUTE, telemetry.observers)
        assert report.evicted == 4
        telemetry.metrics.on_leading(True)
        telemetry.metrics.on_breaker(False, "")
        telemetry.metrics.on_held(Reason(ReasonCode.WINDOW, "closed"))
        telemetry.metrics.on_rejected("default", "web-1", Reason(ReasonCode.CHANGED_SINCE_PLAN, "gone"))
        compared = Comparison(
            namespace="default", pod="web-1", node="a-0", result=Result.AGREES, certain=True
        )
        telemetry.metrics.on_comparison(compared)
        telemetry.metrics.state.cache_ages = lambda: {"Pod": 1.5, "Node": 2.0}
        yield telemetry
