"""Compares verdicts with recorded ones: what differs, by family and part.

python tests/conformance/compare.py RECORDED.jsonl[.gz] VERDICTS.jsonl[.gz]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.replay import Json, read_lines


def _reasons(reasons: list[str]) -> object:
    return sorted(reasons) if len(reasons) > 1 else reasons


def _plain(filter_: dict[str, Any]) -> dict[str, object]:
    return {
        node: None if r is None else (r["plugin"], r["code"], _reasons(r["reasons"]))
        for node, r in filter_.items()
    }


def differences(recorded: Json, ours: Json) -> Iterator[tuple[str, str]]:
    """(part, text) of each difference between two verdicts on one case."""
    if len(recorded["incoming"]) != len(ours["incoming"]):
        yield "pods", f"{len(recorded['incoming'])} recorded, {len(ours['incoming'])} ours"
    for want, have in zip(recorded["incoming"], ours["incoming"], strict=False):
        where = f"{recorded['id']} {want['pod']}"
        if want.get("preFilter") != have.get("preFilter"):
            yield "preFilter", f"{where}: {want.get('preFilter')} != {have.get('preFilter')}"
        a, b = _plain(want["filter"]), _plain(have["filter"])
        for node in a.keys() | b.keys():
            if a.get(node, "absent") != b.get(node, "absent"):
                yield "filter", f"{where} {node}: {a.get(node)} != {b.get(node)}"
        for part in ("filterByPlugin", "weightedScoresByPlugin"):
            for plugin in sorted(want[part].keys() | have[part].keys()):
                x, y = want[part].get(plugin), have[part].get(plugin)
                if part == "filterByPlugin" and x is not None and y is not None:
                    x = {n: _reasons(r) for n, r in x.items()}
                    y = {n: _reasons(r) for n, r in y.items()}
                if x != y:
                    yield f"{part} {plugin}", f"{where}: {x} != {y}"
        if want["totalScore"] != have["totalScore"]:
            yield "totalScore", f"{where}: {want['totalScore']} != {have['totalScore']}"


def main(recorded: Path, ours: Path) -> int:
    """Prints up to five differences of each part, then the figures."""
    seen: Counter[str] = Counter()
    cases = wrong = 0
    for want, have in zip(read_lines(recorded), read_lines(ours), strict=True):
        found = list(differences(want, have))
        cases += 1
        wrong += bool(found)
        for part, text in found:
            seen[part] += 1
            if seen[part] <= 5:
                print(f"{part}: {text[:1500]}")
    print(f"{cases - wrong} of {cases} cases agree ({100 * (cases - wrong) / cases:.2f} %)")
    for part, count in sorted(seen.items()):
        print(f"  {part}: {count} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
