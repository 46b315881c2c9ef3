"""Every plan is the frozen one, byte for byte."""

from __future__ import annotations

import pytest

from tests.golden.cases import Case, cases
from tests.golden.frozen import FOLDER, difference, planned, told_apart


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] * case.slow + [pytest.mark.nightly] * case.nightly


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=_marks(c)) for c in cases()])
def test_the_plan_is_the_frozen_one(case: Case) -> None:
    found = difference(case, planned(case))
    assert not found, f"{found}\n(python -m tests.golden --write {case.name}, if the change is meant)"


def test_every_file_has_its_case() -> None:
    assert {p.name.split(".")[0] for p in FOLDER.iterdir()} == {c.name for c in cases()}


def test_a_large_plan_that_differs_everywhere_is_told_apart_from_its_first_difference_on() -> None:
    same, before, after = ["{"] * 5, ['"node": "a"'] * 200_000, ['"node": "b"'] * 200_000
    told = told_apart(same + before, same + after, lines=8).splitlines()
    assert told[0] == "from line 4 on:"
    assert told[3:8] == ["@@ -1,1000 +1,1000 @@", " {", " {", '-"node": "a"', '-"node": "a"']
    assert "further lines were not compared" in told[-1]
    assert told_apart(["a"], ["a"]) == ""
