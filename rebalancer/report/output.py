"""Documents as JSON, and reports as text for a terminal or a pipe."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from rebalancer.model.reason import HIDDEN
from rebalancer.report.document import SHAPES, Field, Report
from rebalancer.report.formats import Color
from rebalancer.report.words import Showing
from rebalancer.spread.constraint import PerDomain

if TYPE_CHECKING:
    from rich.console import Console

    from rebalancer.report.terminal import Rows

_LARGE = 4_000
"""Bytes from which on names or figures are one line: the nodes that an eviction may lead to, counts by node.
Of a report on thousands of nodes two fifths would be blanks else."""
_PIPED_WIDTH = 140
"""Width if the output is not a terminal; wide enough for most rows."""


def to_builtins(document: Struct) -> Any:
    """A document as dictionaries, lists and plain values."""
    return msgspec.to_builtins(_plain(document), enc_hook=_counts)


def to_json(document: Struct) -> str:
    """A document as JSON, indented but for long lists of names and figures. Characters that could act on a
    terminal are escaped."""
    return b"".join(json_pieces(document)).decode()


def json_pieces(document: Struct) -> Iterator[bytes]:
    """A document as JSON in pieces: documents are written by members, lists of them by elements."""
    yield from _members(document, 0)
    yield b"\n"


def _members(document: Struct, columns: int) -> Iterator[bytes]:
    between, margin = b"{", b"\n" + b" " * columns
    before, said = None, [b""]
    for key, value in _said(document):
        yield between + margin + b"  " + msgspec.json.encode(key) + b": "
        between = b","
        # Thousands of constraints have the same counts of thousands of nodes before the plan and after it.
        if not isinstance(value, PerDomain):
            yield from _value(value, columns + 2)
            continue
        if value is not before:
            before, said = value, [*_value(value, columns + 2)]
        yield from said
    yield margin + b"}"


def _said(document: Struct) -> Iterator[tuple[str, object]]:
    """What the JSON has of an object, name by name."""
    for name, _, get in members(type(document)):
        value = get(document)
        if value is not msgspec.UNSET:
            yield name, value


@cache
def members(kind: type[Struct]) -> tuple[Field, ...]:
    """The fields of its shape, or, of what is a document only, its own."""
    if kind in SHAPES:
        return SHAPES[kind].fields
    return tuple((f.encode_name, f.type, attrgetter(f.name)) for f in msgspec.structs.fields(kind))


def _value(value: object, columns: int) -> Iterator[bytes]:
    margin = b"\n" + b" " * columns
    if isinstance(value, tuple) and value and isinstance(value[0], Struct):
        for i, element in enumerate(value):
            yield (b"," if i else b"[") + margin + b"  "
            yield from _value(element, columns + 2)
        yield margin + b"]"
        return
    named = [v for _, v in _said(value) if isinstance(v, PerDomain)] if isinstance(value, Struct) else []
    text = (
        b"" if any(len(v) > _LARGE for v in named) else msgspec.json.encode(_plain(value), enc_hook=_counts)
    )
    if isinstance(value, Struct) and (not text or len(text) > _LARGE):
        yield from _members(value, columns)
        return
    if len(text) <= _LARGE:
        # Line ends within strings are escaped.
        text = msgspec.json.format(text, indent=2).replace(b"\n", margin)
    if not text.isascii() or b"\x7f" in text:
        text = harmless(text.decode()).encode()
    yield text


def _plain(value: object) -> object:
    """An object, and those in it, as dictionaries."""
    if isinstance(value, Struct):
        return {name: _plain(found) for name, found in _said(value)}
    if isinstance(value, tuple) and value and isinstance(value[0], Struct):
        return [_plain(element) for element in value]
    return value


def _counts(value: object) -> dict[str, int]:
    """Counts per domain as what JSON and YAML can say: made only while they are written."""
    if isinstance(value, PerDomain):
        return value.plain()
    raise NotImplementedError(f"a report has no {type(value).__name__}")


def harmless(json: str) -> str:
    """JSON in which characters that could act on a terminal are escaped. They only occur in strings, where
    the escape means the same."""
    return HIDDEN.sub(lambda m: f"\\u{ord(m.group()):04x}", json)


def render_plan(report: Report, stream: IO[str]) -> str:
    """The verdict, and every eviction of the plan."""
    showing = Showing(top=len(report.evictions), plan=True)
    return render_table(report, stream, showing).rstrip()


def render_table(report: Report, stream: IO[str] | None, showing: Showing, *, wide: bool = False) -> str:
    """The report as tables, as wide as the terminal. `wide`: with more columns."""
    from rebalancer.report.terminal import write_table

    console = _console(stream, showing.color, 200 if wide else 0)
    write_table(report, console, wide=wide, showing=showing)
    return _written(console)


def render_lines(parts: Iterable[str | Rows], stream: IO[str] | None, *, wide: bool = False) -> str:
    """Sentences and tables as plain text, as wide as the terminal; in a pipe each sentence is one line.
    `wide`: each row is one line."""
    from rebalancer.report.terminal import INDENT, Rows, put

    console, piped = _console(stream, Color.NEVER), stream is None or not stream.isatty()
    for part in parts:
        table = isinstance(part, Rows)
        put(console, part, INDENT if table else 0, lined=wide if table else piped)
    return _written(console)


def _console(stream: IO[str] | None, color: Color, least: int = 0) -> Console:
    """As wide as the stream, and at least so wide if that is no terminal."""
    from rich.console import Console

    target = Console(file=stream) if stream is not None else Console(file=io.StringIO(), force_terminal=False)
    width = target.width if target.is_terminal else _PIPED_WIDTH
    coloured = color is Color.ALWAYS or (color is Color.AUTO and target.is_terminal and not target.no_color)
    return Console(
        file=io.StringIO(),
        width=width if target.is_terminal else max(width, least),
        force_terminal=coloured,
        color_system=(target.color_system or "256") if coloured else None,  # type: ignore[arg-type]
        no_color=not coloured,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))
