"""What the pages about installing name is there: overlays, values, roles, settings, other pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rebalancer import __version__
from rebalancer.settings.loading import walk
from rebalancer.settings.settings import Settings
from tests.deploy.manifests import CHART, OVERLAYS, ROOT, SAME, chart

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    CHART / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@each_page
def test_overlays_and_values_exist(page: Path) -> None:
    text = page.read_text()
    for overlay in re.findall(r"kustomize/overlays/([a-z-]+)", text):
        assert (OVERLAYS / overlay / "kustomization.yaml").exists(), overlay
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in re.findall(r"--set '?([A-Za-z.]+)=", text):
        found = values
        for part in path.split("."):
            assert part in found, path
            found = found[part]


@each_page
def test_settings_exist(page: Path) -> None:
    known = {".".join(path) for path, _ in walk(Settings)}
    groups = {path.split(".")[0] for path in known}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in re.findall(r"`([a-z][A-Za-z]+(?:\.[a-z][A-Za-z]+)+)(?::[^`]*)?`", page.read_text()):
        group, _, key = path.partition(".")
        if path.endswith((".yaml", ".py")):
            continue
        if group in groups and not (group in values and key.partition(".")[0] in values[group]):
            assert any(k == path or k.startswith(f"{path}.") for k in known), path


def test_installing_names_the_version() -> None:
    text = (ROOT / "docs" / "install.md").read_text()
    assert set(re.findall(r"rebalancer:(\d+\.\d+\.\d+)|newTag: (\d+\.\d+\.\d+)", text)) == {
        (__version__, ""),
        ("", __version__),
    }


def test_what_contributors_are_told_to_run_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`?((?:tests|docs|config|deploy|rebalancer)/[\w./-]*)", text):
        assert (ROOT / path).exists(), path
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)) <= targets
    for module in re.findall(r"python -m (tests[\w.]*)", text):
        file = ROOT / module.replace(".", "/")
        assert file.with_suffix(".py").exists() or (file / "__main__.py").exists(), module


def test_the_table_of_installations_names_their_roles() -> None:
    text = (ROOT / "docs" / "rbac.md").read_text()
    rows = dict(
        re.findall(r"^\| (`report`|`cronjob`|`daemon`|with evictions, \w+)[^|]*\| ([^|]+) \|$", text, re.M)
    )

    def named(row: str) -> set[str]:
        return {word for word in re.split(r"[,\s]+", rows[row].strip()) if word != "and"}

    def roles(overlay: str) -> set[str]:
        made = chart(SAME[overlay])
        return {o["metadata"]["name"].removeprefix("rebalancer-") for o in made if o["kind"].endswith("Role")}

    assert named("`report`") == roles("report")
    for way in ("cronjob", "daemon"):
        assert named(f"`{way}`") == roles(way)
        assert named(f"`{way}`") | named(f"with evictions, {way}") == roles(f"{way}-evicting")


WITH_TESTS = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("architecture", "planning", "security")),
]


@pytest.mark.parametrize("page", WITH_TESTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_tests_that_show_what_a_page_promises_are_there(page: Path) -> None:
    named = set(re.findall(r"`?(tests/[\w/]+\.py)(?:::(\w+))?", page.read_text()))
    for path, name in named:
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


PROMISES = {
    ROOT / "docs" / "planning.md": "## While it is carried out",
    ROOT / "docs" / "security.md": "## Threats",
}


@pytest.mark.parametrize("page", PROMISES, ids=lambda p: p.name)
def test_each_promise_names_its_test(page: Path) -> None:
    _, _, after = page.read_text().partition(f"{PROMISES[page]}\n")
    section = after.partition("\n## ")[0]
    promises = re.split(r"^- ", section, flags=re.M)[1:] or [
        row
        for row in section.splitlines()
        if row.startswith("|") and not re.match(r"\|[-| ]+$|\| (?:who|promise) \|", row)
    ]
    assert len(promises) > 5
    for promise in promises:
        assert re.search(r"`tests/[\w/]+\.py`", promise), promise
