"""The dashboard: sound by itself, and every panel shows something of an eventful daemon's metrics."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes.eventful import eventful
from tests.support.servers.metrics import after_a_cycle, samples
from tests.support.servers.scrape import (
    PROMETHEUS,
    Prometheus,
    endpoint,
    label_names,
    metric_names,
    prometheus,
)

DASHBOARD = json.loads(
    (Path(__file__).parents[3] / "deploy" / "observability" / "dashboard.json").read_text()
)
PANELS = [p for p in DASHBOARD["panels"] if p["type"] != "row"]
TARGETS = [(p, t) for p in PANELS for t in p["targets"]]
ALL_MAY_BE_ZERO = {
    "Breaker": "it is closed",
    "Fewest evictions proved": "they are not, of this cluster",
    "Plan and its bound: beyond that": "nothing is beyond what is needed",
}


def resolved(expression: str, job: str = ".*") -> str:
    """As Grafana sends it at a scrape each second."""
    return expression.replace("$job", job).replace("$__rate_interval", "4s")


def values(found: list[Any]) -> list[float]:
    """Of a vector or a matrix, without what is not a number."""
    every = [float(v) for series in found for _, v in series.get("values") or [series["value"]]]
    return [v for v in every if math.isfinite(v)]


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus (Debian: prometheus) is not installed")
def test_every_panel_shows_something_of_an_eventful_daemon(tmp_path: Path) -> None:
    began = time.monotonic()
    with eventful(tmp_path) as life, prometheus(life.port, tmp_path) as ask:
        life.unfold()
        deadline = time.monotonic() + 20
        while lacking := set(silent(ask, time.monotonic() - began)):
            assert time.monotonic() < deadline, lacking
            time.sleep(1.0)  # what happened last has not been scraped


def silent(ask: Prometheus, seconds: float) -> Iterator[str]:
    """Queries without a finite value, or with none but zeros where something else is to be seen."""
    for panel, target in TARGETS:
        expression = resolved(target["expr"], job="rebalancer")
        found = values(ask(expression) if target["instant"] else ask.over(expression, seconds))
        name = f"{panel['title']}: {target['legendFormat']}"
        zero_is_fine = {panel["title"], name} & set(ALL_MAY_BE_ZERO)
        if not found or not (any(found) or zero_is_fine):
            yield name


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus (Debian: prometheus) is not installed")
def test_the_job_can_be_chosen(tmp_path: Path) -> None:
    (job,) = (v for v in DASHBOARD["templating"]["list"] if v["name"] == "job")
    definition = re.fullmatch(r"label_values\((\w+), (\w+)\)", job["definition"])
    assert definition is not None, job["definition"]
    metric, label = definition.groups()
    with (
        after_a_cycle() as telemetry,
        endpoint(telemetry.exposition) as port,
        prometheus(port, tmp_path) as ask,
    ):
        assert {series["metric"][label] for series in ask(metric)} == {"rebalancer"}
        assert ask(resolved('rebalancer_build_info{job=~"$job"}', job=job["allValue"]))


def test_every_query_asks_for_what_is_exported() -> None:
    with after_a_cycle() as telemetry:
        found = samples(telemetry)
    exported = {name for name, _ in found} | {"rebalancer_findings"}
    labels = {label for _, pairs in found for label, _ in pairs} | {"severity", "code"}
    for panel, target in TARGETS:
        assert metric_names(target["expr"]), panel["title"]
        assert metric_names(target["expr"]) <= exported, panel["title"]
        assert label_names(target["expr"]) <= labels, panel["title"]


def test_every_metric_is_on_the_dashboard() -> None:
    with after_a_cycle() as telemetry:
        exported = {f.name for f in text_string_to_metric_families(telemetry.exposition()[0].decode())}
    shown = {name for _, t in TARGETS for name in metric_names(t["expr"])}
    shown |= {re.sub(r"_(total|bucket)$", "", name) for name in shown}
    assert exported - shown <= {"target_info", "target"}


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    taken: set[tuple[int, int]] = set()
    for p in DASHBOARD["panels"]:
        at = p["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, p["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_legends_tell_the_series_of_a_panel_apart() -> None:
    for panel in PANELS:
        legends = [t["legendFormat"] for t in panel["targets"]]
        assert len(set(legends)) == len(legends), panel["title"]
        for target in panel["targets"]:
            grouped = re.search(r"\bby \(([^)]*)\)", target["expr"])
            labels = {name.strip() for name in grouped[1].split(",")} - {"le"} if grouped else set()
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            # A sum over a maximum by status has no label any more.
            assert named == labels or target["expr"].startswith("sum(max by"), panel["title"]
            assert panel["description"], panel["title"]
