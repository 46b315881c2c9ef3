"""The content of `rebalancer simulate --days`. Its JSON is a public interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rebalancer.month import Lived, Variant
from rebalancer.report.api_version import API_VERSION
from rebalancer.report.terminal.columns import columns
from rebalancer.report.wording.text import clean, percent, plural


class LivedReport(Struct, frozen=True, rename="camel"):
    """A month under one variant.

    `excess_hours`: pods in excess times hours. `gone`: the share of the excess x hours under nothing that is
    gone. `without_eviction`: what of it took no eviction: all of it where nothing is evicted, else as much as
    prevention saves of the evictions. `worst_loss`: of each day the worst share of a constraint's pods in its
    fullest domain, beyond the smallest share possible.
    """

    variant: str
    excess_hours: float
    evictions: int
    gone: float
    without_eviction: float
    worst_loss: tuple[float, ...]


class MonthReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """`events`: how many of each kind, the same under every variant."""

    api_version: str = API_VERSION
    kind: str = "Month"
    source: str
    seed: int
    days: int
    events: Mapping[str, int]
    variants: tuple[LivedReport, ...]


def build_month(lived: Sequence[Lived], *, source: str, seed: int, days: int) -> MonthReport:
    """The document; the first of them is that under nothing."""
    by = {one.variant: one for one in lived}
    nothing = by[Variant.NOTHING].excess_hours
    return MonthReport(
        source=source,
        seed=seed,
        days=days,
        events=lived[0].events,
        variants=tuple(_variant(one, nothing, by[Variant.EVICTIONS].evictions) for one in lived),
    )


def to_table(month: MonthReport) -> str:
    """As plain text."""
    happened = ", ".join(plural(n, kind) for kind, n in sorted(month.events.items()))
    rows = [
        [
            "",
            "EXCESS x HOURS",
            "EVICTIONS",
            "OF THE EXCESS GONE",
            "WITHOUT AN EVICTION",
            "WORST LOSS OF A DOMAIN",
        ]
    ]
    rows += (
        [
            v.variant,
            f"{v.excess_hours:,.1f}",
            f"{v.evictions:,}",
            percent(v.gone),
            percent(v.without_eviction),
            f"{percent(max(v.worst_loss))} beyond what must be",
        ]
        for v in month.variants
    )
    lines = [
        f"{month.source}, seed {month.seed}: {plural(month.days, 'day')} with {happened}",
        "",
        *columns(rows),
    ]
    return "\n".join(clean(line).rstrip() for line in lines) + "\n"


def _variant(one: Lived, nothing: float, evictions: int) -> LivedReport:
    gone = 1 - one.excess_hours / nothing if nothing else 0.0
    saved = 1 - one.evictions / evictions if evictions else 0.0
    kept = {Variant.PREVENTION: gone, Variant.BOTH: gone * max(saved, 0.0)}
    return LivedReport(
        variant=one.variant.value,
        excess_hours=one.excess_hours,
        evictions=one.evictions,
        gone=round(gone, 4),
        without_eviction=round(kept.get(one.variant, 0.0), 4),
        worst_loss=one.losses,
    )
