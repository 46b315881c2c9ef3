"""Records the demo: `python -m tests.docs.recording` runs it, writes docs/demo.cast and docs/pictures/demo.svg.

The cast is asciicast v2 (`asciinema play docs/demo.cast`); the picture shows the same lines, each at its time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
CAST, PICTURE = DOCS / "demo.cast", DOCS / "pictures" / "demo.svg"
WIDTH, SHOWN, _LINE = 132, 34, 17
Lines = Sequence[tuple[float, str]]


def record() -> list[tuple[float, str]]:
    """The lines of a demo in a pipe, with the seconds at which they came."""
    command = [sys.executable, "-u", "-m", "rebalancer", "demo"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        return [(round(time.monotonic() - began, 2), line.rstrip("\n")) for line in process.stdout]


def cast(lines: Lines) -> str:
    """As asciicast v2."""
    head = {"version": 2, "width": WIDTH, "height": SHOWN, "title": "rebalancer demo"}
    rows = [json.dumps(head), json.dumps([0.0, "o", "$ rebalancer demo\r\n"])]
    return "\n".join(
        [*rows, *(json.dumps([t, "o", f"{line}\r\n"], ensure_ascii=False) for t, line in lines), ""]
    )


def lines_of(text: str) -> list[tuple[float, str]]:
    """The lines of a cast, without the command."""
    return [(t, line.rstrip("\r\n")) for t, _, line in map(json.loads, text.splitlines()[2:])]


def picture(lines: Lines) -> str:
    """A terminal that scrolls as the lines come, and stays at its end."""
    end = lines[-1][0] + 6
    height = SHOWN * _LINE + 24
    steps = []
    for i, (t, _) in enumerate(lines):
        up = max(0, i + 2 - SHOWN) * _LINE
        steps.append(f"{t / end * 100:.2f}%{{transform:translateY(-{up}px)}}")
    rows = [(0.0, "$ rebalancer demo"), *lines]
    shown = [
        f'<text x="12" y="{28 + i * _LINE}" style="animation-delay:{t:.2f}s">{escape(line[:WIDTH])}</text>'
        for i, (t, line) in enumerate(rows)
    ]
    last = f"to{{transform:translateY(-{max(0, len(rows) + 1 - SHOWN) * _LINE}px)}}"
    style = (
        "text{font:13px ui-monospace,monospace;fill:#e4e8ee;white-space:pre;opacity:0;animation:a 1ms forwards}"
        "@keyframes a{to{opacity:1}}"
        f"g{{animation:s {end}s steps(1) forwards}}@keyframes s{{{''.join(steps)}{last}}}"
        "@media(prefers-reduced-motion){text,g{animation-duration:1ms!important;animation-delay:0s!important}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1060 {height}" role="img" '
        f'aria-label="A recording of rebalancer demo">\n<style>{style}</style>\n'
        f'<rect width="1060" height="{height}" rx="8" fill="#12161c"/>\n<g>\n'
        + "\n".join(shown)
        + "\n</g>\n</svg>\n"
    )


def main() -> None:
    """Records, and writes both."""
    lines = record()
    CAST.write_text(cast(lines))
    PICTURE.write_text(picture(lines))


if __name__ == "__main__":
    main()
