"""Reading some namespaces only, with rights in these alone: what is seen, what is not known, what is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.resources import RESOURCES
from rebalancer.runtime.live.agreement import AgreementWatch
from tests.support.build import node, objects, workload
from tests.support.sandbox import ApiServer
from tests.support.sandbox.authority import Rule, User
from tests.support.servers.api import connected
from tests.support.servers.watching import watching
from tests.support.waiting import until
from tests.unit.cli.test_cli import execute

EVERY = {"a-0": 4, "b-0": 1}
NODES = (node("a-0").zone("a"), node("b-0").zone("b"))
THINGS = objects(
    *NODES,
    *(workload("web", namespace=ns).spread("zone", 1).placed(EVERY) for ns in ("shop", "pay", "bank")),
    *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}} for ns in ("shop", "pay", "bank")),
)
WIDE = [r for r in RESOURCES.values() if not r.namespaced]
OWN = [r for r in RESOURCES.values() if r.namespaced]


def rights(*wide: str) -> list[Rule]:
    """To list in two namespaces, and of what belongs to none these plurals."""
    return [
        *(Rule(["list"], [r.plural], [r.group], namespaces=["shop", "pay"]) for r in OWN),
        *(Rule(["list"], [r.plural], [r.group]) for r in WIDE if r.plural in wide),
    ]


@pytest.fixture(autouse=True)
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text("scope: {readNamespaces: [shop, pay]}\n")
    return path


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(
        THINGS,
        tokens={"t": User("team")},
        rules={"team": rights(*(r.plural for r in WIDE))},
        authenticate=True,
    ) as s:
        yield s


def told(server: ApiServer, folder: Path, *args: Any) -> Any:
    config = server.kubeconfig(folder / "config", token="t")
    return execute("report", "--kubeconfig", config, "--config", folder / "settings.yaml", *args)


def test_pods_elsewhere_do_not_count_and_no_move_is_certain(server: ApiServer, tmp_path: Path) -> None:
    done = told(server, tmp_path, "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {c["namespace"] for c in report["constraints"]} == {"shop", "pay"}
    assert report["summary"]["pods"] == 10
    assert report["evictions"] == []
    assert {b["reason"] for b in report["blocked"]} == {"not-certain"}
    [assumed] = [a for a in report["assumptions"] if "pods of other namespaces are not seen" in a]
    assert assumed.startswith("of namespaced objects only those in pay, shop were read")


def test_likely_moves_are_planned_where_policy_allows_them(
    server: ApiServer, settings: Path, tmp_path: Path
) -> None:
    settings.write_text(settings.read_text() + "planner: {certainty: likely}\n")
    report = json.loads(told(server, tmp_path, "-o", "json").stdout)
    assert {e["namespace"] for e in report["evictions"]} == {"shop", "pay"}
    assert not any(e["destination"]["certain"] for e in report["evictions"])


def test_a_namespace_that_is_not_read_is_told_from_one_that_does_not_exist(
    server: ApiServer, tmp_path: Path
) -> None:
    done = told(server, tmp_path, "-n", "bank")
    assert done.returncode == 1
    assert "namespace bank is not read: scope.readNamespaces has pay, shop only" in done.stderr


def test_without_a_right_to_nodes_the_error_has_the_rule_to_grant(tmp_path: Path) -> None:
    with ApiServer(THINGS, tokens={"t": User("team")}, rules={"team": rights()}, authenticate=True) as server:
        done = told(server, tmp_path)
    assert done.returncode == 1
    assert "list nodes: " in done.stderr
    assert (
        'bind a ClusterRole with the rule {apiGroups: [""], resources: ["nodes"], verbs: ["list"]}'
        in done.stderr
    )


def test_with_nodes_alone_there_is_a_report_and_what_is_not_known_is_told(tmp_path: Path) -> None:
    rules = {"team": rights("nodes")}
    with ApiServer(THINGS, tokens={"t": User("team")}, rules=rules, authenticate=True) as server:
        done = told(server, tmp_path, "-o", "wide")
    assert done.returncode == 0, done.stderr
    assert (
        "namespaces cannot be listed: evictions that they forbid and namespace selectors of affinity terms"
        in " ".join(done.stdout.split())
    )


def test_a_cache_of_some_namespaces_shows_them_as_one_of_all_does() -> None:
    with (
        ApiServer(THINGS, bookmark_every=0.2) as server,
        connected(server) as connection,
        watching(connection, namespaces=("shop", "pay"), stale_after=300.0) as some,
        watching(connection, stale_after=300.0) as whole,
    ):
        own = [p for p in whole.snapshot(0.0).pods if p.namespace != "bank"]
        snapshot = some.snapshot(0.0)
        assert [p.key for p in snapshot.pods] == [p.key for p in own]
        assert snapshot.read_namespaces == {"shop", "pay"}
        feed, before = some.follow("Pod"), some.generation("Pod")
        for pod in [p for p in whole.snapshot(0.0).pods if p.name == own[0].name]:
            server.store.delete("Pod", pod.name, pod.namespace, grace=0)
        until(lambda: not any(some.pod(ns, own[0].name) for ns in ("shop", "pay")))
        changes, lost = feed.take()
        assert not lost
        gone = {key for key, value, _ in changes if value is None}
        assert gone == {("shop", own[0].name), ("pay", own[0].name)}
        assert some.generation("Pod") > before
        some.forget("Pod", feed)
        AgreementWatch(some, lambda: None, lambda _: None).look()
        some.refresh(60.0, lambda: False)
        assert some.behind(["Pod"], 0.0) == ""
