"""Rows of plain text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.report.wording.text import clean


def columns(rows: Sequence[Sequence[str]], *, figures_right: bool = False) -> list[str]:
    """The rows, indented, each column as wide as its widest cell. `figures_right`: figures are aligned so."""
    cells = [[clean(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [
        figures_right and all(c.replace(",", "").isdigit() for c in column[1:])
        for column in zip(*cells, strict=True)
    ]
    return [
        "  " + "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        for row in cells
    ]
