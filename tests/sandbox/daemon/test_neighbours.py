"""Others that move pods: another descheduler, a consolidating Karpenter, a drain; seen, and not imagined."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.findings import plan_with_findings
from rebalancer.model.reason import Finding
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Observer
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.annotations import EVICT
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.observers.neighbours import NeighbourCode, NeighbourWatch, neighbours, turn
from tests.support.build import node, objects, pod, snapshot
from tests.support.processes.command import call
from tests.support.processes.daemon_process import BRISK, Process, daemon, evictions
from tests.support.runs.machine import BRAKE
from tests.support.runs.one_cycle import EXECUTE, SKEWED, Run
from tests.support.sandbox import ApiServer
from tests.support.servers.api import FakeTime
from tests.support.waiting import until

Things = Iterable[Any]


def image(name: str, namespace: str = "default", **labels: str) -> Any:
    """A pod of that image on a node."""
    made = pod("it", namespace).labels(app="other", **labels).on("n")
    made._spec["containers"][0]["image"] = name
    return made


N = node("n").zone("a")
REBALANCER = {"app.kubernetes.io/name": "rebalancer"}


def of(owner: str, name: str, namespace: str = "ops", component: str = "daemon") -> Any:
    """A pod of a rebalancer, with a controller: Kind/name."""
    labels = REBALANCER | {"app.kubernetes.io/component": component}
    kind, _, called = owner.partition("/")
    made = pod(name, namespace).label_map(labels).on("n")
    return made.owned_by(kind, called, "batch/v1" if kind == "Job" else "apps/v1")


def below(kind: str, name: str, owner: str) -> Any:
    """A ReplicaSet of a Deployment, or a Job of a CronJob."""
    above, _, called = owner.partition("/")
    version = "batch/v1" if kind == "Job" else "apps/v1"
    refs = [{"apiVersion": version, "kind": above, "name": called, "uid": called, "controller": True}]
    meta = {"name": name, "namespace": "ops", "ownerReferences": refs}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": {"template": {}}}


TWO = (
    *(below("ReplicaSet", f"r{i}-1", f"Deployment/r{i}") for i in (1, 2)),
    *(of(f"ReplicaSet/r{i}-1", f"r{i}-1-x") for i in (1, 2)),
)
"""Two installations in one namespace."""
UNDER_WAY = pod("web").on("n").owned_by("ReplicaSet", "web").terminating()
TABLE: list[tuple[str, Things, list[str]]] = [
    ("a descheduler by its chart's label",
     (N, pod("it").label_map({"app.kubernetes.io/name": "descheduler"}).on("n")), ["descheduler-present"]),
    ("a descheduler by its app label", (N, pod("it").labels(app="descheduler").on("n")),
     ["descheduler-present"]),
    ("a descheduler by its image", (N, image("registry.k8s.io/descheduler/descheduler:v0.34.0")),
     ["descheduler-present"]),
    ("a descheduler by its image and digest", (N, image("mirror.example:5000/x/descheduler@sha256:00ff")),
     ["descheduler-present"]),
    ("a descheduler's CronJob, of which the last pod is there",
     (N, pod("it").labels(app="descheduler").on("n").owned_by("Job", "d-1", "batch/v1").phase("Succeeded")),
     ["descheduler-present"]),
    ("a descheduler that has ended for good",
     (N, pod("it").labels(app="descheduler").on("n").phase("Failed")), []),
    ("rebalancers in two namespaces",
     (N, *(pod("r", n).label_map(REBALANCER).on("n") for n in ("a", "b"))),
     ["several-rebalancers"]),
    ("two rebalancers in one namespace", (N, *TWO), ["several-rebalancers"]),
    ("a daemon and a CronJob in one namespace",
     (N, *TWO[::2], below("Job", "c-1", "CronJob/c"), of("Job/c-1", "c-1-x", component="cycle")),
     ["several-rebalancers"]),
    ("two replicas of one rebalancer",
     (N, *(pod(r).label_map(REBALANCER).on("n") for r in ("r-1", "r-2"))), []),
    ("a rebalancer that is rolled out",
     (N, *(below("ReplicaSet", f"r-{i}", "Deployment/r") for i in (1, 2)),
      *(of(f"ReplicaSet/r-{i}", f"r-{i}-x") for i in (1, 2))), []),
    ("a CronJob's runs",
     (N, *(below("Job", f"c-{i}", "CronJob/c") for i in (1, 2)),
      of("Job/c-1", "c-1", component="cycle").phase("Succeeded"), of("Job/c-2", "c-2", component="cycle")),
     []),
    ("a CronJob's runs whose Jobs are not read",
     (N, *(of(f"Job/c-{i}", f"c-{i}-x", component="cycle") for i in (1, 2))), []),
    ("a rebalancer, and Jobs that report",
     (N, *TWO[::2], of("Job/report", "report-x", component="report"),
      image("rebalancer:1", "ops").owned_by("Job", "nightly", "batch/v1")), []),
    ("a program that only has it in its name", (N, image("example/descheduler-exporter:1")), []),
    ("a program from a registry of that name", (N, image("descheduler.example/web:1")), []),
    ("Karpenter that consolidates", (N.label("x", "y"), node("k").taint("karpenter.sh/disrupted")),
     ["karpenter-consolidating"]),
    ("Karpenter before its v1 that consolidates",
     (node("k").taint("karpenter.sh/disruption", "disrupting"),), ["karpenter-consolidating"]),
    ("Karpenter's nodes", (node("k").label("karpenter.sh/nodepool", "default"),), ["karpenter-present"]),
    ("Karpenter's node that goes, and its pods with it",
     (node("n").taint("karpenter.sh/disrupted"), UNDER_WAY), ["karpenter-consolidating"]),
    ("nodes with other taints", (node("k").taint("karpenter.sh/unregistered-x"), N), []),
    ("a drain", (node("n").cordoned(), UNDER_WAY), ["drain-running"]),
    ("a node that the cluster-autoscaler empties",
     (node("n").taint("ToBeDeletedByClusterAutoscaler"), UNDER_WAY), ["drain-running"]),
    ("a cordoned node whose pods stay",
     (node("n").cordoned(), pod("web").on("n").owned_by("ReplicaSet", "web")), []),
    ("a pod that ends on a node like any other", (N, UNDER_WAY), []),
    ("a DaemonSet that is updated on a cordoned node",
     (node("n").cordoned(), pod("log").on("n").owned_by("DaemonSet", "log").terminating()), []),
    ("a drain beside a cordoned node", (N, node("m").cordoned(), UNDER_WAY), []),
]  # fmt: skip


CODES = frozenset(NeighbourCode)


@pytest.mark.parametrize(("things", "codes"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_of(things: Things, codes: list[str]) -> None:
    assert [f.code for f in neighbours(snapshot(*things))] == codes


INSTALLATIONS = [("ops", "r1-1-x"), ("ops", "r2-1-x"), ("pay", "r"), ("shop", "elsewhere")]
"""Namespace and host of each; the last is outside of the cluster, beside a pod that does not say its name."""


def test_of_several_installations_one_evicts_at_a_time_and_the_next_only_after_a_while() -> None:
    seen = snapshot(N, *TWO, *(pod("r", n).label_map(REBALANCER).on("n") for n in ("pay", "shop")))
    owners = {(w.kind, w.namespace, w.name): w for w in seen.workloads}

    def waits(home: str, host: str, now: float) -> float:
        return turn(seen.pods, lambda *key: owners.get(key), home, host, 1e9 + now)

    acts = {i: [s for s in range(800) if waits(*i, s) == 0] for i in INSTALLATIONS}
    for i in INSTALLATIONS:
        assert len(acts[i]) == 120
        assert waits(*i, 800 + acts[i][0] - 7.5) == 7.5
    every = sorted((second, i) for i in INSTALLATIONS for second in acts[i])
    changes = [b - a for (a, m), (b, n) in pairwise(every) if m != n]
    assert set(changes) == {9}
    assert turn((), lambda *_: None, "ops", "r1-1-x", 1e9 + 30) == 0


HERE = gethostname()


@pytest.mark.parametrize(
    ("home", "others", "begins", "first"),
    [
        ("", [("a-tools", "r", "r")], 0, 20),
        ("", [("a-tools", "r", "r")], 21, 21),
        ("", [("a-tools", "r", "r")], 33, 60),
        ("b-tools", [("a-tools", "r", "r"), ("b-tools", "r", "r")], 21, 21),
        ("ops", [("ops", "r1", "r1-x"), ("ops", "r2", HERE)], 0, 20),
        ("ops", [("ops", "r1", HERE), ("ops", "r2", "r2-x")], 13, 40),
    ],
)
def test_an_installation_evicts_in_its_turn(
    home: str, others: list[tuple[str, str, str]], begins: int, first: int
) -> None:
    """Its brake is in the namespace `default` unless it has a home. `others`: namespace, controller and pod
    of each that shows, it among them where it runs there."""
    pods = [of(f"StatefulSet/{owner}", name, namespace).on("b-0") for namespace, owner, name in others]
    planning = PlanOptions(policy=PolicyOptions(own_namespace=home))
    with ApiServer(objects(*SKEWED, *pods)) as server:
        server.ahead = None
        options = replace(EXECUTE, brake=BRAKE, planning=planning)
        run = Run(server, options, time=FakeTime(at=1_000_000.0 + begins))
    sent = [o.at - 1_000_000.0 for o in run.story.outcomes]
    assert run.zones() == [2, 2, 2]
    assert first <= sent[0] <= first + 2
    turns = 20 if first % 40 >= 20 else 0
    assert all(turns <= at % 40 < turns + 12 for at in sent)


class Notices(Observer):
    """What was told."""

    def __init__(self) -> None:
        self.told: list[Finding] = []

    def on_notice(self, finding: Finding) -> None:
        self.told.append(finding)


def test_each_is_told_once_and_again_after_it_had_gone() -> None:
    notices = Notices()
    watch = NeighbourWatch(notices)
    quiet: Snapshot = snapshot(N)
    drain = snapshot(node("n").cordoned(), UNDER_WAY)
    for s in (quiet, drain, drain, quiet, drain):
        watch.on_snapshot(s)
    assert [f.code for f in notices.told] == ["drain-running"] * 2
    assert notices.told[0].message == "a drain: 1 pod of this node, which takes no new ones, is going"


def test_what_many_objects_have_in_common_is_told_once_with_their_number() -> None:
    notices = Notices()
    watch = NeighbourWatch(notices)
    for count in (3, 3, 4):
        there = snapshot(*(node(f"n-{i}").zone("a").label(EVICT, "false") for i in range(count)))
        watch.on_plan(there, plan_with_findings(there))
    said = f"{EVICT} is a label; what it is to say has to be an annotation"
    told = [(f.object, f.message) for f in notices.told]
    assert told == [("Node/n-0", f"{said}; the same of 2 other objects"), ("Node/n-3", said)]


CASES: list[tuple[str, Things, str]] = [
    ("another descheduler", (pod("d-1").labels(app="descheduler").on("b-0"),),
     "note: Pod/default/d-1: a descheduler runs in this cluster"),
    ("Karpenter", (node("k").zone("a").taint("karpenter.sh/disrupted"),),
     "note: Node/k: Karpenter is taking away 1 node: "),
    ("a drain", (node("m").zone("a").cordoned(), pod("x").on("m").owned_by("ReplicaSet", "x").terminating()),
     "note: Node/m: a drain: 1 pod of this node"),
]  # fmt: skip


@pytest.mark.parametrize(("things", "says"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_cycle_by_hand_says_it(things: Things, says: str, tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED, *things)) as server:
        done = call(server, tmp_path, "once")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("note: ") == 1
    assert says in done.stderr


def report(server: ApiServer, folder: Path) -> list[dict[str, Any]]:
    """The findings that a report of the cluster has of its neighbours."""
    made = json.loads(call(server, folder, "report", "-o", "json").stdout)
    return [f for f in made["findings"] if f["code"] in CODES]


def test_a_report_of_a_cluster_has_each_and_says_it_in_the_same_order(tmp_path: Path) -> None:
    things = [t for case in CASES for t in case[1]]
    with ApiServer(objects(*SKEWED, *things)) as server:
        found = report(server, tmp_path)
    with ApiServer(objects(*reversed(things), *SKEWED)) as server:
        assert report(server, tmp_path) == found
    assert [f["code"] for f in found] == ["descheduler-present", "drain-running", "karpenter-consolidating"]
    assert found[1]["object"] == "Node/m"


def test_a_report_of_a_file_has_them_and_one_without_them_has_none(tmp_path: Path) -> None:
    def told(*things: Any) -> str:
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(*SKEWED, *things)}))
        done: str = CliRunner().invoke(app, ["report", "--snapshot", str(file)]).stdout
        return done

    assert "Pod/default/d-1 (descheduler-present): a descheduler runs in this cluster" in told(*CASES[0][1])
    quiet = told()
    assert quiet
    assert not any(code in quiet for code in CODES)


def test_a_cycle_by_hand_says_nothing_where_there_is_nobody(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        assert "note: " not in call(server, tmp_path, "once").stderr


def test_a_daemon_logs_a_drain_when_it_begins_and_once(tmp_path: Path) -> None:
    quick = BRISK.replace("interval: 1s", "interval: 300ms")
    with ApiServer(objects(*SKEWED)) as server, daemon(server, tmp_path, quick) as d:
        until(lambda: d.said().count("cycle over") >= 2)
        assert "a drain: " not in d.said()

        def cordon(n: dict[str, Any]) -> None:
            n["spec"]["unschedulable"] = True

        server.store.modify("Node", "a-0", None, cordon)
        server.store.delete("Pod", "web-00000", "default", grace=30)
        until(lambda: "Node/a-0: a drain: 1 pod of this node" in d.said())
        before = d.said().count("cycle over")
        until(lambda: d.said().count("cycle over") >= before + 3)
        assert d.said().count("a drain: ") == 1
        assert d.end() == 0


MISSPELLED = """
scope: {namespaces: {exclude: [payment]}}
evictions: {enabled: true, canary: 0, stabilization: 0s, coolDown: 0s, perSecond: 0}
schedule: {interval: 300ms, react: off}
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


def test_a_no_that_is_misspelled_holds_and_is_logged_once_until_it_changes(tmp_path: Path) -> None:
    said = {"name": "default", "annotations": {"rebalancer.io/evict": "no"}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": said}

    def differently(n: dict[str, Any]) -> None:
        n["metadata"]["annotations"]["rebalancer.io/evict"] = "off"

    def cycles(d: Process, more: int) -> None:
        before = d.said().count("cycle over")
        until(lambda: d.said().count("cycle over") >= before + more)

    with ApiServer(objects(*SKEWED, space)) as server, daemon(server, tmp_path, MISSPELLED) as d:
        cycles(d, 3)
        assert d.said().count("'no' is none of true, prefer, ") == 1
        assert d.said().count("payment is no namespace in this cluster: it protects nobody") == 1
        server.store.modify("Namespace", "default", None, differently)
        until(lambda: "'off' is none of true, prefer, " in d.said())
        cycles(d, 2)
        assert d.said().count("is none of") == 2
        assert d.end() == 0
        assert evictions(server) == 0
