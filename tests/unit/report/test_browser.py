"""The HTML report in a real browser: what its script makes of long lists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebalancer.report.building import build_report
from rebalancer.report.exports import render
from rebalancer.report.formats import Format
from tests.support.clusters.hand_made import stuck

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium (Debian: chromium) is not installed")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
ALONE = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
CARD = re.compile(r'<li id="(c\d+)"')


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 300 constraints, each with a name of its own; the last one's is odd."""
    made = build_report(*stuck(), generated_at=0.0, seconds=0.0)
    names = [f"w{i:03d}" for i in range(299)] + ["x<b>é\\u202e&amp;"]
    many = tuple(replace(made.constraints[0], workloads=(f"ReplicaSet/{name}",)) for name in names)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(replace(made, constraints=many), Format.HTML))
    return path


def dom(url: str, folder: Path, *flags: str) -> str:
    """The page after it was loaded, as a browser would write it down."""
    command = [str(CHROMIUM), *QUIET, *ALONE, f"--user-data-dir={folder}", *flags, "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_a_page_of_a_long_list_is_shown_with_what_turns_it(report: Path, tmp_path: Path) -> None:
    page = dom(report.as_uri(), tmp_path)
    assert CARD.findall(re.sub(r"(?s)<noscript>.*?</noscript>", "", page)) == [f"c{i}" for i in range(20)]
    assert "1–20 of 300" in page
    assert 'aria-label="Filter constraints"' in page


def test_a_link_to_a_constraint_turns_to_its_page_and_opens_it(report: Path, tmp_path: Path) -> None:
    page = dom(f"{report.as_uri()}#c299", tmp_path)
    assert CARD.findall(page) == [f"c{i}" for i in range(280, 300)]
    (card,) = re.findall(r'(?s)<li id="c299".*?<details([^>]*)>.*?<span class="name">(.*?)</span>', page)
    assert card == (' open=""', r"default/x&lt;b&gt;é\u202e&amp;amp;")


def test_a_link_by_name_finds_the_constraint_in_any_report(report: Path, tmp_path: Path) -> None:
    source = report.read_text()
    slug = re.findall(r'<li id="c250"[^>]* data-s="([^"]+)"', source)[0]
    assert slug.startswith("default-w250-zone-")
    page = dom(f"{report.as_uri()}#constraint={slug}", tmp_path)
    assert CARD.findall(page) == [f"c{i}" for i in range(240, 260)]
    (opened,) = re.findall(r'(?s)<li id="c250".*?<details([^>]*)>', page)
    assert opened == ' open=""'
    assert f'href="#constraint={slug}"' in page


def test_a_filter_is_part_of_the_address(report: Path, tmp_path: Path) -> None:
    page = dom(f"{report.as_uri()}#constraints=w12", tmp_path)
    assert CARD.findall(page) == [f"c{i}" for i in range(120, 130)]
    assert "(300 in all)" in page


def test_the_order_by_name_is_part_of_the_address_too(tmp_path: Path) -> None:
    made = build_report(*stuck(), generated_at=0.0, seconds=0.0)
    names = [f"w{i}" for i in range(30, 0, -1)]
    many = tuple(replace(made.constraints[0], workloads=(f"ReplicaSet/{name}",)) for name in names)
    path = tmp_path / "report.html"
    path.write_text(render(replace(made, constraints=many), Format.HTML))
    page = dom(f"{path.as_uri()}#constraints.by=name&constraints=w", tmp_path / "user")
    assert CARD.findall(page)[:3] == ["c29", "c28", "c27"], "w1, w2, w3: numbers as numbers"
    assert CARD.findall(dom(path.as_uri(), tmp_path / "user"))[:2] == ["c29", "c20"], "w1, w10"


def test_columns_sort_and_remedies_copy(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(
        render(build_report(*stuck(), generated_at=0.0, seconds=0.0), Format.HTML)
    )
    page = dom((tmp_path / "report.html").as_uri(), tmp_path / "user")
    assert re.search(r'<th class="n"><button type="button">pods now</button></th>', page)
    assert page.count('class="copy"') == page.count('class="copies"') > 0
