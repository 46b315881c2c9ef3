"""`rebalancer explain --compare`: the scheduler's last refusals, or what it does while one watches."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from rebalancer.cli.app import app
from rebalancer.engine.agreement import Comparison
from rebalancer.engine.agreement import Result as Verdict
from rebalancer.engine.config import parse_config
from rebalancer.policy.history.ledger import COVERED
from rebalancer.report.explained import agreement_report
from tests.support.clusters.cluster_objects import node, pods, workload
from tests.support.sandbox import Cluster
from tests.support.scheduler.plain import Json
from tests.support.waiting import until

TAINT = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
NO_TAINTS = parse_config(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}}],
    }
)
SEEN = {"NodeResourcesFit takes", "NodeUnschedulable takes", "TaintToleration takes"}


def compare(cluster: Cluster, folder: Path, *arguments: str) -> Result:
    config = cluster.kubeconfig(folder / "config")
    return CliRunner().invoke(app, ["explain", "--compare", *arguments, "--kubeconfig", str(config)])


def refusal(pod: Json, message: str, *, age: float = 5.0, uid: str | None = None) -> Json:
    """The event that kube-scheduler writes."""
    meta = pod["metadata"]
    at = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{int(age)}", "namespace": "default", "creationTimestamp": at},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": meta["name"],
                           "uid": meta["uid"] if uid is None else uid},
        "reason": "FailedScheduling",
        "message": message,
        "type": "Warning",
        "firstTimestamp": at,
        "lastTimestamp": at,
    }  # fmt: skip


def waiting(cluster: Cluster, app_: str) -> Json:
    """A pod that the scheduler has refused."""
    until(lambda: any("conditions" in p["status"] for p in pods(cluster, app_)))
    cluster.settle()
    return pods(cluster, app_)[0]


def test_refusals_of_the_last_minute_are_compared(tmp_path: Path) -> None:
    things = [node("a-0", cpu="1"), workload("ReplicaSet", 1, "large", cpu="8")]
    with Cluster(things) as cluster:
        pod = waiting(cluster, "large")
        cluster.store.create(refusal(pod, "0/1 nodes are available: 1 node(s) were too loud.", age=40))
        cluster.store.create(refusal(pod, "0/1 nodes are available: 1 Insufficient cpu.", age=5))
        done = compare(cluster, tmp_path)
    assert done.exit_code == 0, done.output
    name = pod["metadata"]["name"]
    assert done.stdout == (
        f"agrees        default/{name}: refused\n1 decision of the scheduler compared: agrees 1\n"
    )


def test_a_refusal_that_the_engine_does_not_understand_is_told_and_fails(tmp_path: Path) -> None:
    with Cluster([node("a-0"), workload("ReplicaSet", 1)], without=["Scheduler"]) as cluster:
        until(lambda: pods(cluster))
        pod = pods(cluster)[0]
        cluster.store.create(refusal(pod, "0/1 nodes are available: 1 node(s) were too loud."))
        done = compare(cluster, tmp_path, "-o", "json")
    assert done.exit_code == 3, done.output
    report = json.loads(done.stdout)
    assert report["kind"] == "Agreement"
    assert report["verdict"].startswith("the scheduler does otherwise than predicted in unknown takes: ")
    (evidence,) = report["evidence"]
    assert evidence == {
        "version": evidence["version"],
        "profile": "default-scheduler",
        "branch": "unknown takes",
        "agrees": 0,
        "disagrees": 1,
    }
    assert report["results"] == {"agrees": 0, "disagrees": 1, "other-reasons": 0, "unclear": 0}
    (found,) = report["comparisons"]
    assert (found["nodes"], found["certain"]) == (["a-0"], True)
    assert "node(s) were too loud" in found["message"]


def test_a_refusal_for_want_of_room_that_has_come_since_is_unclear(tmp_path: Path) -> None:
    with Cluster([node("a-0"), workload("ReplicaSet", 1)], without=["Scheduler"]) as cluster:
        until(lambda: pods(cluster))
        cluster.store.create(refusal(pods(cluster)[0], "0/1 nodes are available: 1 Insufficient cpu."))
        done = compare(cluster, tmp_path, "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["results"]["unclear"] == 1


@pytest.mark.parametrize(
    ("age", "uid"), [(90.0, None), (5.0, "of-another")], ids=["an old event", "of a pod that is gone"]
)
def test_what_says_nothing_of_now_is_left_out(age: float, uid: str | None, tmp_path: Path) -> None:
    with Cluster([node("a-0", cpu="1"), workload("ReplicaSet", 1, "large", cpu="8")]) as cluster:
        pod = waiting(cluster, "large")
        cluster.store.create(refusal(pod, "0/1 nodes are available: 1 Insufficient cpu.", age=age, uid=uid))
        done = compare(cluster, tmp_path)
    assert done.exit_code == 0
    assert done.stdout.startswith("nothing to compare: the scheduler refused no pod in the last minute")


@pytest.mark.parametrize("other", [False, True], ids=["the same rules", "a filter less"])
def test_what_the_scheduler_does_meanwhile_is_compared(other: bool, tmp_path: Path) -> None:
    nodes = [node("a-0", taints=[TAINT])] if other else [node("a-0"), node("b-0", "b")]
    options = {"scheduler": NO_TAINTS} if other else {}
    with Cluster(nodes, ready_after=0.02, **options) as cluster:
        stop = threading.Event()

        def work() -> None:
            number = 0
            while not stop.wait(0.5):
                number += 1
                cluster.store.create(workload("ReplicaSet", 1, f"w{number}"))

        worker = threading.Thread(target=work)
        worker.start()
        try:
            form = [] if other else ["-o", "json"]
            done = compare(cluster, tmp_path, "--watch", "4s", *form)
        finally:
            stop.set()
            worker.join()
    assert done.exit_code == (3 if other else 0), done.output
    if not other:
        report = json.loads(done.stdout)
        assert report["compared"] == len(report["comparisons"]) > 0
        assert {c["result"] for c in report["comparisons"]} == {"agrees"}
        assert {c["owner"].partition("/w")[0] for c in report["comparisons"]} == {"ReplicaSet/default"}
        assert {e["branch"] for e in report["evidence"]} == SEEN
        assert all(e["agrees"] > 0 == e["disagrees"] for e in report["evidence"])
        assert report["verdict"] == "no decision disagrees; 3 branches of the rules seen"
        return
    lines = done.stdout.splitlines()
    assert len(lines) > 2
    assert {text.split()[0] for text in lines[:-2]} == {"disagrees"}
    assert lines[-2] == (f"{len(lines) - 2} decisions of the scheduler compared: disagrees {len(lines) - 2}")
    assert lines[-1].startswith("the scheduler does otherwise than predicted in TaintToleration rejects")


def test_what_is_shown_is_counted_in_a_row_and_told() -> None:
    once = Comparison(
        namespace="default",
        pod="web",
        node="a-0",
        result=Verdict.AGREES,
        certain=True,
        branches=("NodeAffinity takes: In", "NodeResourcesFit takes"),
        shown=("NodeAffinity takes: In", "NodeResourcesFit takes, cpu 1/8"),
    )
    found = agreement_report([once] * (COVERED - 1))
    assert {(s.branch, s.decisions, s.enough) for s in found.shown} == {
        (b, COVERED - 1, False) for b in once.shown
    }
    found = agreement_report([once] * COVERED)
    assert all(s.enough for s in found.shown)
    assert found.verdict == (
        "no decision disagrees; 2 branches of the rules seen, 2 things shown in 459 decisions in a row "
        "or more"
    )
    elsewhere = replace(once, shown=(), missed=("NodeResourcesFit takes",))
    unsure = replace(once, certain=False)
    found = agreement_report([*[once] * COVERED, elsewhere, once, unsure])
    assert {(s.branch, s.decisions) for s in found.shown} == {
        ("NodeAffinity takes: In", COVERED + 1),
        ("NodeResourcesFit takes, cpu 1/8", 1),
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--compare", "shop/web-1"],
        ["--compare", "--snapshot", "x.json"],
        ["--watch", "5m"],
        ["--compare", "--watch", "soon"],
    ],
)
def test_it_is_about_a_live_clusters_scheduler(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["explain", *arguments])
    assert done.exit_code == 2
