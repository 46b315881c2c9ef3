"""Rows of plain text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.report.wording.text import clean


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows, indented, each column as wide as its widest cell."""
    cells = [[clean(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
