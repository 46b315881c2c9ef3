"""A plan as the text of its file, and the file."""

from __future__ import annotations

import difflib
import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

from rebalancer.findings import plan_with_findings
from rebalancer.report.building import build_report
from rebalancer.report.output import to_builtins
from tests.golden.cases import Case

FOLDER = Path(__file__).parent / "plans"
_MANY = 200
"""Domains of one constraint beyond which only those are kept whose count the plan changes."""

_COMPARED = 1000
"""Lines from the first difference on that are compared."""


def planned(case: Case) -> str:
    """The case's report as indented JSON, without the seconds that planning took."""
    snapshot = case.snapshot()
    report = build_report(
        plan_with_findings(snapshot, case.options), snapshot, generated_at=snapshot.now, seconds=0.0
    )
    document: dict[str, Any] = to_builtins(report)
    for constraint in document["constraints"]:
        before, after = constraint["domains"], constraint["after"]
        if len(before) > _MANY:
            constraint["domains"] = {d: n for d, n in before.items() if after.get(d) != n}
            constraint["after"] = {d: n for d, n in after.items() if before.get(d) != n}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def path_of(case: Case) -> Path:
    """The case's file."""
    return FOLDER / f"{case.name}.json.gz"


def frozen(case: Case) -> str:
    """What the file holds; "" where there is none yet."""
    path = path_of(case)
    return gzip.decompress(path.read_bytes()).decode() if path.exists() else ""


def freeze(case: Case, text: str) -> None:
    """Writes the file: the same bytes for the same text."""
    FOLDER.mkdir(exist_ok=True)
    path_of(case).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def difference(case: Case, text: str, lines: int = 60) -> str:
    """What differs from the file, as a unified diff of so many lines at most; "" if nothing does."""
    before = frozen(case)
    if before == text:
        return ""
    return told_apart(before.splitlines(), text.splitlines(), lines) or "differs in line ends only"


def told_apart(before: list[str], after: list[str], lines: int = 60) -> str:
    """A unified diff of so many lines at most, from the first line that differs on.

    difflib's time grows with the square of what it compares, and a large plan has very many lines.
    """
    first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if first is None:
        first = min(len(before), len(after))
    begin = max(0, first - 2)
    window = slice(begin, begin + _COMPARED)
    found = difflib.unified_diff(before[window], after[window], "frozen", "now", lineterm="", n=2)
    shown = [*islice(found, lines)]
    if not shown:
        return ""
    left = max(len(before), len(after)) - begin - _COMPARED
    return "\n".join(
        [f"from line {begin + 1} on:", *shown, *([f"… {left} further lines were not compared"] * (left > 0))]
    )
