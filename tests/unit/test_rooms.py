"""Every folder of the package says what it is for, and none has more files than a glance takes in."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
AT_MOST = 20


def folders(top: str) -> list[Path]:
    """The folders below that have Python files."""
    return sorted({path.parent for path in (ROOT / top).rglob("*.py")})


def test_every_folder_says_in_its_init_what_it_is_for() -> None:
    assert [folder for folder in folders("rebalancer") if not _said(folder / "__init__.py")] == []


def test_no_folder_has_more_than_twenty_files() -> None:
    counts = {
        str(folder.relative_to(ROOT)): len(list(folder.glob("*.py")))
        for top in ("rebalancer", "tests")
        for folder in folders(top)
    }
    assert {folder: n for folder, n in counts.items() if n > AT_MOST} == {}


def _said(file: Path) -> bool:
    return file.exists() and bool(ast.get_docstring(ast.parse(file.read_text())))
