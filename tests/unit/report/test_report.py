"""What is shown of a plan: the document's names, the formats, and names that try to be more than names."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from rebalancer.model.reason import Finding, Reason, ReasonCode, Severity
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Plan, Refusal
from rebalancer.report import text as words
from rebalancer.report.building import build_report
from rebalancer.report.document import Report
from rebalancer.report.exports import code, escape, render
from rebalancer.report.formats import Format, format_of
from tests.support.build import nodes, snapshot, workload
from tests.support.clusters.hand_made import at_rest, mended, move, result, shop, stuck


def reported(made: tuple[Plan, Snapshot], **more: Any) -> Report:
    plan, cluster = made
    return build_report(plan, cluster, **{"generated_at": 1780272000.9, "seconds": 0.1234, **more})


NAMES = {
    "": "apiVersion kind generatedAt cluster source assumptions summary constraints evictions blocked "
    "findings",
    "summary": "nodes pods constraints violated excess evictions lowerBound optimal residualExcess seconds",
    "constraints": "namespace workloads selector topologyKey maxSkew minDomains whenUnsatisfiable domains "
    "after skew excess residualExcess status reasons worstDomainLoss",
    "evictions": "namespace pod uid owner node destination wave fixes reason",
    "blocked": "namespace pod reason message",
    "findings": "severity code object message remedy",
}


@pytest.mark.parametrize("part", NAMES)
def test_the_names_of_the_json_are_an_interface(part: str) -> None:
    both = [json.loads(render(reported(made), Format.JSON)) for made in (mended(), stuck())]
    value: Any = next(d[part] for d in both if d[part]) if part else both[0]
    value = value[0] if isinstance(value, list) else value
    assert set(NAMES[part].split()) <= set(value)


def test_the_json_of_a_plan() -> None:
    document = json.loads(render(reported(mended(), cluster="prod"), Format.JSON))
    assert document["apiVersion"] == "rebalancer/v1"
    assert document["kind"] == "Report"
    assert document["generatedAt"] == "2026-06-01T00:00:00Z"
    assert document["cluster"] == "prod"
    assert document["summary"] == {
        "nodes": 6,
        "pods": 7,
        "constraints": 1,
        "violated": 1,
        "excess": 3,
        "evictions": 2,
        "lowerBound": 2,
        "optimal": True,
        "residualExcess": 0,
        "seconds": 0.123,
        "unreadable": 0,
        "softIgnored": 0,
        "expectedSeconds": 60,
        "waves": 2,
        "wavesBound": 1,
        "takesLongest": "",
        "leastExcess": 0,
        "leastExact": True,
        "between": [],
        "undecided": [],
    }
    eviction = document["evictions"][1]
    assert eviction["owner"] == "ReplicaSet/web"
    assert eviction["destination"] == {"nodes": ["c-0", "c-1"], "certain": False, "predicted": "c-0"}
    assert eviction["fixes"] == [
        {"constraint": 0, "topologyKey": "topology.kubernetes.io/zone", "from": "a", "to": ["c"]}
    ]
    constraint = document["constraints"][0]
    assert (constraint["selector"], constraint["whenUnsatisfiable"]) == ("app=web", "DoNotSchedule")
    assert (constraint["domains"], constraint["after"]) == (
        {"a": 5, "b": 1, "c": 1},
        {"a": 3, "b": 2, "c": 2},
    )
    assert (constraint["worstDomainLoss"], constraint["bestDomainLoss"]) == (0.7143, 0.4286)


def test_the_json_of_what_is_stuck() -> None:
    document = json.loads(render(reported(stuck()), Format.JSON))
    assert document["constraints"][0]["reasons"] == [
        {
            "code": "no-feasible-node",
            "message": "zone b: 2 nodes, 2 without room for 500m cpu",
            "numbers": {"nodes": 2, "full": 2},
            "remedy": "add a node to zone b, or lower the requests",
        }
    ]
    assert [b["reason"] for b in document["blocked"]] == [
        "pinned-by-volume",
        "no-feasible-node",
        "no-feasible-node",
    ]
    assert document["findings"][0]["severity"] == "warning"


def test_yaml_is_the_same_document_as_json() -> None:
    for made in (mended(), stuck(), at_rest()):
        assert yaml.safe_load(render(reported(made), Format.YAML)) == json.loads(
            render(reported(made), Format.JSON)
        )


@pytest.mark.parametrize("format", Format)
def test_the_same_plan_gives_the_same_bytes(format: Format) -> None:
    assert render(reported(mended()), format) == render(reported(mended()), format)


def test_the_order_is_stable_whatever_order_the_planner_gives() -> None:
    plan, cluster = stuck()
    turned = replace(plan, blocked=tuple(reversed(plan.blocked)))
    assert render(reported((plan, cluster)), Format.JSON) == render(reported((turned, cluster)), Format.JSON)


def table(made: tuple[Plan, Snapshot], format: Format = Format.TABLE) -> str:
    return render(reported(made), format)


def test_the_table_says_what_is_done_and_how_it_ends() -> None:
    shown = table(mended())
    assert shown.startswith(
        "Losing zone a takes 71% of default/web; after 2 evictions in about 60 seconds it takes 43%.\n"
        "1 of 1 constraints violated, excess 3. 2 evictions in 2 waves restore balance; fewer cannot do it.\n"
        "built · 6 nodes · 7 pods · 1 constraint · 0.1 s\n"
    )
    assert "default/web  zone    1  4 → 1  a=5 b=1 c=1 → a=3 b=2 c=2  71% (43% at best)  fixable" in shown
    assert "1     default/web-00000  a-0 (zone a)  zone b, c (4 nodes)      web zone" in shown
    assert "2     default/web-00001  a-0 (zone a)  zone c (2 nodes) likely  web zone" in shown
    assert "- kube-scheduler 1.36 with the default profile" in shown
    assert "once --context" in shown


def test_the_table_says_what_stays_and_why() -> None:
    shown = table(stuck())
    assert "excess 3. No eviction helps; why is told below." in shown
    assert "no-feasible-node zone b: 2 nodes, 2 without room for 500m cpu" in shown
    assert "→ add a node to zone b, or lower the requests" in shown
    assert "warning Deployment/default/web (no-pdb): no budget covers it" in shown
    assert "once --execute" not in shown


def test_at_rest_one_friendly_line_and_the_figures() -> None:
    assert table(at_rest()) == (
        "Nothing to do: the only constraint holds.\nbuilt · 6 nodes · 5 pods · 1 constraint · 0.1 s\n"
    )


def test_thousands_of_blocked_pods_are_grouped_by_reason() -> None:
    plan, cluster = stuck(5000)
    shown = table((plan, cluster))
    assert len(shown.splitlines()) <= 40
    assert "Not evicted: 5,000 pods" in shown
    assert re.search(
        r"4,999  no-feasible-node  default/web-\d+, default/web-\d+, default/web-\d+ and 4,996 more", shown
    )
    assert len(json.loads(render(reported((plan, cluster)), Format.JSON))["blocked"]) == 5000
    assert len(table((plan, cluster), Format.WIDE).splitlines()) > 5000
    assert len(render(reported((plan, cluster)), Format.MARKDOWN)) < 3000


def test_wide_has_owner_uid_nodes_selector_and_balanced_constraints() -> None:
    shown = table(mended(), Format.WIDE)
    for part in (
        "ReplicaSet/web",
        mended()[1].pods[0].uid,
        "b-0, b-1, c-0 and 1 more",
        "app=web",
        "kubernetes.io/zone",
    ):
        assert part in shown
    assert "balanced" in table(at_rest(), Format.WIDE)


HEADLINES = [
    ("nobody asks for spread", {"constraints": ()}, "No topology spread constraint in this cluster"),
    (
        "not proved",
        {"optimal": False, "lower_bound": 1},
        "at least 1 are needed, it is not proved that 2 are the",
    ),
    ("at the bound", {"optimal": False, "lower_bound": 2}, "2 evictions in 2 waves restore balance.\n"),
]


@pytest.mark.parametrize(("changes", "says"), [h[1:] for h in HEADLINES], ids=[h[0] for h in HEADLINES])
def test_the_headline(changes: dict[str, Any], says: str) -> None:
    plan, cluster = mended()
    if not changes.get("constraints", True):
        plan = replace(plan, moves=())
    assert says in table((replace(plan, **changes), cluster))


def test_one_eviction_that_leaves_something() -> None:
    cluster = shop()
    left = result(cluster, {"a": 5, "b": 1, "c": 1}, {"a": 4, "b": 2, "c": 1}, excess=3, residual=2)
    plan = Plan(constraints=(left,), moves=(move(cluster, 0, "b-0"),), blocked=(), lower_bound=1)
    assert "1 eviction in 1 wave brings it down to 2; fewer cannot do it." in table((plan, cluster))


def test_what_is_out_of_scope_is_mentioned_and_not_counted() -> None:
    cluster = shop()
    soft = result(cluster, {"a": 5, "b": 1}, {"a": 5, "b": 1}, excess=3, residual=3, in_scope=False)
    shown = table((Plan(constraints=(soft,), moves=(), blocked=()), cluster))
    assert "Nothing to do: no constraint is in scope." in shown
    assert "1 constraint out of scope (soft, or by settings) is skewed too" in shown


def test_pods_that_are_pending_now_are_named() -> None:
    plan, cluster = at_rest()
    waiting = msgspec.structs.replace(cluster.pods[0], name="new", node_name="", ready=False)
    told = (plan, replace(cluster, pods=(*cluster.pods, waiting)))
    assert "Pending now: default/new; rebalancer explain POD says why." in table(told)
    assert json.loads(render(reported(told), Format.JSON))["pending"] == ["default/new"]
    assert "Pending now" not in table(at_rest())


def test_a_move_names_what_it_waits_for() -> None:
    web = workload("web").spread("zone").placed({"a-0": 7, "b-0": 1})
    read = snapshot(*nodes(a=1, b=1), web, workload("db").spread("zone").placed({"a-0": 3, "b-0": 1}))
    made = build_report(plan(read, PlanOptions()), read, generated_at=0.0, seconds=0.0)
    evictions = json.loads(render(made, Format.JSON))["evictions"]
    waits = {e["pod"]: e.get("waitsFor") for e in evictions}
    first, second, third = (e["pod"] for e in evictions if e["pod"].startswith("web"))
    assert (waits[second], waits[third]) == ([f"default/{first}"], [f"default/{second}"])
    assert [w for pod, w in waits.items() if pod not in (second, third)] == [None, None]


def test_the_time_of_a_plan_is_no_sum_that_does_not_add_up() -> None:
    [says] = [x for x in table(mended()).splitlines() if "if pods start as they did before" in x]
    assert says.strip().startswith("About 60 seconds if pods start")
    assert "wave 1" not in says


def test_many_domains_are_told_by_their_range_and_what_changes() -> None:
    cluster = shop()
    before = {f"n{i}": 2 if i == 3 else 0 if i == 5 else 1 for i in range(40)}
    after = before | {"n3": 1, "n5": 1}
    plan = Plan(constraints=(result(cluster, before, after, excess=1),), moves=(), blocked=())
    report = reported((plan, cluster))
    assert words.change(report.constraints[0]) == "40 domains with 0–2 → 1: n3=2→1 n5=0→1"


HOSTILE = "[red]x[/red]\x1b[31m\u202e|`a`<b>@all\n# h"


def hostile() -> tuple[Plan, Snapshot]:
    """Every text that comes from the cluster tries to be markup or a terminal sequence."""
    plan, cluster = stuck()
    pod = msgspec.structs.replace(cluster.pods[0], name=HOSTILE)
    why = Reason(ReasonCode.NO_FEASIBLE_NODE, f"node {HOSTILE} is full", {}, HOSTILE)
    broken = replace(
        plan.constraints[0],
        workloads=(f"ReplicaSet/d/{HOSTILE}",),
        domains={HOSTILE: 3, "b": 0},
        reasons=(why,),
    )
    evicted = replace(move(cluster, 0, HOSTILE), pod=pod)
    found = Finding(Severity.ERROR, "no-pdb", HOSTILE, HOSTILE, f"# x\n{HOSTILE}", HOSTILE)
    made = replace(
        plan,
        constraints=(broken,),
        moves=(evicted,),
        blocked=(Refusal(pod, why),),
        findings=(found,),
        assumptions=(HOSTILE,),
    )
    return made, replace(cluster, warnings=(HOSTILE,), source=HOSTILE)


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.mark.parametrize("format", Format)
def test_hostile_names_are_harmless(format: Format) -> None:
    shown = render(reported(hostile()), format)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    if format is Format.JSON:
        assert json.loads(shown)["blocked"][0]["pod"] == HOSTILE
    elif format is Format.YAML:
        assert yaml.safe_load(shown)["blocked"][0]["pod"] == HOSTILE
    else:
        assert r"\x1b" in shown
        assert "[/red]" in shown.replace("\\[", "[").replace("\\]", "]").replace("\n", "").replace(" ", "")


def test_markdown_takes_no_name_for_markup() -> None:
    assert escape("a|b <i> *x* [y](http://z) @team & #1") == (
        r"a\|b \<i\> \*x\* \[y\](http:&#47;/z) &#64;team &amp; \#1"
    )
    assert code("a`|<b>") == "`a'\\|<b>`"
    shown = render(reported(hostile()), Format.MARKDOWN)
    assert not [line for line in shown.splitlines() if line.startswith("# ")]
    assert "@all" not in re.sub(r"`[^`]*`", "", shown)


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    report = reported(mended())
    assert "\x1b[" in render(report, Format.TABLE, stream=Terminal())
    assert "\x1b[" not in render(report, Format.TABLE, stream=io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", render(report, Format.TABLE, stream=Terminal()))


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_the_table_fits_the_terminal_and_loses_nothing(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    shown = render(reported(mended()), Format.TABLE, stream=Terminal())
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= columns
    assert "…" not in plain


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("r.json", Format.JSON),
        ("R.YML", Format.YAML),
        ("notes.md", Format.MARKDOWN),
        ("r.html", Format.HTML),
        ("r.txt", None),
    ],
)
def test_a_file_s_name_asks_for_a_format(name: str, format: Format | None) -> None:
    assert format_of(name) is format


def with_findings(count: int, remedy: str = "one: 1\ntwo: 2") -> tuple[Plan, Snapshot]:
    plan, cluster = stuck()
    found = tuple(
        Finding(Severity.WARNING, "no-pdb", f"Deployment/default/w{i}", "no budget covers it", remedy)
        for i in range(count)
    )
    return replace(plan, findings=found), cluster


def test_findings_are_told_by_code_and_wide_tells_what_is_alike_once_with_a_remedy() -> None:
    shown = table(with_findings(40))
    assert "warning Deployment/default/w0 (no-pdb): no budget covers it" in shown
    assert "and 39 more: Deployment/default/w1, Deployment/default/w2 and 37 more" in shown
    assert "two: 2" not in shown
    wide = table(with_findings(40), Format.WIDE)
    assert wide.count("two: 2") == wide.count("no budget covers it") == 1
    assert all(f"Deployment/default/w{i}" in wide for i in range(40))
    plan, cluster = with_findings(2)
    other = replace(plan.findings[1], message="another budget")
    apart = table((replace(plan, findings=(plan.findings[0], other)), cluster), Format.WIDE)
    assert apart.count("two: 2") == 2
    several = (*plan.findings, other, replace(plan.findings[0], message="of its other constraint"))
    assert "and 1 more like it: Deployment/default/w1\n" in table((replace(plan, findings=several), cluster))
    several = (plan.findings[0], several[-1])
    assert "and 1 more of it\n" in table((replace(plan, findings=several), cluster))


def test_what_is_said_of_a_group_of_pods_is_true_of_each() -> None:
    plan, cluster = stuck()
    said = [f"its volume keeps it in zone={z}" for z in "abbcd"]
    pods = [msgspec.structs.replace(cluster.pods[0], name=f"db-{i}") for i in range(5)]
    blocked = tuple(
        Refusal(pod, Reason(ReasonCode.PINNED_BY_VOLUME, says, {}, "spread the volumes"))
        for pod, says in zip(pods, said, strict=True)
    )
    made = replace(plan, blocked=blocked), cluster
    shown = " ".join(table(made).split())
    assert f"2 pinned-by-volume default/db-1, default/db-2 {said[1]}" in shown
    assert f"1 pinned-by-volume default/db-0 {said[0]}" in shown
    assert "1 pinned-by-volume default/db-4 1 other message: -o wide" in shown
    assert shown.count("→ spread the volumes") == 1
    for form in (Format.MARKDOWN, Format.HTML):
        text = re.sub(r"<[^>]+>|\\", "", render(reported(made), form))
        assert text.count("zone=b") == 1
        assert "db-1, default/db-2" in text


def test_markdown_has_the_first_remedy_in_a_block_that_nothing_in_it_ends() -> None:
    shown = render(reported(with_findings(3, "a: 1\n```\n# h\nb: ````\n")), Format.MARKDOWN)
    lines = [line.strip() for line in shown.splitlines()]
    assert lines.index("`````") > lines.index("# h") > lines.index("`````yaml")
    assert "(and 2 more: Deployment/default/w1, Deployment/default/w2)" in shown


def test_thousands_of_rows_have_a_line_each() -> None:
    plan, cluster = with_findings(3000)
    many = replace(plan, constraints=plan.constraints * 3000)
    wide = table((many, cluster), Format.WIDE)
    assert len([line for line in wide.splitlines() if line.endswith("app=web")]) == 3000
    assert len(table((many, cluster)).splitlines()) < 250
    assert len(render(reported((many, cluster)), Format.MARKDOWN)) < 60_000


NOT_KNOWN = [
    ([], []),
    (["no Service in the snapshot: x"], ["no Service in the snapshot: x"]),
    (
        ["skipped a", "no Service in the snapshot: x", "no DaemonSet or Job in the snapshot: y"],
        ["skipped a", "the snapshot lacks 3 kinds (Service, DaemonSet, Job): -o wide says what follows"],
    ),
    (["a", "b", "c", "d", "e"], ["a", "b", "c", "2 more: -o wide"]),
]


@pytest.mark.parametrize(("warnings", "told"), NOT_KNOWN)
def test_what_is_not_known_takes_a_few_lines(warnings: list[str], told: list[str]) -> None:
    assert words.not_known(warnings) == told


def test_the_kinds_that_a_file_lacks_are_one_line_and_all_in_wide() -> None:
    from rebalancer.manifests.documents import absences

    plan, cluster = at_rest()
    poor = replace(cluster, warnings=tuple(absences({"Node", "Pod"})))
    assert table((plan, poor)).count("the snapshot lacks") == 1
    assert len(poor.warnings) == table((plan, poor), Format.WIDE).count(" in the snapshot: ") > 5
    assert json.loads(render(reported((plan, poor)), Format.JSON))["warnings"] == list(poor.warnings)
