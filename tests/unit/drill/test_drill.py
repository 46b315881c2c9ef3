"""What a failure leaves Pending: by hand, and whether what needs no replay comes to the same as one."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.drill import Drilled, Failure, drill
from rebalancer.drill.lost import NODE, failures
from rebalancer.drill.replay import Intact, _harmless, replayed, surely_fine
from rebalancer.errors import UserError
from rebalancer.planner import plan
from rebalancer.report.document import build_drill
from rebalancer.report.page import picture
from rebalancer.spread.nodes import NodeTable
from tests.support.build import (
    daemon_set,
    decoded,
    deployment,
    node,
    nodes,
    objects,
    pdb,
    pod,
    snapshot,
    stateful_set,
    workload,
)
from tests.support.clusters.random_clusters import random_cluster
from tests.support.scheduler.plain import ZONE

FOLDER = Path(__file__).parents[2] / "scenarios"


def zone_a(*things: Any, **options: Any) -> Drilled:
    """What the failure of zone a comes to."""
    found = drill(snapshot(*things), keys=(ZONE,), **options)
    [failed] = [d for d in found.today if d.failure.value == "a"]
    return failed


def test_a_zone_that_is_down_counts_as_empty_and_keeps_the_others_at_max_skew() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 2, "b-0": 2, "c-0": 2})
    failed = zone_a(nodes(a=1, b=1, c=1), web)
    assert (failed.lost, failed.pending) == (2, 2)
    [loss] = failed.workloads
    assert "maxSkew 1 over topology.kubernetes.io/zone" in loss.why
    assert loss.counts_dead


def test_pods_that_go_one_after_the_other_still_count_for_those_before_them() -> None:
    web = workload("web").spread("zone", 2).placed({"a-0": 2, "b-0": 2})
    failed = zone_a(nodes(a=1, b=1), web)
    assert (failed.least, failed.pending, failed.most) == (1, 2, 2)


def test_of_one_namespace_the_range_is_its_own() -> None:
    things = [
        workload("web", namespace=ns).spread("zone", 2).placed({"a-0": 2, "b-0": 2}) for ns in ("x", "y")
    ]
    found = drill(snapshot(nodes(a=1, b=1), *things), keys=(f"{ZONE}=a",))
    every, one = (build_drill(found, namespaces=names).failures[0] for names in ((), ("x",)))
    assert (every.says_pending, one.says_pending) == ("2–4", "1–2")


def test_what_honoring_taints_would_change_is_replayed_with_what_it_gives_up() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 2, "b-0": 2, "c-0": 2})
    honored = zone_a(nodes(a=1, b=1, c=1), web).honored
    assert honored is not None
    assert (honored.pending, honored.min_domains) == ((2, 0), False)
    assert [round(share, 2) for share in honored.loss] == [0.33, 0.5]


def test_honoring_taints_alone_does_not_help_where_as_many_domains_are_asked_for() -> None:
    web = workload("web").spread("zone", 1, min_domains=3).placed({"a-0": 2, "b-0": 2, "c-0": 2})
    honored = zone_a(nodes(a=1, b=1, c=1), web).honored
    assert honored is not None
    assert honored.min_domains
    assert honored.pending == (2, 0)


def test_what_would_not_help_is_not_told() -> None:
    full = [node("a-0").zone("a"), *(node(f"{z}-0").zone(z).pods(2) for z in "bc")]
    web = workload("web").spread("zone", 1).placed({"a-0": 2, "b-0": 2, "c-0": 2})
    assert zone_a(full, web).honored is None


def test_nodes_that_fail_one_after_the_other_leave_another_number() -> None:
    """Node a-0's pods go to a-1 first, which is full then: the last ones find the zone empty."""
    web = workload("web").spread("zone", 1).placed({"a-0": 2, "a-1": 2, "b-0": 4, "c-0": 4})
    failed = zone_a(nodes(a=2, b=1, c=1), web)
    assert failed.pending == 4
    assert (failed.least, failed.most) == (4, 4)
    loose = workload("web").spread("zone", 2).placed({"a-0": 2, "a-1": 2, "b-0": 2, "c-0": 2})
    failed = zone_a(nodes(a=2, b=1, c=1), loose)
    assert failed.least < failed.most == failed.pending


def test_with_node_taints_policy_honor_it_does_not_count() -> None:
    web = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 2, "b-0": 2, "c-0": 2})
    assert zone_a(nodes(a=1, b=1, c=1), web).pending == 0


def test_removed_nodes_do_not_count_and_their_stateful_sets_are_made_again() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 2, "b-0": 2, "c-0": 2})
    db = stateful_set("db").placed({"a-0": 1, "b-0": 1})
    silent = zone_a(nodes(a=1, b=1, c=1), web, db)
    assert (silent.pending, silent.held) == (2, 1)
    removed = zone_a(nodes(a=1, b=1, c=1), web, db, manner="removed")
    assert (removed.lost, removed.pending, removed.held) == (3, 0, 0)


def test_an_ordered_set_stops_at_the_first_pod_that_finds_no_node() -> None:
    db = stateful_set("db").placed({"a-0": 2}).zonal_volumes({"a-0": "a"})
    removed = zone_a(nodes(a=1, b=1), db, manner="removed")
    assert (removed.lost, removed.pending, removed.held) == (2, 1, 1)


def test_only_so_many_find_room() -> None:
    failed = zone_a(node("a-0").zone("a"), node("b-0").zone("b").pods(3), workload("web").placed({"a-0": 5}))
    assert (failed.lost, failed.pending) == (5, 2)
    assert "Too many pods" in failed.workloads[0].why


def test_bare_pods_are_gone_and_daemons_belong_to_their_node() -> None:
    failed = zone_a(nodes(a=1, b=1), pod("one").on("a-0"), daemon_set("agent").placed({"a-0": 1, "b-0": 1}))
    assert (failed.lost, failed.gone, failed.pending) == (1, 1, 0)


@pytest.mark.parametrize(("tolerates", "pending"), [(True, 0), (False, 1)])
def test_a_daemon_counts_for_as_long_as_it_tolerates_the_silence(tolerates: bool, pending: int) -> None:
    web = workload("web").labels(app="web").spread("zone", 1, selector={"app": "web"})
    agent = daemon_set("agent").labels(app="web")
    if tolerates:
        agent.tolerates("node.kubernetes.io/unreachable")
    failed = zone_a(nodes(a=1, b=1), web.placed({"a-0": 1, "b-0": 1}), agent.placed({"a-0": 1}))
    assert (failed.lost, failed.pending) == (1, pending)


@pytest.mark.parametrize(("seconds", "pending"), [(0, 1), (600, 0)])
def test_who_tolerates_the_silence_for_longer_goes_later(seconds: int, pending: int) -> None:
    web = workload("web").labels(app="web").spread("zone", 1, selector={"app": "web"})
    other = workload("other").labels(app="web")
    other.tolerates("node.kubernetes.io/unreachable", effect="NoExecute", seconds=seconds)
    failed = zone_a(nodes(a=1, b=1), web.placed({"a-0": 1, "b-0": 1}), other.placed({"a-0": 1}))
    assert (failed.lost, failed.pending) == (2, pending)


def test_budgets_are_breached_for_a_while_or_to_stay() -> None:
    budget = pdb("web", {"app": "web"}, min_available=2)
    for room, lasting in ((9, False), (1, True)):
        machines = [node("a-0").zone("a"), node("b-0").zone("b").pods(room)]
        failed = zone_a(machines, workload("web").placed({"a-0": 2, "b-0": 1}), budget)
        [breach] = failed.breaches
        assert (breach.healthy, breach.needed, breach.lasting) == (1, 2, lasting)


def test_pods_that_waited_before_are_not_counted() -> None:
    things = [
        nodes(a=1, b=1),
        workload("big").requests(cpu="99").placed({"": 3}),
        deployment("web").placed({"a-0": 1}),
    ]
    found = drill(snapshot(*things), keys=(ZONE,))
    assert found.waiting == 3
    assert [d.pending for d in found.today] == [0, 0]


def test_what_the_plan_buys() -> None:
    web = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 4, "b-0": 1})
    machines = [node("a-0").zone("a").pods(4), node("b-0").zone("b").pods(4)]
    cluster = snapshot(machines, web)
    found = drill(cluster, keys=(ZONE,), plan=plan(cluster))
    assert [(d.failure.value, d.pending) for d in found.today] == [("a", 1), ("b", 1)]
    assert [(d.failure.value, d.pending) for d in found.planned] == [("a", 1), ("b", 1)]
    assert [d.lost for d in found.today] == [4, 1]
    assert [d.lost for d in found.planned] == [3, 2]


@pytest.mark.parametrize("seed", range(8))
def test_what_needs_no_replay_comes_to_the_same_as_one(seed: int) -> None:
    listed = list(
        random_cluster(Random(f"surely/{seed}"), ("small", "full")[seed % 2], pending=seed % 4 == 0)
    )
    rest = Intact(decoded(listed), None, "silent")
    lost = [rest.owned.lost(pods) for pods in rest.on_node]
    for row in surely_fine(rest, lost).nonzero()[0].tolist():
        failure = Failure(NODE, rest.state.table.names[row])
        assert _told(_harmless(rest, failure, lost[row])) == _told(replayed(rest, failure))


def _told(d: Drilled) -> object:
    return d.workloads, d.breaches, d.waiting, d.pending


def command(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["drill", *arguments, "--snapshot", str(FOLDER / "zone_outage.json.gz")])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_the_command_tells_the_worst_and_what_the_plan_makes_of_it() -> None:
    done = command("--domain", "zone")
    assert done.exit_code == 0
    assert (
        "3 failures tried. Today losing zone a leaves 20–36 pods Pending, after the plan 27–29" in done.stdout
    )
    assert "nodeTaintsPolicy: Honor" in done.stdout


def test_one_zone_and_one_node_fail_alone_as_they_do_among_all() -> None:
    found = json.loads(command("--domain", "zone=a", "--domain", "hostname=a-0", "-o", "json").stdout)
    every = json.loads(command("-o", "json").stdout)["failures"]
    figures = [(f["value"], f["nodes"], f["lost"], f["pending"]) for f in found["failures"]]
    among = {f["value"]: (f["value"], f["nodes"], f["lost"], f["pending"]) for f in every}
    assert figures == [among["a"], among["a-0"]]
    assert "zone a, hostname a-0" in command("--domain", "zone=a", "--domain", "hostname=a-0").stdout


def test_it_fails_where_more_would_be_pending_than_allowed() -> None:
    assert command("--domain", "zone", "--no-plan", "--max-pending", "35").exit_code == 3
    assert command("--domain", "zone", "--no-plan", "--max-pending", "36").exit_code == 0


def test_json_has_every_failure() -> None:
    found = json.loads(command("-o", "json").stdout)
    assert found["kind"] == "Drill"
    assert len(found["failures"]) == 15
    worst = found["worst"][0]
    assert (worst["key"], worst["value"], worst["pending"], worst["plannedPending"]) == (ZONE, "a", 36, 29)
    assert all(w["lost"] == w["replaced"] + w["pending"] + w["held"] + w["gone"] for w in worst["workloads"])


def test_a_label_that_no_node_has_is_an_error() -> None:
    def failed(domain: str) -> Any:
        file = str(FOLDER / "one_slot.json.gz")
        return CliRunner().invoke(app, ["drill", "--domain", domain, "--snapshot", file])

    def told(domain: str) -> str:
        error = failed(domain).exception
        assert isinstance(error, UserError)
        return f"{error.message}; {error.remedy}"

    zone = "topology.kubernetes.io/zone"
    assert told("rack").startswith("no node has the label rack; labels are kubernetes.io/hostname")
    assert told("zone=z") == f"no node has the label {zone}=z; values of {zone} are a, b"
    assert told("node=nix").startswith("no node is called nix; nodes are a-0")


def test_one_node_by_its_name() -> None:
    assert [f.value for f in failures(NodeTable(decoded(objects(nodes(a=3))).nodes), ["node=a-1"])] == ["a-1"]


def test_a_key_that_no_node_has_shuts_every_node_before_and_after() -> None:
    web = workload("web").spread("zone", 1).placed({"x": 2, "y": 1})
    found = drill(snapshot(node("x"), node("y"), web))
    assert [(d.failure.value, d.lost, d.pending) for d in found.today] == [("x", 2, 2), ("y", 1, 1)]
    # No domain is lost that a constraint could count as empty.
    assert not any(w.counts_dead for d in found.today for w in d.workloads)


def test_pods_that_find_a_node_before_the_failure_run() -> None:
    found = drill(snapshot(nodes(a=1, b=1), workload("web").placed({"a-0": 1, "": 3})), keys=(ZONE,))
    assert all(w.lost <= w.pods == 4 for d in found.today for w in d.workloads)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("table", "zone a           4    44    20–36    27–29"),
        ("markdown", "| `zone a` | 4 | 44 | 20–36 | 27–29 | 8 |"),
        ("html", '<section id="drill"'),
        ("json", '"kind": "Drill"'),
    ],
)
def test_the_report_has_it_on_request(form: str, said: str) -> None:
    file = str(FOLDER / "zone_outage.json.gz")
    done = CliRunner().invoke(app, ["report", "--drill", "-o", form, "--snapshot", file])
    assert said in done.stdout, done.exception or done.stdout
    done = CliRunner().invoke(app, ["report", "-o", form, "--snapshot", file])
    assert said not in done.stdout


def test_the_picture_has_a_pair_of_bars_for_each_failure() -> None:
    cluster = snapshot(nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4, "b-0": 2}))
    shown = build_drill(drill(cluster, keys=(ZONE,), plan=plan(cluster)))
    drawn = picture(shown)
    assert [r.says for r in drawn.rows] == ["3–4 → 3 planned", "2 → 3 planned"]
    assert drawn.rows[0].today > drawn.rows[0].planned > 0
    assert "zone a 3–4 → 3 planned" in drawn.says
