"""What starts a cycle early: what the last plan rests on has changed, and nothing else does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import KindRead, Snapshot
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import PolicyOptions
from rebalancer.settings.settings import Schedule
from tests.support.build import deployment, node, nodes, objects, pdb, pod, snapshot, stateful_set, workload
from tests.unit.planner.cluster.test_coming_and_going import joined
from tests.unit.runtime.daemon.moments import Daemon

# Nodes.


def three(taint: str = "") -> Snapshot:
    made = [node(f"n-{i}").zone("a") for i in range(3)]
    return snapshot(*([n.taint("x", taint) for n in made] if taint else made))


SAME = three()
DOWN = snapshot(*(node(f"n-{i}").zone("a").not_ready() for i in range(3)))


def test_what_is_there_at_the_start_is_no_event() -> None:
    assert Daemon(SAME).due() == ""


def test_a_zone_that_comes_back_starts_one_cycle_once_its_nodes_have_settled() -> None:
    d = Daemon(DOWN)
    assert d.due(5) == ""
    d.moments.show(SAME)
    assert d.due(10) == "", "more may follow"
    assert d.due(2) == "nodes have changed"
    assert d.due() == "", "told once"


def test_nodes_that_never_stop_changing_start_a_cycle_at_most_every_so_often() -> None:
    d, found = Daemon(SAME), []
    d.due(1)
    for i in range(100):
        d.moments.show(three(str(i)))
        if d.due(1):
            found.append(i)
    assert 18 <= found[0] <= 22
    assert all(b - a >= 10 for a, b in pairwise(found))


def test_a_heartbeat_that_changes_nothing_is_no_event() -> None:
    d = Daemon(three())
    assert [d.then(three()) for _ in range(3)] == ["", "", ""]


def test_nodes_that_a_cycle_has_read_already_start_no_further_one() -> None:
    d = Daemon(DOWN)
    d.planned()
    d.moments.show(SAME)
    assert d.due(5) == ""
    d.planned()
    assert d.due() == ""


@pytest.mark.parametrize("schedule", [Schedule(react=0), Schedule(cron="0 0 * * *")])
def test_it_can_be_switched_off(schedule: Schedule) -> None:
    d = Daemon(DOWN)
    d.schedule = schedule
    d.planned()
    assert d.then(SAME) == ""


# Waits that end by the clock.


def waiting_owners(code: ReasonCode, seconds: int) -> PlanOptions:
    reason = Reason(code, "it rests", {"until": int(ALONE.now) + seconds})
    return PlanOptions(policy=PolicyOptions(waiting_owners={"ReplicaSet/default/web": reason}))


ALONE = snapshot(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))


def test_a_new_node_whose_daemons_are_never_made_is_used_in_the_end() -> None:
    d = Daemon(snapshot(joined(age=30)))
    d.planned()
    assert d.due(90) == ""
    assert d.due(3) == "what had to be waited for is over"


def test_the_end_of_a_wait_starts_a_cycle_once() -> None:
    d = Daemon(ALONE, waiting_owners(ReasonCode.STABILIZING, 60))
    d.planned()
    assert d.due(60) == ""
    assert d.due(3) == "what had to be waited for is over"
    assert d.due() == ""


def test_a_plan_that_waits_for_nothing_ends_what_the_one_before_waited_for() -> None:
    d = Daemon(ALONE, waiting_owners(ReasonCode.COOL_DOWN, 60))
    d.planned()
    d.options = PlanOptions()
    d.planned()
    assert d.due() == ""


# Kinds that can be read again, and a cluster that is well again.


def test_a_kind_that_can_be_read_again_starts_a_cycle_once() -> None:
    d = Daemon(replace(SAME, reads=(KindRead(kind="ResourceQuota", known=False),)))
    d.planned()
    status: Any = KindStatusOf("ResourceQuota")
    d.moments.statuses = (status,)
    assert d.due() == ""
    status.synced, status.denied = True, False
    assert d.due() == "ResourceQuota objects can be read now"
    assert d.due() == ""


class KindStatusOf:
    def __init__(self, kind: str) -> None:
        self.kind, self.synced, self.denied = kind, False, True


def test_a_cluster_that_is_well_again_starts_a_cycle() -> None:
    d = Daemon(SAME)
    d.planned()
    d.early.on_held(Reason(ReasonCode.CLUSTER_UNWELL, "3 replacements do not start in time"))
    d.well = False
    assert d.due() == ""
    d.well = True
    assert d.due() == "the cluster is well enough again"
    d.planned()
    assert d.due() == ""


# Workloads that may be evicted from now.

NODES = nodes(a=1, b=1)
WEB = {"a-0": 3, "b-0": 1}


def web(placed: dict[str, int] | None = None) -> Any:
    return workload("web").spread("zone", 1).placed(placed or WEB)


def beside() -> Any:
    """Pods of another owner that the constraint counts, too."""
    return workload("aa").labels(app="web").placed({"a-0": 1})


def ordered() -> Any:
    return stateful_set("web").spread("zone", 1).placed(WEB)


class Watch(Daemon):
    """What is told, moment after moment; a plan was made from the first one."""

    def __init__(self, *things: Any, policy: PolicyOptions | None = None) -> None:
        super().__init__(snapshot(*NODES, *things), PlanOptions(policy=policy or PolicyOptions()))
        self.planned()

    def shows(self, *things: Any) -> str:
        return self.then(snapshot(*NODES, *things))


BEFORE_AND_AFTER: list[tuple[str, list[Any], list[Any]]] = [
    ("a scaling ends", [web().replicas(5)], [web()]),
    ("another owner that is counted has its pods", [web(), beside().replicas(2)], [web(), beside()]),
    ("a new pod is Ready", [ordered().unready(0)], [ordered()]),
    (
        "a budget opens",
        [web(), pdb("web", {"app": "web"}, max_unavailable=0)],
        [web(), pdb("web", {"app": "web"}, max_unavailable=1)],
    ),
    (
        "one of two budgets goes",
        [web(), pdb("web", {"app": "web"}, max_unavailable=1), pdb("x", {"app": "web"}, max_unavailable=1)],
        [web(), pdb("web", {"app": "web"}, max_unavailable=1)],
    ),
]


@pytest.mark.parametrize(
    ("before", "after"), [c[1:] for c in BEFORE_AND_AFTER], ids=[c[0] for c in BEFORE_AND_AFTER]
)
def test_what_kept_a_move_back_is_over(before: list[Any], after: list[Any]) -> None:
    watch = Watch(*before)
    busy = workload("busy").placed({"a-0": 1})
    assert watch.shows(*before, busy) == "", "it is not over yet"
    assert watch.shows(*after).endswith("Set/default/web violates its spread, and policy allows evictions")
    assert watch.shows(*after, busy) == "", "told once"


def test_a_scale_down_that_breaks_the_spread_is_told_of_when_it_has_ended() -> None:
    watch = Watch(web({"a-0": 3, "b-0": 3}))
    assert watch.shows(web({"a-0": 3, "b-0": 2})) == "", "it still holds"
    assert watch.shows(web({"a-0": 3, "b-0": 1}).replicas(3)) == "", "one more is to go"
    assert watch.shows(web({"a-0": 3})).startswith("ReplicaSet/default/web")


def test_pods_that_have_come_of_age_start_a_cycle_without_anything_else_that_happens() -> None:
    policy = PolicyOptions(min_pod_age=600)
    young = snapshot(*NODES, web())
    young = replace(young, pods=tuple(replace(p, created=young.now) for p in young.pods))
    watch = Watch(web({"a-0": 3, "b-0": 3}), policy=policy)
    assert watch.then(young) == ""
    assert watch.due(450) == ""
    assert watch.due(100).startswith("ReplicaSet/default/web")


def test_what_the_plan_could_do_or_never_can_is_no_event() -> None:
    watch = Watch(web(), workload("api", "Bare").spread("zone", 1).placed(WEB))
    assert watch.due() == ""
    more = workload("more").placed({"a-0": 1})
    assert watch.shows(web(), workload("api", "Bare").spread("zone", 1).placed(WEB), more) == ""


def test_other_workloads_do_not_matter() -> None:
    busy = web().replicas(5)
    watch = Watch(busy, workload("batch").placed({"a-0": 2}))
    assert watch.shows(busy, workload("batch").placed({"a-0": 1})) == ""
    assert watch.shows(busy, stateful_set("db").spread("zone", 1).placed({"a-0": 1, "b-0": 1})) == ""


def test_pods_of_other_namespaces_and_heartbeats_of_nodes_cost_nothing() -> None:
    watch = Watch(web().replicas(5))
    watch.due()
    first, looks = watch.moments.current, watch.moments.snapshots
    assert looks > 0, "something is waited for"
    for i in range(10):
        batch = snapshot(*nodes(a=1, b=1), workload("batch", "Bare", "elsewhere").placed({"a-0": i}))
        assert watch.then(replace(first, nodes=batch.nodes, pods=(*first.pods, *batch.pods))) == ""
    assert watch.moments.snapshots == looks


def test_a_namespace_that_is_not_in_view_does_not_matter() -> None:
    watch = Watch(web({"a-0": 3, "b-0": 3}), policy=PolicyOptions(namespaces_include=("shop",)))
    assert watch.shows(web()) == ""


def test_a_crash_loop_starts_fewer_and_fewer_cycles() -> None:
    watch, found = Watch(ordered().unready(0)), []
    for _ in range(200):
        watch.moments.show(snapshot(*NODES, ordered()))
        if watch.due(1):
            found.append(watch.now)
        watch.moments.show(snapshot(*NODES, ordered().unready(0)))
        watch.due(1)
        watch.planned()
    assert 2 <= len(found) <= 6


def test_the_end_of_a_rollout_is_told_of_although_the_pods_are_others() -> None:
    after = deployment("web").spread("zone", 1).placed(WEB)
    before = objects(after)
    for o in before:
        if o["kind"] == "Deployment":
            o["status"]["updatedReplicas"] = 1
        elif o["kind"] == "Pod":
            o["metadata"].update(name=f"old-{o['metadata']['name']}", uid=f"old-{o['metadata']['uid']}")
    watch = Watch(before)
    assert watch.due() == ""
    assert watch.shows(after).startswith("Deployment/default/web")


# Room that comes free.


def cluster(*batch: str, cpu: str = "1") -> Snapshot:
    """Three of web in zone a, none in the full zone b; batch pods as node:cpu, "gone" = it has ended."""
    things: list[Any] = [
        node("a-0").zone("a").cpu(8),
        node("b-0").zone("b").cpu(2),
        node("b-1").zone("b").cpu(2),
        node("other").cpu(8),
        workload("web").spread("zone", 1).requests(cpu=cpu).placed({"a-0": 3}),
    ]
    for i, text in enumerate(batch):
        where, _, takes = text.partition(":")
        if text != "gone":
            things.append(pod(f"batch-{i}").on(where).requests(cpu=takes))
    return snapshot(*things)


FULL = ("b-0:1", "b-0:1", "b-1:1500m", "b-1:500m", "other:1", "a-0:1")
CASES = [
    ("a pod ends where a move waits, and its room is enough", ("b-0:1", "gone", *FULL[2:]), True),
    ("its room is not enough", (*FULL[:3], "gone", *FULL[4:]), False),
    ("it ends on a node that no move waits for", (*FULL[:4], "gone", FULL[5]), False),
    ("it ends in the zone that is too full", (*FULL[:5], "gone"), False),
    ("nothing ends", FULL, False),
]


@pytest.mark.parametrize(("after", "told"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_pod_that_ends(after: tuple[str, ...], told: bool) -> None:
    d = Daemon(cluster(*FULL))
    d.planned()
    assert d.due() == ""
    assert d.then(cluster(*after)) == ("there is room on b-0, for which a move waits" if told else "")
    assert d.then(cluster(*after)) == "", "told once"


def test_two_pods_that_end_one_after_the_other_make_room_together() -> None:
    d = Daemon(cluster(*FULL, cpu="2"))
    d.planned()
    assert d.then(cluster("gone", *FULL[1:], cpu="2")) == ""
    assert d.then(cluster("gone", "gone", *FULL[2:], cpu="2")).startswith("there is room on b-0")


def test_where_nothing_waits_for_room_nothing_is_followed() -> None:
    d = Daemon(cluster("a-0:1"))
    d.planned()
    looks = d.moments.snapshots
    assert d.then(cluster()) == ""
    assert d.moments.snapshots == looks
