"""Every plan is the frozen one, byte for byte."""

from __future__ import annotations

import pytest

from tests.golden.cases import Case, cases
from tests.golden.frozen import FOLDER, difference, planned


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.slow else []) for c in cases()]
)
def test_the_plan_is_the_frozen_one(case: Case) -> None:
    found = difference(case, planned(case))
    assert not found, f"{found}\n(python -m tests.golden --write {case.name}, if the change is meant)"


def test_every_file_has_its_case() -> None:
    assert {p.name.split(".")[0] for p in FOLDER.iterdir()} == {c.name for c in cases()}
