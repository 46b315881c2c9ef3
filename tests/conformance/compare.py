"""Compares verdicts with recorded ones: what differs, by part.

python tests/conformance/compare.py RECORDED.jsonl[.gz|.xz] VERDICTS.jsonl[.gz|.xz]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.conformance.recordings import Json, read_lines

PARTS = ("fits", "plugin", "reasons", "each plugin", "scores", "totals", "preemption")
"""`fits`: whether a node takes the pod; `plugin`: which one decides, with its status code; `each plugin`:
each filter asked alone, with its reasons."""
LISTED_WITHOUT_EFFECT = ("NodeAffinity", "VolumeBinding")
"""Score plugins that 1.29 lists with 0 for every node where later versions skip them."""


class Compared(NamedTuple):
    """One thing that was compared: where it stands, what was recorded and what the other verdict has."""

    part: str
    where: str
    recorded: object
    ours: object

    @property
    def agrees(self) -> bool:
        """Whether the two are the same."""
        return self.recorded == self.ours

    def __str__(self) -> str:
        """The difference, as a line."""
        return f"{self.part}: {self.where}: recorded {self.recorded}, ours {self.ours}"


def compared(recorded: Json, ours: Json) -> Iterator[Compared]:
    """Everything in a recorded verdict on a case, beside what the other one says of it."""
    yield Compared("fits", recorded["id"], len(recorded["incoming"]), len(ours["incoming"]))
    for want, have in zip(recorded["incoming"], ours["incoming"], strict=False):
        yield from _pod(f"{recorded['id']} {want['pod']}", want, have)


def differences(recorded: Json, ours: Json) -> list[str]:
    """What differs between a recorded verdict on a case and another, as lines."""
    return [str(c) for c in compared(recorded, ours) if not c.agrees]


def _pod(where: str, want: Json, have: Json) -> Iterator[Compared]:
    yield Compared("fits", where, want.get("error"), have.get("error"))
    a, b = want.get("preFilter") or {}, have.get("preFilter") or {}
    yield Compared("fits", f"{where} before any node", not a, not b)
    yield from _rejections(f"{where} before any node", a, b)
    for node in sorted(want["filter"].keys() | have["filter"].keys()):
        x, y = want["filter"].get(node, {}), have["filter"].get(node, {})
        yield Compared("fits", f"{where} {node}", x is None, y is None)
        yield from _rejections(f"{where} {node}", x or {}, y or {})
    for plugin in sorted(want["filterByPlugin"].keys() | have["filterByPlugin"].keys()):
        p, q = want["filterByPlugin"].get(plugin, {}), have["filterByPlugin"].get(plugin, {})
        for node in sorted(p.keys() | q.keys()):
            yield Compared(
                "each plugin", f"{where} {plugin} {node}", _reasons(p.get(node)), _reasons(q.get(node))
            )
    for plugin in sorted(want["weightedScoresByPlugin"].keys() | have["weightedScoresByPlugin"].keys()):
        s, t = (w["weightedScoresByPlugin"].get(plugin) for w in (want, have))
        if plugin in LISTED_WITHOUT_EFFECT and t is None and s is not None and not any(s.values()):
            continue
        yield Compared("scores", f"{where} {plugin}", s, t)
    yield Compared("totals", where, want["totalScore"], have["totalScore"])
    if "preempt" in want:
        yield Compared("preemption", where, _preemption(want), _preemption(have))


def _rejections(where: str, want: Json, have: Json) -> Iterator[Compared]:
    if want or have:
        yield Compared("plugin", where, _decider(want), _decider(have))
        yield Compared("reasons", where, _reasons(want.get("reasons")), _reasons(have.get("reasons")))


def _decider(rejection: Json) -> tuple[Any, Any]:
    return rejection.get("plugin"), rejection.get("code")


def _reasons(reasons: list[str] | None) -> list[str] | None:
    """Several reasons of one plugin are a set."""
    return sorted(reasons) if reasons else reasons


def _preemption(verdict: Json) -> dict[str, list[str]]:
    found: dict[str, str] = verdict.get("preempt", {})
    return {node: sorted(text.split("; ")) for node, text in found.items()}


def main(recorded: Path, ours: Path) -> int:
    """Prints up to five differences of each part, then the figures."""
    seen: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for want, have in zip(read_lines(recorded), read_lines(ours), strict=True):
        for c in compared(want, have):
            total[c.part] += 1
            seen[c.part] += not c.agrees
            if not c.agrees and seen[c.part] <= 5:
                print(str(c)[:1500])
    for part in PARTS:
        print(f"{part}: {total[part] - seen[part]:,} of {total[part]:,} agree")
    return 1 if seen.total() else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
