"""Pages and pictures that are made by code are as the code makes them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from tests.docs import stops
from tests.docs.pictures import FOLDER, PICTURES
from tests.docs.recording import CAST, PICTURE, cast, lines_of, picture
from tests.docs.reference import PAGE, ROOT, reference


def test_the_reference_of_the_json_is_that_of_the_schema() -> None:
    assert PAGE.read_text() == reference(), "python -m tests.docs.reference"


def test_the_page_of_what_stops_an_eviction_is_that_of_the_checks() -> None:
    assert stops.PAGE.read_text() == stops.page(), "python -m tests.docs.stops"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_drawn_says_what_it_shows_and_is_in_the_page(name: str) -> None:
    drawn = PICTURES[name]()
    assert (FOLDER / f"{name}.svg").read_text() == drawn, "python -m tests.docs.pictures"
    root = ET.fromstring(drawn)
    pages = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("concepts", "operations"))
    assert f"![{root.attrib['aria-label']}](pictures/{name}.svg)" in pages


def test_the_recording_is_a_cast_of_a_whole_demo_and_the_picture_is_made_of_it() -> None:
    text = CAST.read_text()
    lines = lines_of(text)
    assert json.loads(text.splitlines()[0])["version"] == 2
    assert cast(lines) == text
    assert PICTURE.read_text() == picture(lines), "python -m tests.docs.recording"
    assert [t for t, _ in lines] == sorted(t for t, _ in lines)
    said = " ".join(line for _, line in lines)
    for part in ("An embedded Kubernetes cluster after a zone outage", "wave 1 of 4", "Before and after"):
        assert part in said
    assert "Done: excess 22 → 2 with 14 evictions (at least 14 were needed)" in said
    assert "/work" not in said
    ET.fromstring(PICTURE.read_text())


def test_every_page_is_named_in_the_readme_or_by_a_page_that_is() -> None:
    pages = {p.name: p.read_text() for p in (ROOT / "docs").glob("*.md")}
    reached: set[str] = set()
    todo = [(ROOT / "README.md").read_text()]
    while todo:
        for name in re.findall(r"\]\((?:docs/)?([a-z-]+\.md)", todo.pop()):
            if name in pages and name not in reached:
                reached.add(name)
                todo.append(pages[name])
    assert set(pages) == reached
