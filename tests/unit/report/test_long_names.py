"""Names of real nodes in the report: whole, short where all share the same, in every width."""

from __future__ import annotations

import html
import io
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from rebalancer.drill import Drill, drill
from rebalancer.findings import plan_with_findings
from rebalancer.manifests.reading import read_snapshot
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.report import page as page_module
from rebalancer.report.building import build_report
from rebalancer.report.document import Report, build_drill
from rebalancer.report.explained import explain_pod, pod_in_plan, to_table
from rebalancer.report.exports import render
from rebalancer.report.formats import Format
from rebalancer.report.output import render_lines
from rebalancer.report.terminal import lines
from tests.support.clusters.long_names import PROVIDERS, written

LABELS = {f"{name}:" for name in ("DOMAINS", "FROM", "TO", "MENDS", "WHY", "FOR", "EXAMPLE", "GOES", "WITH")}


@cache
def cluster(provider: str) -> Snapshot:
    with TemporaryDirectory() as folder:
        return read_snapshot([str(written(provider, Path(folder)))])


@cache
def planned(provider: str) -> Plan:
    return plan_with_findings(cluster(provider), PlanOptions())


@cache
def report(provider: str) -> Report:
    found = cluster(provider)
    return build_report(planned(provider), found, generated_at=0.0, seconds=0.1, cluster="prod")


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def shown(provider: str, columns: int, format: Format = Format.TABLE) -> str:
    """In a terminal of so many columns; 0: in a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TERM", "xterm")
        text = render(report(provider), format, stream=Terminal() if columns else io.StringIO())
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize("columns", [0, 80, 120, 200])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_word_is_cut_whatever_the_width(provider: str, columns: int) -> None:
    whole = set(shown(provider, 5000).split())
    assert {w for w in shown(provider, columns).split() if w not in whole} <= LABELS


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_tables_fit_the_terminal(provider: str, columns: int) -> None:
    text = shown(provider, columns).partition("Room that is missing")[0]
    assert max(map(len, text.splitlines())) <= columns


@pytest.mark.parametrize("columns", [0, 80, 120, 200])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_eviction_has_its_pod_and_where_it_leaves_and_goes(provider: str, columns: int) -> None:
    text = shown(provider, columns)
    plan = text.partition("\nPlan\n")[2].partition("\n\n")[0]
    assert all(e.move.pod.key in plan for e in report(provider).evictions)
    assert "FROM" in plan
    assert "TO" in plan
    assert "zone " in plan


@cache
def drilled(provider: str) -> Drill:
    return drill(cluster(provider), plan=planned(provider))


@cache
def other(provider: str, command: str, columns: int) -> str:
    """What `explain` or `drill` shows of the same cluster."""
    found, plan = cluster(provider), planned(provider)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TERM", "xterm")
        stream = Terminal()
        if command == "drill":
            return render_lines(lines(build_drill(drilled(provider))), stream)
        pod = plan.moves[0].pod
        placement = replace(explain_pod(found, pod), plan=pod_in_plan(plan, pod))
        return to_table(placement, stream=stream)


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("command", ["explain", "drill"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_other_commands_fit_too_with_the_same_short_names(provider: str, command: str, columns: int) -> None:
    text = other(provider, command, columns)
    assert max(map(len, text.splitlines())) <= columns
    assert text.count("Names are short here: nodes ") == 1
    assert not [n.name for n in cluster(provider).nodes if n.name in text]
    whole = set(other(provider, command, 5000).split())
    assert {w for w in text.split() if w not in whole and w.removesuffix(":") not in whole} <= LABELS


SHORT = [
    (
        "eks",
        "ip-10-1-0-171 (zone 1a)",
        "nodes end in .eu-central-1.compute.internal, zones begin with eu-central-",
    ),
    (
        "gke",
        "0f2a1b4c-x7k1 (zone a)",
        "nodes begin with gke-prod-europe-default-pool-, zones begin with europe-west3-",
    ),
    ("aks", "userpool0-31415926-vmss000000 (zone a)", "nodes begin with aks-, zones begin with westeurope-"),
    ("own", "k8s-worker-00 (zone rack-a)", "nodes end in .fra1.prod.example.net"),
]


@pytest.mark.parametrize(("provider", "place", "says"), SHORT, ids=[s[0] for s in SHORT])
def test_what_all_names_share_is_said_once(provider: str, place: str, says: str) -> None:
    text = re.sub(r"\s+", " ", shown(provider, 200))
    assert place in text
    assert text.count(f"Names are short here: {says}.") == 1


def test_wide_has_a_line_for_each_row_and_whole_names() -> None:
    wide = shown("eks", 80, Format.WIDE)
    evictions = report("eks").evictions
    for e in evictions:
        [line] = [x for x in wide.splitlines() if e.move.pod.uid in x]
        assert e.move.pod.key in line
        assert e.move.pod.node_name in line
    assert "Names are short here" not in wide


def test_zones_are_in_the_order_of_their_names() -> None:
    assert [d.domain for d in report("eks").domains] == [f"eu-central-1{z}" for z in "abc"]


def test_a_reason_of_several_pods_is_true_of_each() -> None:
    [c] = [c for c in report("own").constraints if "StatefulSet/orders-db" in c.workloads]
    [why] = c.reasons
    keeps = "2 pods: its volume keeps it in topology.kubernetes.io/zone=rack"
    assert why.message == f"{keeps}-a; {keeps}-b"


def test_pictures_of_the_page_tell_nodes_apart() -> None:
    for provider in PROVIDERS:
        page = html.unescape(render(report(provider), Format.HTML))
        for figure in re.findall(r"<figure>.*?</figure>", page, re.DOTALL):
            labels = re.findall(r'<tspan x="112" y="\d+">([^<]*)<', figure)
            assert len(set(labels)) == len(labels), labels


def test_no_rule_of_the_page_breaks_words_that_fit_a_line() -> None:
    style = (Path(page_module.__file__).parent / "html/report.css").read_text()
    assert "anywhere" not in style
    assert "break-all" not in style


def test_no_name_in_a_sentence_of_the_page_is_broken_at_its_hyphens() -> None:
    page = render(report("eks"), Format.HTML)
    body = re.sub(r"(?s)<(svg|pre|script|style|title)\b.*?</\1>", "", page)
    whole = re.findall(r'<span class="w">([^<]+)</span>', body)
    assert any(".eu-central-1.compute.internal" in word for word in whole)
    for sentence in re.findall(r">([^<]+)<", re.sub(r'<span class="w">[^<]+</span>', "", body)):
        assert len(sentence.split()) < 2 or not re.search(r"\w-\w", sentence), sentence
    assert not re.search(r"saves 1 pods\b", page)
