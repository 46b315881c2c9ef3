"""The formats by name."""

from __future__ import annotations

import io
from typing import IO

import msgspec
from msgspec import Struct

from rebalancer.report.document import Report
from rebalancer.report.formats import Format
from rebalancer.report.text import HIDDEN

_PIPED_WIDTH = 140
"""Columns where there is no terminal: enough for most rows on one line."""


def render(report: Report, format: Format, *, stream: IO[str] | None = None) -> str:
    """The report in a format. `stream` is where it will be written, which decides width and colour of the
    tables; None: plain, of a fixed width."""
    if format is Format.JSON:
        return to_json(report)
    if format is Format.YAML:
        from rebalancer.yaml import to_yaml

        return to_yaml(msgspec.to_builtins(report))
    if format is Format.MARKDOWN:
        from rebalancer.report.markdown import to_markdown

        return to_markdown(report)
    if format is Format.HTML:
        from rebalancer.report.html import to_html

        return to_html(report)
    return _table(report, wide=format is Format.WIDE, stream=stream)


def to_json(document: Struct) -> str:
    """Any document as JSON, indented; characters that could act on a terminal are escaped."""
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return harmless(encoded) + "\n"


def harmless(json: str) -> str:
    """JSON without characters that could act on a terminal: only strings hold them, and there an escape means
    the same."""
    return HIDDEN.sub(lambda m: f"\\u{ord(m.group()):04x}", json)


def _table(report: Report, *, wide: bool, stream: IO[str] | None) -> str:
    from rich.console import Console

    from rebalancer.report.table import write_table

    target = Console(file=stream) if stream is not None else Console(file=io.StringIO(), force_terminal=False)
    width = target.width if target.is_terminal else _PIPED_WIDTH
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(width, 200) if wide and not target.is_terminal else width,
        force_terminal=target.is_terminal,
        color_system=target.color_system if target.is_terminal else None,  # type: ignore[arg-type]
        no_color=target.no_color,
        highlight=False,
        markup=False,
        emoji=False,
    )
    write_table(report, console, wide=wide)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))
