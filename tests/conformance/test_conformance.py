"""The engine agrees with the recorded kube-scheduler, case by case."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.conformance.compare import differences
from tests.conformance.replay import Json, read_lines, replay

HERE = Path(__file__).parent


def families() -> dict[str, list[tuple[Json, Json]]]:
    """(case, recorded verdict) by family."""
    found: dict[str, list[tuple[Json, Json]]] = defaultdict(list)
    recorded = zip(read_lines(HERE / "cases.jsonl.gz"), read_lines(HERE / "verdicts.jsonl.gz"), strict=True)
    for case, verdict in recorded:
        assert case["id"] == verdict["id"]
        found[case["id"].rsplit("-", 1)[0]].append((case, verdict))
    return found


FAMILIES = families()


def test_every_recorded_case_is_there() -> None:
    assert sum(map(len, FAMILIES.values())) == 950


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_agrees_with_kube_scheduler(family: str) -> None:
    wrong = [d for case, verdict in FAMILIES[family] for d in differences(verdict, replay(case))]
    assert wrong == []
