"""The pages stay short enough to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST = 24_940


def words(text: str) -> int:
    """What has a letter or a digit; bars of tables and lines of drawings are none."""
    return sum(bool(re.search(r"\w", part)) for part in text.split())


def test_all_pages_together_have_so_many_words_at_most() -> None:
    counted = {page.name: words(page.read_text()) for page in PAGES}
    assert sum(counted.values()) <= MOST, counted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_a_heading_lead_to_one(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w/.-]*)#([\w-]+)\)", page.read_text()):
        there = (page.parent / target if target else page).read_text()
        headings = re.findall(r"^#+ (.*)$", there, re.M)
        slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert anchor in slugs, f"{target}#{anchor}"
