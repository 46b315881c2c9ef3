"""The result of `rebalancer simulate`: as a JSON document, and as text for a terminal.

Names are part of `rebalancer/v1`: fields may be added, but are never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rebalancer.report.api_version import API_VERSION
from rebalancer.report.terminal.columns import columns
from rebalancer.report.wording.text import clean, counts, listing, percent, plural, short_key

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


class SimulatedMove(Struct, frozen=True, rename="camel"):
    """One eviction and how it ended. `expected`: whether the replacement landed on one of its destinations;
    None if there was no replacement. `wave`: number of the wave in the last plan."""

    cycle: int
    wave: int
    namespace: str
    pod: str
    source: str
    predicted: str
    replacement: str
    landed: str
    expected: bool | None
    status: str
    message: str


class SimulatedCycle(Struct, frozen=True, rename="camel"):
    """One cycle, as `rebalancer once --execute` would report it."""

    end: str
    message: str
    plans: int
    evicted: int
    failed: int
    mispredicted: int


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
    cycles: tuple[SimulatedCycle, ...]
    moves: tuple[SimulatedMove, ...]
    constraints: tuple[SimulatedConstraint, ...]
    assumptions: tuple[str, ...]


def to_table(s: SimulationReport) -> str:
    """As plain text: the moments side by side, the cycles, and every constraint that was violated
    meanwhile."""
    return "\n".join(clean(line).rstrip() for line in (*_states(s), *_cycles(s), *_constraints(s))) + "\n"


def _moments(s: SimulationReport) -> dict[str, str]:
    """The moments with their titles. The middle one is left out if it equals the first."""
    moved = s.before != s.changed or any(c.before != c.changed for c in s.constraints)
    middle = {"changed": "CHANGED" if s.notes else "AT REST"} if moved or s.notes else {}
    return {"before": "AS IT IS", **middle, "after": "REBALANCED"}


def _states(s: SimulationReport) -> list[str]:
    lines = [f"{s.source}, seed {s.seed}", *(f"  {note}" for note in s.notes), ""]
    moments = _moments(s)
    states: list[State] = [getattr(s, m) for m in moments]
    return [
        *lines,
        *columns(
            [
                ["", *moments.values()],
                ["nodes", *(f"{x.nodes:,}" for x in states)],
                ["pods", *(f"{x.pods:,}" for x in states)],
                ["pods without a node", *(f"{x.unplaced:,}" for x in states)],
                ["constraints violated", *(f"{x.violated:,}" for x in states)],
                ["excess", *(f"{x.excess:,}" for x in states)],
                ["worst loss of a domain", *(percent(x.worst_loss) for x in states)],
            ]
        ),
    ]


def _cycles(s: SimulationReport) -> list[str]:
    lines = [""]
    for number, c in enumerate(s.cycles, 1):
        figures = f"{plural(c.evicted, 'eviction')}, {plural(c.plans, 'plan')}"
        trouble = f", {c.failed:,} failed" if c.failed else ""
        trouble += f", {c.mispredicted:,} landed elsewhere" if c.mispredicted else ""
        lines.append(f"Cycle {number}: {c.end}: {c.message} ({figures}{trouble})")
    rows = [["EVICTED", "FROM", "REPLACEMENT", "ON", "AS PLANNED"]]
    for m in s.moves[:_MOST]:
        planned = m.status if m.expected is None else "yes" if m.expected else f"no, {m.predicted}"
        name = m.replacement.rpartition("/")[2]
        rows.append([f"{m.namespace}/{m.pod}", m.source, name, m.landed, planned])
    if len(rows) > 1:
        lines += ["", *columns(rows)]
    if len(s.moves) > _MOST:
        lines.append(f"  and {len(s.moves) - _MOST:,} more (-o json)")
    return lines


def _constraints(s: SimulationReport) -> list[str]:
    broken = [c for c in s.constraints if any(c.excess.values())]
    if not broken:
        return ["", f"Every constraint held at every moment: {plural(len(s.constraints), 'constraint')}."]
    moments = _moments(s)
    rows = [["WORKLOAD", "KEY", "MAX", *moments.values(), "STAYS"]]
    for c in broken[:_MOST]:
        name = f"{c.namespace}/{listing((w.rpartition('/')[2] for w in c.workloads), 2) or c.selector or ''}"
        found: list[Mapping[str, int]] = [getattr(c, m) for m in moments]
        left = str(c.excess["after"] or "")
        cells = (counts(domains) if domains else "-" for domains in found)
        rows.append([name, short_key(c.topology_key), str(c.max_skew), *cells, left])
    more = len(broken) - _MOST
    lines = ["", *columns(rows), *([f"  and {more:,} more (-o json)"] if more > 0 else [])]
    stays = [c for c in broken[:_MOST] if c.excess["after"]]
    if stays:
        lines += ["", "What stays, and why"]
    for c in stays:
        whose = f"{c.namespace}/{listing(c.workloads, 1)}, {short_key(c.topology_key)}"
        lines += (f"  {whose}: {reason}" for reason in c.reasons)
    return lines
