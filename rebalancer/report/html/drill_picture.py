"""The worst failures as pairs of bars: pods that would be Pending today, and after the plan. This file
computes the geometry; the template draws it.
"""

from __future__ import annotations

from msgspec import Struct

from rebalancer.report.document import DrillReport

WIDTH = 640
"""In units of the drawing, in which text is 13 high."""
_LABELS = 200
_NUMBERS = 130
_ROW = 34
_TOP = 8
_LONGEST = 26


class Row(Struct, frozen=True):
    """One failure. `y`: of its label; `today`, `planned`: lengths of its bars; `says`: its figures."""

    label: str
    y: int
    today: int
    planned: int
    says: str


class Picture(Struct, frozen=True):
    """The bars. `says` describes the picture for screen readers."""

    says: str
    height: int
    rows: tuple[Row, ...]
    labels: int = _LABELS - 10
    start: int = _LABELS
    width: int = WIDTH

    @property
    def today(self) -> str:
        """The bars of today, as one path."""
        return "".join(_box(_LABELS, r.y - 14, r.today) for r in self.rows if r.today)

    @property
    def planned(self) -> str:
        """Those after the plan, below them."""
        return "".join(_box(_LABELS, r.y - 2, r.planned) for r in self.rows if r.planned)


def picture(report: DrillReport) -> Picture:
    """The worst failures, in their order."""
    most = max((max(f.most_pending, f.planned_most) for f in report.worst), default=0) or 1
    scale = (WIDTH - _LABELS - _NUMBERS) / most
    rows = []
    for i, f in enumerate(report.worst):
        said = f.says_pending + (f" → {f.says_planned} planned" if report.planned else "")
        label = f.name if len(f.name) <= _LONGEST else f"{f.name[: _LONGEST - 1]}…"
        rows.append(
            Row(
                label=label,
                y=_TOP + 18 + i * _ROW,
                today=round(f.most_pending * scale),
                planned=round(max(f.planned_most, 0) * scale),
                says=said,
            )
        )
    told = "; ".join(f"{r.label} {r.says}" for r in rows)
    return Picture(f"Pods Pending after each failure: {told}", _TOP + len(rows) * _ROW + 4, tuple(rows))


def _box(x: int, y: int, width: int) -> str:
    return f"M{x} {y}h{width}v10h{-width}z"
