"""The daemon writes its plans as reports of openreports.io: only where asked, and only what has changed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.findings import plan_with_findings
from rebalancer.kube.policy_reports import PolicyReports, Written
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport, End
from rebalancer.runtime.observers.policy_reports import PolicyReportObserver
from tests.support.build import objects, workload
from tests.support.processes.daemon_process import BRISK, daemon
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer, Reply
from tests.support.sandbox.custom import OPEN_REPORTS, served
from tests.support.servers.api import connected
from tests.support.waiting import until

SPREAD = (*SKEWED[:-1], workload("web").spread("zone", 1).placed({"a-0": 2, "b-0": 2, "c-0": 2}))
OVER = CycleReport(end=End.COMPLETE, message="nothing is left to do")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with served(*OPEN_REPORTS), ApiServer(objects(*SKEWED)) as s:
        yield s


def snapshot(server: ApiServer) -> Snapshot:
    from rebalancer.kube.read.snapshot import read_snapshot

    with connected(server) as c:
        return read_snapshot(c, now=lambda: 1_000_000.0, wait=lambda _: False)


def write(observer: PolicyReportObserver, found: Snapshot) -> None:
    observer.on_plan(found, plan_with_findings(found))
    observer.on_report(OVER)
    observer.settle(30)


def reports(server: ApiServer) -> list[dict[str, Any]]:
    return [*server.store.list("reports.openreports.io"), *server.store.list("clusterreports.openreports.io")]


def writes(server: ApiServer) -> int:
    return sum(
        a.verb in ("create", "update") and a.group == "openreports.io" and a.code < 300
        for a in server.accesses
    )


def test_a_plan_is_written_once_and_again_when_it_says_something_else(server: ApiServer) -> None:
    with connected(server) as c:
        observer = PolicyReportObserver(PolicyReports(c, wait=lambda _: False), lambda: 1_000_000.0)
        write(observer, snapshot(server))
        (first,) = [r for r in reports(server) if r["kind"] == "Report"]
        assert (first["metadata"]["namespace"], first["metadata"]["name"]) == ("default", "topology-spread")
        assert first["summary"]["fail"] == 1
        count = writes(server)
        write(observer, snapshot(server))
        assert writes(server) == count, "a later time of the same finding is no change"
        with ApiServer(objects(*SPREAD)) as mended:
            later = snapshot(mended)
        write(observer, later)
        (after,) = [r for r in reports(server) if r["kind"] == "Report"]
        assert after["summary"] == {**first["summary"], "fail": 0, "pass": 1}
        assert writes(server) == count + 1


def test_a_new_process_finds_what_is_there_and_writes_nothing(server: ApiServer) -> None:
    found = snapshot(server)
    with connected(server) as c:
        for fresh in (True, False):
            count = writes(server)
            write(PolicyReportObserver(PolicyReports(c, wait=lambda _: False), lambda: 2_000_000.0), found)
            assert (writes(server) > count) is fresh


def test_a_namespace_without_constraints_gets_an_empty_report(
    server: ApiServer,
) -> None:
    foreign = {
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "Report",
        "metadata": {"name": "kyverno", "namespace": "default"},
        "results": [{"policy": "x", "result": "fail"}],
    }
    server.store.create(foreign)
    with connected(server) as c:
        writer = PolicyReports(c, wait=lambda _: False)
        observer = PolicyReportObserver(writer, lambda: 1_000_000.0)
        write(observer, snapshot(server))
        assert writer.write([]).updated >= 1
        assert writer.write([]) == Written(same=len(reports(server)) - 1)
    mine, others = (
        [r for r in reports(server) if (r["metadata"]["name"] == "kyverno") is foreign_]
        for foreign_ in (False, True)
    )
    assert all(r["results"] == [] for r in mine)
    assert others[0]["results"] == foreign["results"]


def test_somebody_elses_change_is_noticed_and_put_right(server: ApiServer) -> None:
    found = snapshot(server)
    with connected(server) as c:
        writer = PolicyReports(c, wait=lambda _: False)
        observer = PolicyReportObserver(writer, lambda: 1_000_000.0)
        write(observer, found)
        server.store.modify(
            "reports.openreports.io", "topology-spread", "default", lambda o: o.update(results=[])
        )
        writer.write([])  # refused: it is not as it was
        write(observer, found)
    (report,) = [r for r in reports(server) if r["kind"] == "Report"]
    assert report["summary"]["fail"] == 1
    assert report["results"]


@pytest.mark.parametrize("why", ["forbidden", "no such kind"])
def test_where_they_cannot_be_written_it_is_said_once(
    why: str, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rebalancer")
    server.faults.add(Reply(403 if why == "forbidden" else 404), resource="reports")
    found = snapshot(server)
    with connected(server) as c:
        observer = PolicyReportObserver(PolicyReports(c, wait=lambda _: False), lambda: 1_000_000.0)
        write(observer, found)
        write(observer, found)
    said = [r.getMessage() for r in caplog.records if "policy reports" in r.getMessage()]
    assert len(said) == 1
    assert "policyReports.enabled" in said[0]


def test_no_cycle_waits_for_them(server: ApiServer) -> None:
    free, found = threading.Event(), snapshot(server)

    class Slow(PolicyReports):
        def write(self, objects: list[dict[str, Any]]) -> Written:
            free.wait(60)
            return super().write(objects)

    with connected(server) as c:
        observer = PolicyReportObserver(Slow(c, wait=lambda _: False), lambda: 1_000_000.0)
        for _ in range(3):
            observer.on_plan(found, plan_with_findings(found))
            observer.on_report(OVER)  # returns although nothing can be written
        assert reports(server) == []
        free.set()
        observer.settle(30)
    assert reports(server)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_the_daemon_writes_them_only_when_it_is_told_to(
    enabled: str, server: ApiServer, tmp_path: Path
) -> None:
    with daemon(server, tmp_path, BRISK + f"policyReports: {{enabled: {enabled}}}") as d:
        until(lambda: "cycle over (recorded)" in d.said())
        if enabled == "true":
            until(lambda: len(reports(server)) >= 1)
        assert d.end() == 0
    assert bool(reports(server)) is (enabled == "true")
    assert "policy reports" not in d.said()
