"""Room is what the scheduler's filter counts: what its profile ignores keeps no pod from a node."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.engine.config import FILTERS, Profile, SchedulerConfig
from rebalancer.findings import findings
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Plan
from rebalancer.planner.planner import view_of
from rebalancer.runtime.commands.reports import missing_room
from tests.support.build import node, pod, snapshot, workload

GPU = "example.com/gpu"
BY_NAME = Profile(ignored_resources=frozenset({GPU}))
BY_GROUP = Profile(ignored_groups=frozenset({"example.com"}))
CARELESS = Profile(scheduler_name="careless", ignored_resources=frozenset({GPU}))
WITHOUT_FIT = tuple(f for f in FILTERS if f != "NodeResourcesFit")


def by(*profiles: Profile) -> PlanOptions:
    return PlanOptions(scheduler=SchedulerConfig(profiles=profiles))


def planned(profile: Profile, *things: Any) -> Plan:
    return plan(snapshot(*things), by(profile))


def with_gpu(name: str, number: int) -> Any:
    return node(name).zone(name[0]).allocatable({GPU: number})


def web(**per_node: int) -> Any:
    placed = {n.replace("_", "-"): pods for n, pods in per_node.items()}
    return workload("web").spread("zone", 1).asks({GPU: 1}).placed(placed)


@pytest.mark.parametrize("profile", [BY_NAME, BY_GROUP], ids=["by its name", "by its group"])
def test_a_pod_goes_where_the_resource_that_it_asks_for_is_not_if_that_is_ignored(profile: Profile) -> None:
    made = planned(profile, with_gpu("a-0", 4), node("b-0").zone("b"), web(a_0=4))
    assert (len(made.moves), made.residual_excess, made.least_excess, made.optimal) == (2, 0, 0, True)


def test_it_stays_where_the_resource_counts() -> None:
    made = planned(Profile(), with_gpu("a-0", 4), node("b-0").zone("b"), web(a_0=4))
    assert (len(made.moves), made.residual_excess, made.least_excess) == (0, 3, 3)


def test_without_the_filter_nothing_counts_not_even_the_number_of_pods() -> None:
    machines = [with_gpu("a-0", 4), node("b-0").zone("b").pods(0).cpu(0)]
    made = planned(Profile(filters=WITHOUT_FIT, pre_filters=WITHOUT_FIT), machines, web(a_0=4))
    assert (len(made.moves), made.residual_excess, made.least_excess) == (2, 0, 0)


def test_moves_of_several_workloads_share_a_wave_whatever_they_take_of_what_is_ignored() -> None:
    machines = [with_gpu("a-0", 8), with_gpu("b-0", 1)]
    api = workload("api").spread("zone", 1).asks({GPU: 1}).placed({"a-0": 3})
    made = planned(BY_NAME, machines, web(a_0=3), api)
    assert (made.residual_excess, [m.wave for m in made.moves]) == (0, [1, 1])


def test_by_zone_and_hostname_the_program_counts_no_more_than_the_filter() -> None:
    machines = [with_gpu(f"a-{i}", 1) for i in range(4)] + [node(f"b-{i}").zone("b") for i in range(4)]
    both = workload("web").spread("zone", 1).spread("hostname", 1).asks({GPU: 1})
    made = planned(BY_NAME, machines, both.placed({f"a-{i}": 1 for i in range(4)}))
    assert (len(made.moves), made.residual_excess, made.least_excess) == (2, 0, 0)


def careless(*workloads: Any) -> list[Any]:
    """The workloads with their pods placed by another profile, which ignores GPUs."""
    listed = [o for w in workloads for o in w.build()]
    for o in listed:
        spec = o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"]
        spec["schedulerName"] = CARELESS.scheduler_name
    return listed


def test_what_one_profile_ignores_may_come_after_what_another_counts() -> None:
    machines = [with_gpu("a-0", 4), with_gpu("b-0", 1)]
    needy = workload("needy").spread("zone", 1).asks({GPU: 1}).placed({"a-0": 3})
    other = workload("other").spread("zone", 1).asks({GPU: 1}).placed({"a-0": 1, "b-0": 1})
    for others, least in ((other, 1), (careless(other), 0)):
        assert plan(snapshot(machines, needy, others), by(Profile(), CARELESS)).least_excess == least


def test_what_one_profile_ignores_takes_the_room_of_what_another_counts() -> None:
    """In one wave either may come first."""
    machines = [with_gpu("a-0", 8), with_gpu("b-0", 1)]
    api, job = (workload(n).spread("zone", 1).asks({GPU: 1}).placed({"a-0": 3}) for n in ("api", "job"))
    made = plan(snapshot(machines, api, careless(job)), by(Profile(), CARELESS))
    assert made.residual_excess == 0
    assert [(m.pod.name.split("-")[0], m.wave) for m in made.moves] == [("api", 1), ("job", 2)]
    made = plan(snapshot(machines, careless(api, job)), by(CARELESS))
    assert [m.wave for m in made.moves] == [1, 1]


def test_no_constraint_is_bounded_by_what_is_ignored_where_another_cannot_be_mended() -> None:
    """Then one program bounds all of them."""
    machines = [with_gpu("a-0", 4), node("b-0").zone("b").cpu(1)]
    stuck = workload("stuck").spread("zone", 1).requests(cpu=2).placed({"a-0": 3})
    made = planned(BY_NAME, machines, web(a_0=4), stuck)
    assert (len(made.moves), made.residual_excess, made.least_excess) == (2, 2, 2)


def test_waiting_pods_take_no_room_of_what_is_ignored() -> None:
    machines = [with_gpu("a-0", 4), *(with_gpu(f"b-{i}", 1).label("pool", "b") for i in range(2))]
    waiting = [pod(f"waits-{i}").asks({GPU: 1}).selects(pool="b") for i in range(2)]
    for profile, moves in ((BY_NAME, 2), (Profile(), 0)):
        assert len(planned(profile, machines, web(a_0=4), waiting).moves) == moves


def test_a_pod_that_waits_for_other_room_may_come_where_what_is_ignored_is_not() -> None:
    """Once a victim is gone there is a cpu for it, and then it counts."""
    machines = [node("a-0").zone("a").cpu(4), node("b-0").zone("b").cpu(1).label("pool", "b")]
    full = workload("web").spread("zone", 1).requests(cpu=1).placed({"a-0": 4})
    waits = pod("waits").labels(app="web").asks({GPU: 1, "cpu": 1}).needs("pool", "NotIn", "b")
    for profile, moves in ((BY_NAME, 0), (Profile(), 1)):
        assert len(planned(profile, machines, full, waits).moves) == moves


def test_room_is_not_missed_for_what_is_ignored() -> None:
    cluster = snapshot(with_gpu("a-0", 4), node("b-0").zone("b"), web(a_0=4))
    for profile, missed in ((BY_NAME, False), (Profile(), True)):
        found = missing_room(cluster, by(profile), plan(cluster, by(profile)), asked=True)
        assert bool(found and found.nodes) is missed


def test_a_node_that_is_to_be_added_needs_none_of_it() -> None:
    cluster = snapshot(with_gpu("a-0", 4), node("b-0").zone("b").pods(0), web(a_0=4))
    found = missing_room(cluster, by(BY_NAME), plan(cluster, by(BY_NAME)), asked=True)
    assert found is not None
    assert [set(n.free) for n in found.nodes] == [{"cpu", "memory", "pods"}]


def test_who_could_not_be_replaced_is_asked_by_the_same_rule() -> None:
    """Both nodes have promised more GPUs than they have."""
    cluster = snapshot(with_gpu("a-0", 1), with_gpu("b-0", 1), web(a_0=2, b_0=2))
    for profile, codes in ((BY_NAME, set()), (Profile(), {"cannot-be-replaced"})):
        view = view_of(cluster, by(profile))
        told = {str(f.code) for f in findings(view.simulation, view.evictable)}
        assert told & {"cannot-be-replaced"} == codes
