"""`once --plan FILE`: what somebody approved is carried out, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.cli.options import doubts
from rebalancer.errors import UserError
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.runtime.live.once import Reviewed, read_reviewed
from tests.support.build import deployment, nodes, objects, workload
from tests.support.runs.one_cycle import DRY, SKEWED, Run
from tests.support.sandbox import ApiServer


def reviewed(path: Path, run: Run, **changes: Any) -> Reviewed:
    """The report of a dry run, written to a file and read back."""
    from rebalancer.report.building import build_report
    from rebalancer.report.exports import render
    from rebalancer.report.formats import Format
    from tests.support.build import decoded

    snapshot = decoded([{**o, "kind": k} for k in ("Node", "Pod") for o in run.server.store.list(k)])
    document = build_report(run.story.plans[0], snapshot, generated_at=0.0, seconds=0.0)
    value = json.loads(render(document, Format.JSON))
    for eviction in value["evictions"]:
        eviction.update(changes)
    path.write_text(json.dumps(value))
    return read_reviewed(path)


def uids(plan: Reviewed) -> set[str]:
    return {e.uid for e in plan.evictions}


def test_exactly_the_approved_pods_are_evicted(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY))
        run = Run(server, reviewed=plan)
        assert run.report.end is End.COMPLETE
        assert {o.move.pod.uid for o in run.report.outcomes if o.evicted} == uids(plan)
        assert run.zones() == [2, 2, 2]
        assert run.story.rejected == {}


def test_where_all_approved_pods_are_gone_nobody_is_told_that_they_were_evicted(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY), uid="gone")
        run = Run(server, reviewed=plan)
        assert (run.report.end, run.report.evicted) == (End.COMPLETE, 0)
        assert run.report.message.startswith("nothing of what was approved is left to evict: ")


def test_a_deployments_pods_are_known_by_its_name_as_the_report_has_it(tmp_path: Path) -> None:
    things = (*nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}))
    with ApiServer(objects(*things)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY))
        assert {e.owner for e in plan.evictions} == {"Deployment/web"}
        run = Run(server, reviewed=plan)
        assert run.story.rejected == {}
        assert run.evictions() == 1


def test_what_is_out_of_balance_elsewhere_is_not_touched(tmp_path: Path) -> None:
    both = (
        *nodes(a=1, b=1),
        workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
        workload("other").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
    )
    with ApiServer(objects(*both)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY))
        web = Reviewed(tuple(e for e in plan.evictions if e.pod.startswith("web")))
        run = Run(server, reviewed=web)
        assert run.zones("web") == [2, 2]
        assert run.zones("other") == [3, 1]
        assert run.evictions() == 1
        why = {b.reason.message for b in run.story.plans[0].blocked}
        assert why == {"is not in the plan"}


def test_a_dry_run_of_an_approved_plan_sends_nothing(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY))
        run = Run(server, DRY, reviewed=plan)
        assert run.report.end is End.RECORDED
        assert run.evictions() == 0


def test_a_pod_that_is_gone_is_left_out_and_said(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY))
        first = plan.evictions[0]
        server.store.delete("Pod", first.pod, first.namespace, grace=0)
        run = Run(server, reviewed=plan)
        assert run.story.rejected[first.key] is ReasonCode.CHANGED_SINCE_PLAN
        assert {o.move.pod.uid for o in run.report.outcomes if o.evicted} <= uids(plan) - {first.uid}


def test_nothing_is_evicted_that_is_no_longer_needed(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY))

        def scale_down(rs: Any) -> None:
            rs["spec"]["replicas"] = 1

        server.store.modify("ReplicaSet", "web", "default", scale_down)
        planned = {e.pod for e in plan.evictions}
        keep = sorted(planned)[0]
        for pod in server.store.list("Pod"):
            if pod["metadata"]["name"] != keep:
                server.store.delete("Pod", pod["metadata"]["name"], "default", grace=0)
        run = Run(server, reviewed=plan)
        assert run.evictions() == 0
        assert run.story.rejected[f"default/{keep}"] is ReasonCode.NOT_NEEDED


@pytest.mark.parametrize(
    "changes",
    [{"node": "elsewhere"}, {"owner": "ReplicaSet/other"}, {"method": "replaceFirst"}],
    ids=["node", "owner", "method"],
)
def test_what_does_not_fit_the_pod_of_now_is_not_evicted(tmp_path: Path, changes: Any) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        plan = reviewed(tmp_path / "plan.json", Run(server, DRY), **changes)
        run = Run(server, reviewed=plan)
        assert run.evictions() == 0
        assert set(run.story.rejected.values()) == {ReasonCode.CHANGED_SINCE_PLAN}


def test_the_plan_of_another_cluster_is_refused(tmp_path: Path) -> None:
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "here"}}
    with ApiServer(objects(*SKEWED, system)) as server:
        plan = replace(reviewed(tmp_path / "plan.json", Run(server, DRY)), cluster_id="there")
        with pytest.raises(UserError, match="made for another cluster: namespace kube-system has uid there"):
            Run(server, reviewed=plan)


def test_a_plan_is_recognised_by_cluster_and_time(tmp_path: Path) -> None:
    text = '{"apiVersion":"rebalancer/v1","kind":"Report","evictions":[],"cluster":"prod","clusterId":"u",'
    (tmp_path / "plan.json").write_text(text + '"capturedAt":"2026-06-01T00:00:00Z"}')
    plan = read_reviewed(tmp_path / "plan.json")
    later = 1780272000.0 + 3 * 86400
    assert list(doubts(plan, "prod", later - 3 * 86400)) == []
    assert list(doubts(plan, "prod", later)) == [
        "plan.json speaks of 3 days ago; each of its evictions is judged anew"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no report"),
        ('{"apiVersion":"v1","kind":"List","evictions":[]}', "is a List of v1"),
        ('{"apiVersion":"rebalancer/v1","kind":"Report"}', "missing required field `evictions`"),
        (
            '{"apiVersion":"rebalancer/v1","kind":"Report","evictions":[{"namespace":"a","pod":"b","uid":""}]}',
            r"evictions\[0\] \(a/b\) has no uid",
        ),
    ],
)
def test_a_file_that_is_no_report_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_reviewed(tmp_path / "plan.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere.json: cannot be read: no such file"):
        read_reviewed(tmp_path / "nowhere.json")
