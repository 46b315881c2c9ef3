"""The HTML report: whole in one file, harmless whatever names hold, complete without its script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rebalancer.findings import plan_with_findings
from rebalancer.report.building import build_report
from rebalancer.report.document import Report
from rebalancer.report.exports import render
from rebalancer.report.formats import Format
from rebalancer.report.page import band, panels
from tests.support.build import deployment, node, pdb, replica_set, snapshot
from tests.support.clusters.hand_made import at_rest, mended, result, shop, stuck
from tests.support.clusters.scenarios import scenario


class Page(HTMLParser):
    """What a browser makes of the page, roughly: elements, their attributes, ids, text."""

    VOID = frozenset({"meta", "path", "input", "link", "br", "img"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(source)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    @property
    def says(self) -> str:
        return " ".join(" ".join(self.text).split())

    def values(self, attribute: str) -> list[str]:
        return [v for _, a in self.elements if (v := a.get(attribute)) is not None]


def html_of(made: Any, **more: Any) -> str:
    report = build_report(*made, generated_at=1780272000.0, seconds=0.1)
    return render(replace(report, **more), Format.HTML)


def planned(*things: Any) -> tuple[Any, Any]:
    cluster = snapshot(*things)
    return plan_with_findings(cluster), cluster


@pytest.mark.parametrize("made", [mended, stuck, at_rest, lambda: planned(scenario("random_cluster"))])
def test_it_is_one_file_that_needs_nothing_else(made: Any) -> None:
    page = Page(html_of(made()))
    assert {tag for tag, _ in page.elements}.isdisjoint({"link", "img", "iframe", "object", "form"})
    assert page.values("src") == []
    assert all(href.startswith("#") for href in page.values("href"))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {href[1:] for href in page.values("href")} <= set(ids)
    assert not [a for _, attrs in page.elements for a in attrs if a.startswith("on") or a == "style"]


def test_nothing_runs_but_the_script_whose_hash_the_page_names() -> None:
    source = html_of(mended())
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', source)
    for tag in ("script", "style"):
        [inline] = re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;;")


def test_it_tells_the_plan() -> None:
    says = Page(html_of(mended())).says
    for part in (
        "1 of 1 constraints violated, excess 3. 2 evictions in 2 waves restore balance",
        "71% with zone a, 43% at best, 43% planned · 7 pods",
        "excess 3 → 0, maxSkew 1",
        "Wave 2 1 eviction",
        "a-0 (zone a) → zone c (2 nodes) likely",
        "That fewer evictions cannot do it is proved.",
    ):
        assert part in says


def test_it_tells_what_stays_and_what_to_do() -> None:
    says = Page(html_of(stuck())).says
    for part in ("unfixable", "no-feasible-node", "add a node to zone b", "no budget covers it", "add a PDB"):
        assert part in says


def test_at_rest_it_is_short() -> None:
    page = Page(html_of(at_rest()))
    assert "Nothing to do: the only constraint holds." in page.says
    assert "Violated constraints" not in page.says


def test_pictures_tell_screen_readers_what_they_show() -> None:
    labels = [a["aria-label"] for t, a in Page(html_of(mended())).elements if t == "svg" and a.get("role")]
    assert labels == ["Now: a 5, b 1, c 1. Allowed: 1 to 2.", "Planned: a 3, b 2, c 2. Allowed: 2 to 3."]


def test_the_band_and_what_exceeds_it() -> None:
    report = build_report(*mended(), generated_at=0.0, seconds=0.0)
    now, later = panels(report.constraints[0])
    assert [(b.over > 0, b.change) for b in now.bars] == [(True, 0), (False, 0), (False, 0)]
    assert [(b.over > 0, b.change) for b in later.bars] == [(False, -2), (False, 1), (False, 1)]
    one = report.constraints[0]
    too_few = replace(one, constraint=replace(one.constraint, min_domains=4))
    assert band(too_few, {"a": 3, "b": 3}) == (0, 1)


def test_of_many_domains_those_are_drawn_that_change_or_stick_out() -> None:
    cluster = shop()
    before = {f"n{i}": 2 if i == 33 else 0 if i == 5 else 1 for i in range(40)}
    c = result(cluster, before, before | {"n33": 1, "n5": 1}, excess=1)
    report = build_report(
        replace(mended()[0], constraints=(c,), moves=()), cluster, generated_at=0.0, seconds=0.0
    )
    now, _ = panels(report.constraints[0])
    assert {"n5", "n33"} <= {b.name for b in now.bars}
    assert now.rest == "and 30 more domains with 1 pods"


def test_beyond_the_first_page_everything_is_there_without_the_script_too() -> None:
    report = build_report(*stuck(), generated_at=0.0, seconds=0.0)
    many = tuple(replace(report.constraints[0], workloads=(f"ReplicaSet/w{i}",)) for i in range(60))
    source = render(replace(report, constraints=many), Format.HTML)
    page = Page(source)
    assert len([1 for t, a in page.elements if t == "li" and a.get("data-k")]) == 60
    with_script = Page(re.sub(r"(?s)<noscript>.*?</noscript>", "", source))
    assert len(with_script.values("data-k")) == 20
    assert "60" in with_script.values("data-total")
    assert all(f"default/w{i} zone unfixable" in page.says for i in range(60))


MARKUP = (
    "</noscript></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}\x1b[31m\u202e\x00"
)


def hostile() -> tuple[Any, Any]:
    """A cluster whose names, labels and annotations are markup, as a file from a stranger can hold them."""
    zones = [f"{z}{MARKUP}" for z in "abc"]
    machines = [node(f"{z}-0").label("zone", name) for z, name in zip("abc", zones, strict=True)]
    web = deployment(f"web{MARKUP}").label_map({"app": MARKUP, MARKUP: MARKUP}).annotated({"x": MARKUP})
    web.spread("zone", 1, selector={"app": MARKUP}).placed({"a-0": 5, "b-0": 1})
    stuck_ = replica_set(f"db{MARKUP}").spread("zone", 1).selects(zone=zones[0]).placed({"a-0": 3})
    return planned(machines, web, stuck_, pdb(f"p{MARKUP}", {"app": MARKUP}, max_unavailable=1))


@pytest.mark.parametrize("format", Format)
def test_a_hostile_cluster_is_harmless_in_every_format(format: Format) -> None:
    plan_, cluster = hostile()
    assert plan_.findings
    assert any(MARKUP in f.object for f in plan_.findings)
    report = replace(
        build_report(plan_, cluster, generated_at=0.0, seconds=0.0, cluster=MARKUP), warnings=(MARKUP,)
    )
    shown = render(report, format)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    if format is Format.HTML:
        _harmless(shown)
    elif format is Format.MARKDOWN:
        outside = re.sub(r"(?s)`+yaml.*?\n  `+\n", "", shown)
        assert "<script>" not in re.sub(r"`[^`\n]*`", "", outside)
    elif format is Format.JSON:
        assert MARKUP in json.loads(shown)["evictions"][0]["pod"]
    elif format is Format.YAML:
        assert yaml.safe_load(shown)["cluster"] == MARKUP


def _harmless(shown: str) -> None:
    page = Page(shown)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not [a for _, attrs in page.elements for a in attrs if a.startswith("on")]
    assert "{{7*7}}" in page.says
    assert "\\x1b[31m" in page.says
    assert "</noscript></title>" in page.says


def test_markup_beyond_the_first_page_cannot_leave_its_noscript() -> None:
    plan_, cluster = hostile()
    report: Report = build_report(plan_, cluster, generated_at=0.0, seconds=0.0)
    many = replace(report, constraints=tuple(c for c in report.constraints if c.excess) * 50)
    _harmless(re.sub(r' id="c\d+"', "", render(many, Format.HTML)))
