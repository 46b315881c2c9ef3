"""The site of docs/: every page is in it, and a link that leads nowhere fails its build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.site import ROOT, on_page_markdown

LEFT_OUT = {"index.md"}
"""Made of the README."""


def test_every_page_has_its_place_in_the_menu() -> None:
    parts = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = [page for part in parts for pages in part.values() for page in pages]
    assert sorted(listed) == sorted({p.name for p in (ROOT / "docs").glob("*.md")} | LEFT_OUT)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_what_belongs_to_an_item_of_a_list_is_in_it_on_the_site_too(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"(?m)^ {1,3}```", text), "four blanks before a block"
    assert not re.search(r"(?m)^ +```\n(\d+\.|[-*]) ", text), "an empty line before the next item"


class _Page:
    """As much of a page as links need."""

    def __init__(self, uri: str) -> None:
        self.file = self
        self.src_uri = uri


@pytest.mark.parametrize(
    ("page", "text", "told"),
    [
        ("index.md", "[x](docs/faq.md#a)", "[x](faq.md#a)"),
        ("index.md", "[x](LICENSE)", "x"),
        ("faq.md", "[x](../README.md#install)", "[x](index.md#install)"),
        ("faq.md", "[x](../config/rebalancer.yaml) [y](#z) [w](https://example.org)", "x [y](#z) [w](https://example.org)"),
    ],
)
def test_links_out_of_the_folder_are_words(page: str, text: str, told: str) -> None:
    assert on_page_markdown(text, _Page(page)) == told


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    for part in ("docs", "tests/docs"):
        shutil.copytree(ROOT / part, tmp_path / part)
    for part in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / part, tmp_path)
    build = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # --quiet would hide what strict counts
    assert subprocess.run(build, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "dist/site/search/search_index.json").exists()
    with (tmp_path / "docs" / "faq.md").open("a") as page:
        page.write("\n[gone](nowhere.md)\n")
    assert subprocess.run(build, cwd=tmp_path, check=False).returncode != 0
