"""A fleet's report in the formats of a report."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rebalancer.errors import UserError
from rebalancer.report.exports.markdown import escape
from rebalancer.report.fleet.document import FleetReport, cells, headline
from rebalancer.report.formats import Format
from rebalancer.report.output import to_builtins, to_json
from rebalancer.report.wording import text

_HEADS = ("CLUSTER", "GRADE", "NODES", "PODS", "VIOLATED", "EXCESS", "EVICTIONS", "AT RISK")


def render_fleet(fleet: FleetReport, format: Format, *, width: int = 160) -> str:
    """The report in a format. Raises UserError for one that knows a single cluster only."""
    if format is Format.JSON:
        return to_json(fleet)
    if format is Format.YAML:
        from rebalancer.yaml import to_yaml

        return to_yaml(to_builtins(fleet))
    if format is Format.CSV:
        return _csv(fleet)
    if format is Format.MARKDOWN:
        return _markdown(fleet)
    if format is Format.HTML:
        from rebalancer.report.fleet.page import to_html

        return to_html(fleet)
    if format is Format.OPENREPORTS:
        raise UserError("-o openreports is of one cluster", "ask for each cluster by itself")
    return _table(fleet, width)


def _table(fleet: FleetReport, width: int) -> str:
    from rich.console import Console

    from rebalancer.report.terminal.rows import Rows, plain

    rows = Rows(*_HEADS)
    for c in fleet.clusters:
        rows.add_row(*(plain(text.clean(cell)) for cell in cells(c)))
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, force_terminal=False, highlight=False, markup=False, emoji=False
    )
    console.print(headline(fleet), soft_wrap=True)
    console.print()
    console.print(rows.table())
    console.print()
    console.print("The report of one cluster: --context NAME, or its file.", soft_wrap=True)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def _markdown(fleet: FleetReport) -> str:
    def lines() -> Iterator[str]:
        yield "## Topology spread of a fleet"
        yield ""
        yield f"**{escape(headline(fleet))}**"
        yield ""
        yield "| " + " | ".join(head.lower() for head in _HEADS) + " |"
        yield "|" + "---|" * len(_HEADS)
        for c in fleet.clusters:
            yield "| " + " | ".join(escape(cell) for cell in cells(c)) + " |"

    return "\n".join(lines()) + "\n"


def _csv(fleet: FleetReport) -> str:
    """The constraints of all clusters, with the cluster in the first column."""
    import csv

    from rebalancer.report.exports.spreadsheet import cell, columns, rows

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("cluster", *columns()))
    for c in fleet.clusters:
        if c.report is not None:
            writer.writerows((cell(c.name), *row) for row in rows(c.report))
    return buffer.getvalue()
