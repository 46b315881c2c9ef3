"""That the mistakes can be made, and that their tables fit the code. Whether tests see them: `python -m
tests.mutation`."""

from __future__ import annotations

import pytest

from tests.mutation.operators import mutants
from tests.mutation.sample import CLOSEST, EQUIVALENT, LEAST, ROOT, SIZE, all_mutants, sample

MADE = [
    ("if a < b:\n    pass", "if (a <= b):"),
    ("x = a == b", "x = (a != b)"),
    ("x = a and b", "x = (a or b)"),
    ("x = not a", "x = (a)"),
    ("if a:\n    pass", "if not a:"),
    ("WAIT = 3", "WAIT = (2)"),
    ("WAIT = 3600.0", "WAIT = (7200.0)"),
    ("def f() -> int | None:\n    return g()", "f: return g()  →  return None"),
    ("spent.add(pod)", "pass"),
    ("x = Rank(excess, evictions, certain)", "x = (Rank(excess, certain, evictions))"),
    ("x = excess, evictions", "x = ((evictions, excess))"),
]


@pytest.mark.parametrize(("code", "mistake"), MADE)
def test_each_kind_of_mistake_is_made(code: str, mistake: str) -> None:
    assert [m for m in mutants("f.py", code.encode()) if mistake in m.key]


@pytest.mark.parametrize(
    "code", ["log.info(x)", "x = f'{a < b}'", "x: tuple[int, str]", "max(a, b)", "X = Mapping[str, int]"]
)
def test_what_decides_nothing_is_left_alone(code: str) -> None:
    assert [m.key for m in mutants("f.py", code.encode()) if m.text != b"pass"] == []


def test_the_sample_is_a_hundred_mistakes_of_all_files_and_each_is_python() -> None:
    drawn = sample()
    assert len({(m.path, m.key) for m in drawn}) == SIZE
    for path in CLOSEST:
        assert sum(m.path == path for m in drawn) >= LEAST
    for mutant in drawn:
        compile(mutant.text, mutant.path, "exec")


def test_the_tables_fit_the_code() -> None:
    assert [t for tests in CLOSEST.values() for t in tests if not (ROOT / t).exists()] == []
    known = {m.key for found in all_mutants().values() for m in found}
    assert [key for key in EQUIVALENT if key not in known] == [], "no longer in the code: take it out"
