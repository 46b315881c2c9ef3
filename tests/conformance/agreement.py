"""Replays every recording and prints how far the engine agrees: the table of docs/scheduler.md.

    python -m tests.conformance.agreement

Exit code 1 if anything differs, or if the document shows another table; the first differences follow it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.compare import PARTS, compared
from tests.conformance.recordings import recorded, sets, versions
from tests.conformance.replay import replay

_NOT_BUILT = {"gatednom-1": "1.37 counts the nomination of a gated pod (#139057), which this build lacks"}
OTHERWISE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("first", "1.36.2"): {
        "sequence-22": "two pods of one node share a host port, which was recorded as taken until both were "
        "gone; the scheduler's own books free it with the first"
    },
    ("next", "1.37.0"): _NOT_BUILT,
    ("next", "1.38.0"): _NOT_BUILT,
}
"""Recordings that are not how the scheduler works, with the reason, by set and version."""

BUILT = ("1.37.0", "1.38.0")
"""No released schedulers, but 1.36.2 with the parts of these versions that could be built (RECORDING.md)."""

DOCUMENT = Path(__file__).parents[2] / "docs" / "scheduler.md"

COLUMNS = {
    "fits": "node takes the pod",
    "plugin": "plugin that decides",
    "reasons": "its reasons",
    "each plugin": "each filter alone",
    "scores": "scores",
    "totals": "totals",
    "preemption": "preemption",
}
"""The heading of each part in the table."""


def main() -> int:
    """Prints the table."""
    rows, differing = [], []
    for version in versions():
        total: Counter[str] = Counter()
        agreeing: Counter[str] = Counter()
        clusters = 0
        for set_ in (s for s in sets() if version in versions(s)):
            for one in recorded(set_, version):
                if one.case["id"] in OTHERWISE.get((set_, version), {}):
                    continue
                clusters += 1
                for c in compared(one.verdict, replay(one.case, version)):
                    total[c.part] += 1
                    agreeing[c.part] += c.agrees
                    if not c.agrees:
                        differing.append(f"{version} {set_}: {c}"[:1000])
        name = f"{version}, as built" if version in BUILT else version
        rows.append([name, f"{clusters:,}", *(_share(agreeing[p], total[p]) for p in PARTS)])
    made = table([["version", "clusters", *(COLUMNS[p] for p in PARTS)], *rows])
    print(made)
    for text in differing[:50]:
        print(text, file=sys.stderr)
    shown = made in DOCUMENT.read_text(encoding="utf-8")
    if not shown:
        print(f"{DOCUMENT.name} shows another table", file=sys.stderr)
    return 1 if differing or not shown else 0


def table(rows: list[list[str]]) -> str:
    """A Markdown table, the first row its heading."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def _share(agreeing: int, total: int) -> str:
    """All, or how many of how many; nothing where nothing was recorded."""
    if not total:
        return "–"
    return f"all {total:,}" if agreeing == total else f"{agreeing:,} of {total:,}"


if __name__ == "__main__":
    sys.exit(main())
