"""A month of a snapshot under every variant, as a document."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from rebalancer.model.snapshot import Snapshot
from rebalancer.month import Lived, Variant, play
from rebalancer.planner import PlanOptions
from rebalancer.report.month.document import MonthReport, build_month
from rebalancer.runtime.cycle.snapshot_checks import check_readable


def month(
    snapshot: Snapshot,
    options: PlanOptions,
    *,
    days: int,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
) -> MonthReport:
    """Plays it four times with the same events. `tell` is called with progress in words."""
    check_readable(snapshot)
    lived: list[Lived] = []
    for variant in Variant:
        tell(f"{days} days under {variant.value}")
        lived.append(play(snapshot, options, variant, days=days, draw=Random(seed).random))
    return build_month(lived, source=snapshot.source, seed=seed, days=days)
