"""Every file and folder of the code that a page names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED = re.compile(r"`([a-z_./]+(?:\.py|/))`")


def code() -> Iterator[Path]:
    """All files and folders of the package and of its tests, and what is deployed."""
    for top in ("rebalancer", "tests", "config", "deploy", "docs"):
        yield ROOT / top
        yield from (path for path in (ROOT / top).rglob("*") if path.suffix in {"", ".py"})


def missing(text: str, paths: set[str]) -> list[str]:
    """What a text names of the code that is not there; a path may leave out the folders above it."""
    return [
        name
        for name in NAMED.findall(text)
        if not any(path.endswith(f"/{name.strip('/')}") for path in paths)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    assert missing(page.read_text(), {str(path) for path in code()}) == []


def test_a_file_that_is_gone_is_noticed() -> None:
    text = "see `spread/skew.py`, `planner/` and `spread/gone.py`"
    assert missing(text, {"/x/rebalancer/spread/skew.py", "/x/rebalancer/planner"}) == ["spread/gone.py"]


def test_every_promise_of_the_security_model_names_its_test() -> None:
    table = (ROOT / "docs" / "security.md").read_text().split("## Threats")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    assert [row for row in rows if "(`tests/" not in row] == []
