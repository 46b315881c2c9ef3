"""Commands in Markdown: the ```console blocks with their output, and the lines of ```sh blocks."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

_BLOCK = re.compile(r"^( *)```(console|sh)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LEFT_OUT = "⋮"
_PASSING = (
    (re.compile(r"\b\d+(\.\d+)? (s|ms)\b"), "N s"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"-[a-z0-9]{10}-[a-z0-9]{5}\b"), "-POD"),
    (re.compile(r"(?<=web-13e-)[a-z0-9]{5}\b"), "POD"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
)
"""What no two runs have in common: times, names that owners give, ports."""


class Shown(Struct, frozen=True):
    """A command, and the lines that a page shows of its output."""

    page: str
    command: str
    lines: tuple[str, ...]


def commands(page: Path, kind: str) -> list[Shown]:
    """The commands in blocks of a kind, in order. Of sh only those of rebalancer."""
    found: list[Shown] = []
    for indent, of, body in _BLOCK.findall(page.read_text()):
        if of != kind:
            continue
        text = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
        text = re.sub(r"\\\n\s*", " ", text)
        if kind == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append(Shown(page.name, _bare(command), tuple(output.splitlines())))
        else:
            found += [Shown(page.name, _bare(line), ()) for line in text.splitlines()]
    return [f for f in found if f.command.startswith("rebalancer ")]


def missing(shown: Shown, output: str) -> str:
    """The first line of the page that the output does not have, in order; "" if it has all. Where lines are
    broken makes no difference."""
    real, at = _lasting(output), 0
    for line in shown.lines:
        if line.strip() and line.strip() != _LEFT_OUT:
            found = real.find(_lasting(line), at)
            if found < 0:
                return line
            at = found + len(_lasting(line))
    return ""


def _bare(command: str) -> str:
    """Without a comment, without the program's folder."""
    return re.sub(r"^\S*/(?=rebalancer )", "", re.sub(r"\s+#.*", "", command)).strip()


def _lasting(text: str) -> str:
    for pattern, stands in _PASSING:
        text = pattern.sub(stands, text)
    return " ".join(text.split())
