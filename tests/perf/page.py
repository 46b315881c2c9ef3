"""Table and plot of docs/performance.md: `python -m tests.perf.page FILE.json …`, files of `commands`."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import msgspec

from tests.perf.commands import Row

DOCS = Path(__file__).parents[2] / "docs"
PLOT = DOCS / "performance.svg"
_DRAWN = {
    "bare transfer of the pods, one list": "#767676",
    "snapshot -o FILE.json": "#0b6e4f",
    "report -o json": "#b3261e",
    "run: first cycle, balanced": "#1f5fbf",
}
"""What is drawn, and how."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 380, 60, 50, 20, 230


def table(rows: list[Row]) -> str:
    """A Markdown table: a line for each thing and size."""
    lines = [
        "| | pods | seconds | CPU seconds | memory | × bare transfer | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for what in dict.fromkeys(r.what for r in rows):
        lines += [_line(r) for r in rows if r.what == what]
    return "\n".join(lines) + "\n"


def _line(r: Row) -> str:
    ratio = f"{r.ratio:,.1f}" if r.ratio is not None else ""
    return (
        f"| {r.what} | {r.pods:,} | {r.seconds:,.2f} | {r.cpu:,.2f} | {r.peak:,.0f} MiB | {ratio} "
        f"| {r.result} |"
    )


def plot(rows: list[Row]) -> str:
    """CPU seconds over pods as SVG, both axes logarithmic: what grows with the pods is a straight line."""
    drawn = [r for r in rows if r.what in _DRAWN and r.cpu > 0]
    pods, cpu = [r.pods for r in drawn], [r.cpu for r in drawn]
    lowest, highest = math.floor(math.log10(min(cpu))), math.ceil(math.log10(max(cpu)))

    def x(value: float) -> float:
        share = math.log(value / min(pods)) / max(1e-9, math.log(max(pods) / min(pods)))
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        share = (math.log10(value) - lowest) / (highest - lowest)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            'font-family="sans-serif" font-size="13">'
        ),
        "<title>CPU seconds over the number of pods</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for power in range(lowest, highest + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{_LEFT} {at:.0f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.0f}" text-anchor="end">{10.0**power:g} s</text>')
    parts += [
        f'<text x="{x(value):.0f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{value:,}</text>'
        for value in sorted(set(pods))
    ]
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">pods; CPU seconds of our process</text>')
    for what, colour in _DRAWN.items():
        line = sorted((r for r in drawn if r.what == what), key=lambda r: r.pods)
        if not line:
            continue
        points = " ".join(f"{x(r.pods):.1f},{y(r.cpu):.1f}" for r in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(r.pods):.1f}" cy="{y(r.cpu):.1f}" r="3" fill="{colour}"/>' for r in line]
        end = line[-1]
        parts.append(
            f'<text x="{x(end.pods) + 8:.0f}" y="{y(end.cpu) + 4:.0f}" fill="{colour}">{what}</text>'
        )
    return "\n".join((*parts, "</svg>")) + "\n"


def main() -> None:
    """Prints the table and writes the plot."""
    rows = [r for name in sys.argv[1:] for r in msgspec.json.decode(Path(name).read_bytes(), type=list[Row])]
    print(table(rows), end="")
    PLOT.write_text(plot(rows))


if __name__ == "__main__":
    main()
