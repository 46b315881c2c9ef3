"""How long the plan may take, wave by wave, as the report has it."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.planner.results.pace import Pace


class WaveReport(Struct, frozen=True, rename="camel"):
    """One wave. `expected_seconds`: until its last replacement is Ready, as its workloads' pods were before;
    a StatefulSet's starts only when the evicted pod is gone."""

    wave: int
    evictions: int
    expected_seconds: int


def waves(pace: Pace) -> tuple[WaveReport, ...]:
    """The plan's waves in order."""
    return tuple(WaveReport(n, w.evictions, w.seconds) for n, w in enumerate(pace.waves, 1))
