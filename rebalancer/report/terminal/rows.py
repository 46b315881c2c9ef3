"""Tables for a terminal, whose names are plain text and whose control characters are visible."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from rebalancer.report.wording import text

INDENT = 2
_NUMBERS = frozenset({"MAX", "PODS", "LOST", "PLANNED", "BEST"})
_NAMES = frozenset({"WORKLOAD", "EVICT", "CLUSTER"})
_WHOLE = 36
"""Names of up to this many characters are not wrapped, however narrow the terminal, because people copy
them."""


class Rows:
    """The rows of a table, which are collected and then written."""

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)
        self.rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: Text) -> None:
        """Adds a row with as many cells as there are columns."""
        self.rows.append(cells)

    def first(self, most: int) -> Rows:
        """The first of them."""
        made = Rows(*self.columns)
        made.rows = self.rows[:most]
        return made

    def table(self) -> Table:
        """The table, fitted to the terminal; cells that are too wide are wrapped."""
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for i, name in enumerate(self.columns):
            longest = max((len(row[i]) for row in self.rows), default=0) if name in _NAMES else 0
            made.add_column(
                name,
                overflow="fold",
                justify="right" if name in _NUMBERS else "left",
                min_width=min(longest, _WHOLE) or None,
            )
        for row in self.rows:
            made.add_row(*row)
        return made

    def lines(self) -> Text:
        """One line for each row, aligned and never wrapped. rich takes half a minute for thousands of
        rows."""
        cells = [self.columns, *([c.plain.replace("\n", " ") for c in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        return Text(
            "\n".join(
                " " * INDENT + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
                for row in cells
            )
        )


def plain(words: str, style: str = "") -> Text:
    """Text without markup, with control characters made visible."""
    return Text("\n".join(text.clean(line) for line in words.split("\n")), style=style)
