"""The result of `rebalancer simulate`: as a JSON document, and as text for a terminal.

Names are part of `rebalancer/v1`: fields may be added, but are never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from msgspec import Struct

from rebalancer.model.node import HOSTNAME
from rebalancer.model.reason import listing, plural
from rebalancer.month import Lived, Variant
from rebalancer.outcome import CycleReport, Outcome
from rebalancer.report import text
from rebalancer.report.document import SHAPES, shape
from rebalancer.report.formats import API_VERSION
from rebalancer.report.output import render_lines
from rebalancer.report.page import filled
from rebalancer.report.terminal import Rows
from rebalancer.report.text import counts, percent, short_key

_MOST = 40


class State(Struct, frozen=True, rename="camel"):
    """The cluster at one moment. `worst_loss`: the largest share of a constraint's pods that are in one
    domain, among the constraints in scope."""

    nodes: int
    pods: int
    unplaced: int
    violated: int
    excess: int
    worst_loss: float


class SimulatedConstraint(Struct, frozen=True, rename="camel"):
    """One constraint at the three moments. It has no domains at a moment at which no pod carries it."""

    namespace: str
    workloads: tuple[str, ...]
    selector: str | None
    topology_key: str
    max_skew: int
    before: Mapping[str, int]
    changed: Mapping[str, int]
    after: Mapping[str, int]
    excess: dict[str, int]
    reasons: tuple[str, ...]


class SimulatedMove(Struct, frozen=True):
    """How a move ended, and in which cycle."""

    cycle: int
    outcome: Outcome


class SimulationReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """`before`: the cluster of the snapshot. `changed`: the same at rest after the changes. `after`: after
    the plan was carried out."""

    api_version: str = API_VERSION
    kind: str = "Simulation"
    seed: int
    source: str
    notes: tuple[str, ...]
    before: State
    changed: State
    after: State
    cycles: tuple[CycleReport, ...]
    moves: tuple[SimulatedMove, ...]
    constraints: tuple[SimulatedConstraint, ...]
    assumptions: tuple[str, ...]


SHAPES |= (
    shape(
        CycleReport,
        "SimulatedCycle",
        "One cycle, as `rebalancer once --execute` would report it.",
        "end",
        "message",
        "plans",
        "evicted",
        "failed",
        "mispredicted",
    ),
    shape(
        SimulatedMove,
        "SimulatedMove",
        "One eviction and how it ended. `expected`: whether the replacement landed on one of its "
        "destinations, null if there was none. `wave`: number of the wave in the last plan.",
        "cycle",
        ("wave", int, lambda m: m.outcome.move.wave),
        ("namespace", str, lambda m: m.outcome.move.pod.namespace),
        ("pod", str, lambda m: m.outcome.move.pod.name),
        ("source", str, lambda m: m.outcome.move.pod.node_name),
        ("predicted", str, lambda m: m.outcome.move.predicted),
        ("replacement", str, lambda m: m.outcome.replacement),
        ("landed", str, lambda m: m.outcome.node),
        ("expected", bool | None, lambda m: m.outcome.expected),
        ("status", str, lambda m: m.outcome.status.value),
        ("message", str, lambda m: m.outcome.message),
    ),
)


def to_table(s: SimulationReport, stream: IO[str] | None = None) -> str:
    """As plain text: the moments side by side, the cycles, and every constraint that was violated
    meanwhile."""
    known = {HOSTNAME: {m.outcome.move.pod.node_name for m in s.moves}}
    for c in s.constraints:
        known.setdefault(c.topology_key, set()).update(*(getattr(c, m) for m in ("before", "after")))
    short = text.short_names(known)
    note = ["", short.note] if short.note else []
    return render_lines((*_states(s), *_cycles(s, short), *_constraints(s, short), *note), stream)


def _moments(s: SimulationReport) -> dict[str, str]:
    """The moments with their titles. The middle one is left out if it equals the first."""
    moved = s.before != s.changed or any(c.before != c.changed for c in s.constraints)
    middle = {"changed": "CHANGED" if s.notes else "AT REST"} if moved or s.notes else {}
    return {"before": "AS IT IS", **middle, "after": "REBALANCED"}


def _states(s: SimulationReport) -> list[str | Rows]:
    moments = _moments(s)
    states: list[State] = [getattr(s, m) for m in moments]
    rows = [
        ["nodes", *(f"{x.nodes:,}" for x in states)],
        ["pods", *(f"{x.pods:,}" for x in states)],
        ["pods without a node", *(f"{x.unplaced:,}" for x in states)],
        ["constraints violated", *(f"{x.violated:,}" for x in states)],
        ["excess", *(f"{x.excess:,}" for x in states)],
        ["worst loss of a domain", *(percent(x.worst_loss) for x in states)],
    ]
    return [
        f"{s.source}, seed {s.seed}",
        *(f"  {note}" for note in s.notes),
        "",
        Rows(("", *moments.values()), rows),
    ]


def _cycles(s: SimulationReport, short: text.Names) -> list[str | Rows]:
    lines: list[str | Rows] = [""]
    for number, c in enumerate(s.cycles, 1):
        figures = f"{plural(c.evicted, 'eviction')}, {plural(c.plans, 'plan')}"
        trouble = f", {c.failed:,} failed" if c.failed else ""
        trouble += f", {c.mispredicted:,} landed elsewhere" if c.mispredicted else ""
        lines.append(f"Cycle {number}: {c.end}: {c.message} ({figures}{trouble})")
    rows = []
    for o in (m.outcome for m in s.moves[:_MOST]):
        planned = o.status if o.expected is None else "yes" if o.expected else f"no, {o.move.predicted}"
        said = (o.move.pod.node_name, o.replacement.rpartition("/")[2], o.node, planned)
        rows.append((o.move.pod.key, *map(short.within, said)))
    if rows:
        lines += ["", Rows(("EVICTED", "FROM", "REPLACEMENT", "ON", "AS PLANNED"), rows)]
    if len(s.moves) > _MOST:
        lines.append(f"  and {len(s.moves) - _MOST:,} more (-o json)")
    return lines


def _constraints(s: SimulationReport, short: text.Names) -> list[str | Rows]:
    broken = [c for c in s.constraints if any(c.excess.values())]
    if not broken:
        return ["", f"Every constraint held at every moment: {plural(len(s.constraints), 'constraint')}."]
    moments = _moments(s)
    rows = []
    for c in broken[:_MOST]:
        name = f"{c.namespace}/{listing((w.rpartition('/')[2] for w in c.workloads), 2) or c.selector or ''}"
        found: list[Mapping[str, int]] = [getattr(c, m) for m in moments]
        left = str(c.excess["after"] or "")
        cells = (counts(domains, c.topology_key, short) if domains else "-" for domains in found)
        rows.append((name, short_key(c.topology_key), str(c.max_skew), *cells, left))
    more = len(broken) - _MOST
    table = Rows(("WORKLOAD", "KEY", "MAX", *moments.values(), "STAYS"), rows)
    lines: list[str | Rows] = ["", table, *([f"  and {more:,} more (-o json)"] if more > 0 else [])]
    stays = [c for c in broken[:_MOST] if c.excess["after"]]
    if stays:
        lines += ["", "What stays, and why"]
    for c in stays:
        whose = f"{c.namespace}/{listing(c.workloads, 1)}, {short_key(c.topology_key)}"
        lines += (f"  {whose}: {reason}" for reason in c.reasons)
    return lines


# The content of `rebalancer simulate --days`. Its JSON is a public interface.


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


def month_table(month: MonthReport, stream: IO[str] | None = None) -> str:
    """As plain text."""
    happened = ", ".join(plural(n, kind) for kind, n in sorted(month.events.items()))
    heads = (
        "EXCESS x HOURS",
        "EVICTIONS",
        "OF THE EXCESS GONE",
        "WITHOUT AN EVICTION",
        "WORST LOSS OF A DOMAIN",
    )
    rows = (
        (
            v.variant,
            f"{v.excess_hours:,.1f}",
            f"{v.evictions:,}",
            percent(v.gone),
            percent(v.without_eviction),
            f"{percent(max(v.worst_loss))} beyond what must be",
        )
        for v in month.variants
    )
    head = f"{month.source}, seed {month.seed}: {plural(month.days, 'day')} with {happened}"
    return render_lines((head, "", Rows(("", *heads), rows)), stream)


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


# A simulated month as a page: the figures, and the worst loss of a domain day by day, without a script.

WIDTH, HEIGHT, LEFT, BASE = 720, 220, 44, 190


class Line(Struct, frozen=True):
    """The losses of one variant, drawn."""

    name: str
    path: str


def to_html(month: MonthReport) -> str:
    """The whole document as one HTML file. Every value is escaped; nothing runs in it."""
    highest = max((max(v.worst_loss) for v in month.variants), default=0.0) or 1.0
    return filled(
        "month",
        month=month,
        lines=lines(month, highest),
        highest=highest,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        base=BASE,
    )


def lines(month: MonthReport, highest: float) -> list[Line]:
    """Day by day from left to right; the highest loss of all is at the top."""
    found = []
    for v in month.variants:
        step = (WIDTH - LEFT - 10) / max(1, len(v.worst_loss))
        points = []
        for day, loss in enumerate(v.worst_loss):
            y = round(BASE - loss / highest * (BASE - 20), 1)
            points.append(f"{round(LEFT + day * step, 1)},{y} {round(LEFT + (day + 1) * step, 1)},{y}")
        found.append(Line(v.variant, "M" + " L".join(points)))
    return found
