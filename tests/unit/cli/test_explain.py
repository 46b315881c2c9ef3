"""`rebalancer explain`: every node's verdict, the scheduler's own sentence, and what is not certain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.errors import UserError
from tests.support.build import node, nodes, objects, pod, stateful_set, workload
from tests.support.scheduler.plain import Json

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SKEWED = "node(s) didn't match pod topology spread constraints"


def written(folder: Path, *things: Any) -> Path:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(*things)}))
    return path


def explain(*arguments: str | Path, stdin: str | None = None) -> str:
    done = CliRunner().invoke(app, ["explain", *map(str, arguments)], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def document(*arguments: str | Path, stdin: str | None = None) -> Json:
    found: Json = json.loads(explain(*arguments, "-o", "json", stdin=stdin))
    return found


def verdicts(found: Json) -> dict[str, str]:
    """node → the plugin that decides against it, "" where it fits."""
    return {v["node"]: v["rejections"][0]["plugin"] if v["rejections"] else "" for v in found["verdicts"]}


def test_an_assigned_pod_is_judged_as_if_its_place_were_vacated() -> None:
    found = document("default/web-00000", "--snapshot", SCENARIOS / "one_slot.json.gz")
    assert found["situation"].startswith("is on a-0; judged as if it were to be placed again now")
    assert found["constraints"][0]["domains"] == {"a": 3, "b": 0}
    assert verdicts(found) == {"a-0": "PodTopologySpread", "b-0": ""}
    assert (found["winners"], found["message"]) == (["b-0"], "")


def test_its_own_room_is_vacated_too_but_a_replacement_finds_it_held(tmp_path: Path) -> None:
    path = written(tmp_path, node("a").cpu("1"), workload("web").requests(cpu="1").placed({"a": 1}))
    name = json.loads(path.read_text())["items"][-1]["metadata"]["name"]
    assert document(name, "--snapshot", path)["winners"] == ["a"]
    replaced = document(name, "--snapshot", path, "--replacement")
    assert replaced["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert "while it still holds its room" in replaced["situation"]


def test_the_successor_of_a_statefulset_pod_comes_after_it_is_gone(tmp_path: Path) -> None:
    path = written(tmp_path, node("a").cpu("1"), stateful_set("db").requests(cpu="1").placed({"a": 1}))
    replaced = document("db-0", "--snapshot", path, "--replacement")
    assert (replaced["winners"], "after it is gone" in replaced["situation"]) == (["a"], True)


def test_a_pending_pod_has_the_schedulers_own_line(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        node("a").zone("a").cpu("1"),
        node("b").zone("b").cordoned(),
        pod("old").on("a").requests(cpu="1"),
        pod("new").requests(cpu="1"),
    )
    line = (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )
    found = document("new", "--snapshot", path)
    assert (found["message"], found["situation"]) == (line, "waits for a node")
    assert f"No node takes it: {line}" in explain("default/new", "--snapshot", path)


def test_preemption_that_would_help_names_the_nodes(tmp_path: Path) -> None:
    path = written(tmp_path, node("a").pods(1), pod("old").on("a"), pod("new").priority(10))
    assert "Preempting pods of lower priority would make room on 1 node: a" in explain(
        "new", "--snapshot", path
    )


def test_wide_has_every_rejection_and_the_narrow_form_groups_them(tmp_path: Path) -> None:
    full = [node(f"n{i:04}").zone("a").cordoned().taint("dedicated") for i in range(300)]
    path = written(tmp_path, *full, node("free").zone("b"), pod("new"))
    narrow = explain("new", "--snapshot", path).splitlines()
    assert len(narrow) < 25
    assert any("300" in line and "NodeUnschedulable" in line and "n0000, n0001" in line for line in narrow)
    wide = explain("new", "--snapshot", path, "-o", "wide").splitlines()
    assert sum("TaintToleration: node(s) had untolerated taint(s)" in line for line in wide) == 300


def test_nodes_that_tie_are_all_named_with_the_scores_of_each_plugin(tmp_path: Path) -> None:
    path = written(tmp_path, nodes(a=2), node("busy"), pod("old").on("busy").requests(cpu="4"), pod("new"))
    found = document("new", "--snapshot", path)
    assert found["winners"] == ["a-0", "a-1"]
    best = next(v for v in found["verdicts"] if v["node"] == "a-0")
    assert best["score"] == sum(best["scores"].values())
    assert "2 tie at a score of" in explain("new", "--snapshot", path)


def test_a_pod_that_does_not_exist_yet_comes_from_a_file_or_standard_input(tmp_path: Path) -> None:
    path = written(tmp_path, node("a").zone("a"), node("b").zone("b"), workload("web").placed({"a": 2}))
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    shape = {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "9"}}}],
        "topologySpreadConstraints": [spread],
    }
    new = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "labels": {"app": "web"}},
        "spec": shape,
    }
    found = document("--pod-file", "-", "--snapshot", path, stdin=json.dumps(new))
    assert found["situation"].startswith("does not exist yet")
    assert "2 Insufficient cpu" in found["message"], "limits stand in for requests, as the server has it"
    assert [r["plugin"] for r in found["verdicts"][0]["rejections"]] == [
        "NodeResourcesFit",
        "PodTopologySpread",
    ]
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c"}]},
    }
    template["spec"]["topologySpreadConstraints"] = [spread]
    deploy = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    file = tmp_path / "deploy.json"
    file.write_text(json.dumps({**deploy, "spec": {"template": template}}))
    found = document("--pod-file", file, "--snapshot", path)
    assert verdicts(found) == {"a": "PodTopologySpread", "b": ""}
    assert SKEWED in explain("--pod-file", file, "--snapshot", path)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("default/wbe-1", "no pod default/wbe-1 among 4; similar: default/web-1, default/web-2"),
        ("web", "no pod web among 4; similar: default/web-1, default/web-2"),
        ("other/web-2", "no pod other/web-2 among 4; similar: default/web-2"),
        ("twin", "several pods are named twin; say which: default/twin, shop/twin"),
    ],
)
def test_an_unknown_pod_is_an_error_that_names_similar_ones(tmp_path: Path, asked: str, says: str) -> None:
    twins = [pod("twin").on("a"), pod("twin", namespace="shop").on("a")]
    path = written(tmp_path, node("a"), pod("web-1").on("a"), pod("web-2").on("a"), *twins)
    with pytest.raises(UserError, match=says.replace("(", r"\(")):
        explain(asked, "--snapshot", path)


def test_what_cannot_be_certain_is_said(tmp_path: Path) -> None:
    (own,) = pod("new").build()
    own["spec"]["schedulerName"] = "own"
    path = written(tmp_path, node("a"), own)
    assert "Uncertain, because\n  the pod is placed by another scheduler, 'own'" in explain(
        "new", "--snapshot", path
    )


def test_a_file_without_a_pod_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, node("a"), pod("old").on("a"))
    with pytest.raises(UserError, match="-: no pod in it"):
        explain("--pod-file", "-", "--snapshot", path, stdin='{"kind": "Node", "metadata": {"name": "n"}}')


def test_a_priority_class_that_is_unknown_is_no_error_but_one_that_is_absent_is(tmp_path: Path) -> None:
    new = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"priorityClassName": "high", "containers": [{"name": "c"}]},
    }
    known = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}}
    path = written(tmp_path, node("a"), pod("old").on("a"))
    assert document("--pod-file", "-", "--snapshot", path, stdin=json.dumps(new))["winners"] == ["a"]
    path = written(tmp_path, node("a"), pod("old").on("a"), {**known, "value": 5})
    with pytest.raises(UserError, match="no PriorityClass with name high was found"):
        explain("--pod-file", "-", "--snapshot", path, stdin=json.dumps(new))


def test_names_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    path = written(tmp_path, node("a\x1b[31m"), pod("new"))
    assert "\x1b" not in explain("new", "--snapshot", path)
    assert "\x1b" not in explain("new", "--snapshot", path, "-o", "json")


PLANS = {
    "web-00000": ("evicted", "The plan evicts it in wave 1 of 1; its replacement goes to b-0"),
    "web-00001": (
        "stays",
        "no-feasible-node: its replacement would find no node",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_it_says_what_the_plan_does_with_the_pod_and_of_which_moment_it_speaks(name: str) -> None:
    """The report judges after the plan's moves, explain before them: both fit web-00001 differently."""
    decision, says = PLANS[name]
    at = ("--snapshot", SCENARIOS / "one_slot.json.gz")
    found = document(f"default/{name}", *at)
    assert (found["plan"]["decision"], says in found["plan"]["says"]) == (decision, True)
    text = explain(f"default/{name}", *at)
    assert "This is said of the cluster as it is now, before any eviction. The plan " in text
    shown = CliRunner().invoke(app, ["report", *map(str, at)]).stdout
    assert "Judged as the cluster is after the planned evictions; explain judges it as" in shown


def test_a_pod_that_no_violated_constraint_counts_is_none_of_the_plans_business(tmp_path: Path) -> None:
    path = written(tmp_path, *nodes(a=1, b=1), pod("alone").on("a-0"))
    assert document("alone", "--snapshot", path)["plan"]["decision"] == "not-needed"
