"""The report in sentences: risk now and after, zones, grades, how long it takes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.findings import plan_with_findings
from rebalancer.report.building import build_report
from rebalancer.report.document import Report
from rebalancer.report.explained import pod_in_plan
from rebalancer.report.exports import render
from rebalancer.report.formats import Format
from rebalancer.report.text import ago, duration
from rebalancer.report.words import LEGEND, Showing, grade_letters, lead, zone_says
from tests.support.build import decoded, node, objects, pdb, workload

NODES = [node(f"{z}-{i}").zone(z) for z in "abc" for i in range(2)]


def reported(*things: Any, namespaces: tuple[str, ...] = ()) -> Report:
    snapshot = decoded(objects(*NODES, *things))
    plan = plan_with_findings(snapshot)
    return build_report(plan, snapshot, generated_at=0.0, seconds=0.0, namespaces=namespaces)


def spread(name: str, namespace: str = "shop", **placed: int) -> Any:
    there = {f"{z}-0": n for z, n in placed.items()}
    return workload(name, namespace=namespace).spread("zone", 1).placed(there)


SKEWED = spread("web", a=6, b=3)
EVEN = spread("even", namespace="bank", a=2, b=2, c=2)


def test_it_begins_with_the_loss_that_the_plan_mends_most() -> None:
    report = reported(SKEWED, spread("small", a=3, b=2))
    took = duration(report.summary.expected_seconds)
    assert (
        lead(report)
        == f"Losing zone a takes 67% of shop/web; after 4 evictions in about {took} it takes 33%."
    )
    for form in (Format.TABLE, Format.MARKDOWN):
        shown = render(report, form)
        assert shown.index("Losing zone a") < shown.index("constraints violated, excess")


def test_the_worst_risk_comes_first_and_says_what_keeps_it() -> None:
    budget = pdb("invoices", {"app": "invoices"}, namespace="shop", min_available=2)
    report = reported(spread("invoices", a=2), budget, SKEWED)
    took = duration(report.summary.expected_seconds)
    assert lead(report) == (
        "Losing zone a takes 100% of shop/invoices (stays so: its PodDisruptionBudget lets no pod go) "
        f"and 67% of shop/web, 33% after 3 evictions in about {took}."
    )
    other = reported(spread("invoices", a=2), budget, spread("web", b=6, a=3))
    assert "lets no pod go); losing zone b takes 67% of shop/web, 33% after 3 evictions" in lead(other)
    alone = reported(spread("invoices", a=2), budget)
    assert lead(alone).endswith("lets no pod go); 50% would be possible.")
    says = "excess 1. Nothing more that helps may be evicted (pdb-exhausted); why is told"
    assert f"{says} below." in render(alone, Format.MARKDOWN)
    assert f"{says} without --summary." in render(alone, Format.TABLE, showing=Showing(summary=True))


def test_a_cluster_at_rest_has_nothing_to_say_about_zones() -> None:
    report = reported(EVEN)
    assert lead(report) == ""
    assert "If a zone fails" not in render(report, Format.TABLE)


def test_each_zone_tells_what_goes_with_it_now_and_after() -> None:
    a, b, c = reported(SKEWED).domains
    assert (a.pods, a.planned_pods, b.pods, c.planned_pods) == (6, 3, 3, 3)
    assert zone_says(a) == (
        "6 → 3 pods on 2 nodes, 1 → 0 workloads lose more than they must, worst shop/web 67% → 33%"
    )
    alone = reported(spread("one", a=2)).domains[0]
    assert "1 → 0 workloads lost altogether" in zone_says(alone)


def test_a_namespace_has_the_grade_of_its_worst_workload_the_worst_first() -> None:
    shop, bank = reported(SKEWED, EVEN).namespaces
    assert (shop.namespace, grade_letters(shop), shop.worst) == ("shop", "D → A", "ReplicaSet/web")
    assert (bank.namespace, grade_letters(bank), bank.worst) == ("bank", "A", "")


def test_zones_are_about_the_namespaces_in_view() -> None:
    assert [d.pods for d in reported(SKEWED, EVEN, namespaces=("bank",)).domains] == [2, 2, 2]


def test_the_legend_stands_once() -> None:
    shown = " ".join(render(reported(SKEWED), Format.TABLE).split())
    assert shown.count(LEGEND) == 1


def test_a_summary_is_the_first_part_and_what_to_do() -> None:
    report = reported(SKEWED)
    short = render(report, Format.TABLE, showing=Showing(summary=True))
    assert "If a zone fails" in short
    assert "Next" in short
    assert "Violated constraints" not in short


def test_so_many_rows_as_were_asked_for() -> None:
    report = reported(*(spread(f"w{i}", a=3) for i in range(6)))
    shown = render(report, Format.TABLE, showing=Showing(top=2))
    assert "… and 4 more constraints: -o wide" in shown


def test_a_large_plan_names_every_pod_and_ends_with_the_verdict() -> None:
    report = reported(*(spread(f"w{i:02}", a=6) for i in range(12)))
    shown = render(report, Format.TABLE)
    assert len(report.evictions) > 20
    assert "WAVE  EVICT" in shown
    assert all(e.move.pod.name in shown for e in report.evictions)
    assert shown.rstrip().splitlines()[-1].startswith("12 of 12 constraints violated")


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(1, "1 second"), (89, "89 seconds"), (90, "2 minutes"), (7200, "2 hours"), (300000, "3 days")],
)
def test_a_duration_in_words(seconds: float, says: str) -> None:
    assert duration(seconds) == says
    assert (ago(seconds), ago(-seconds)) == (f"{says} ago", f"{says} from now")


def test_of_a_pod_that_needs_no_eviction_the_domains_of_the_excess_are_named() -> None:
    """With fewer domains than minDomains the minimum is 0, whatever these hold."""
    things = workload("web").spread("zone", 1, min_domains=4).placed({"a-0": 2, "b-0": 2, "c-0": 2})
    snapshot = decoded(objects(*NODES, things, spread("other", a=6, b=3)))
    plan = plan_with_findings(snapshot)
    web = [pod_in_plan(replace(plan, blocked=()), p) for p in snapshot.pods if p.namespace == "default"]
    assert {w.says for w in web} == {"No eviction of it was planned: the excess in zone a, b, c stays."}
    assert {w.decision for w in web} == {"not-needed"}
