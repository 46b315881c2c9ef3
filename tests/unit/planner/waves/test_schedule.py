"""Which moves share a wave, and which wait for the next."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.pod import DELETION_COST
from rebalancer.planner import plan
from rebalancer.planner.hard import Search
from rebalancer.planner.moves import JudgedMove, in_order
from rebalancer.planner.plan import PlanOptions
from rebalancer.planner.waves.schedule import LARGEST, Schedule, Scheduler, waiting_moves
from rebalancer.policy.caps import Caps
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import deployment, node, nodes, objects, pdb, snapshot, workload
from tests.unit.planner.posed import Posed

HALF = PlanOptions(policy=PolicyOptions(in_flight_per_owner=Limit(percent=50)))


def walks(posed: Posed) -> list[tuple[JudgedMove, ...]]:
    return [Search(posed.simulation, c, posed.judge, 2000).run().moves for c in posed.components]


def scheduled(posed: Posed) -> Schedule:
    before = posed.standing()
    found = Scheduler(posed.simulation, posed.view.evictable).schedule(walks(posed), posed.judge.waiting)
    assert posed.standing() == before
    return found


def owners(found: Schedule) -> list[list[str]]:
    return [sorted(m.pod.name.split("-")[0] for m in wave) for wave in found.waves]


def skewed(name: str, pods: int = 3) -> Any:
    return workload(name).spread("zone").placed({"a-0": pods, "b-0": 1})


def test_moves_of_different_workloads_share_a_wave_and_small_ones_give_one_pod_at_a_time() -> None:
    posed = Posed(nodes(a=1, b=1), skewed("web", 5), skewed("db"))
    assert owners(scheduled(posed)) == [["db", "web"], ["web"]]


def test_a_workload_gives_as_many_pods_at_a_time_as_its_share() -> None:
    posed = Posed(nodes(a=3, b=3), skewed("web", 41))
    assert [len(wave) for wave in scheduled(posed).waves] == [4, 4, 4, 4, 4]
    posed = Posed(nodes(a=3, b=3), skewed("web", 41), options=HALF)
    assert [len(wave) for wave in scheduled(posed).waves] == [20]


def test_a_budget_bounds_them_and_its_last_disruption_is_left_to_a_drain() -> None:
    budget = pdb("web", {"app": "web"}, max_unavailable=4)
    posed = Posed(nodes(a=3, b=3), skewed("web", 41), budget, options=HALF)
    assert [len(wave) for wave in scheduled(posed).waves] == [4, 4, 4, 4, 4]
    drained = [node("a-1").zone("a").cordoned(), *nodes(a=1, b=3)]
    web = skewed("web", 40).placed({"a-1": 1})
    found = scheduled(Posed(drained, web, budget, options=HALF))
    assert [len(wave) for wave in found.waves][:2] == [3, 3]


def test_a_parallel_stateful_set_gives_several_and_an_ordered_one_does_not() -> None:
    placed = {"a-0": 9, "b-0": 1}
    ordered = workload("db", "StatefulSet").spread("zone").placed(placed)
    assert [len(w) for w in scheduled(Posed(nodes(a=1, b=1), ordered, options=HALF)).waves] == [1] * 4
    parallel = workload("db", "StatefulSet").parallel().spread("zone").placed(placed)
    assert [len(w) for w in scheduled(Posed(nodes(a=1, b=1), parallel, options=HALF)).waves] == [4]


def test_pods_with_a_host_port_go_one_by_one() -> None:
    web = skewed("web", 9).host_port(80)
    found = scheduled(Posed([node(f"{z}-{i}").zone(z) for z in "ab" for i in range(12)], web, options=HALF))
    assert all(len(wave) == 1 for wave in found.waves)


def test_one_budget_over_two_workloads_lets_one_go_at_a_time() -> None:
    both = pdb("both", {"tier": "x"}, max_unavailable=1)
    web = workload("web").labels(tier="x").spread("zone", selector={"app": "web"})
    db = workload("db").labels(tier="x").spread("zone", selector={"app": "db"})
    placed = {"a-0": 3, "b-0": 1}
    posed = Posed(nodes(a=1, b=1), web.placed(placed), db.placed(placed), both)
    assert [len(wave) for wave in scheduled(posed).waves] == [1, 1]


def test_what_finds_no_room_beside_the_others_goes_later_or_nowhere() -> None:
    tight = [node("a-0").zone("a"), node("b-0").zone("b").pods(3)]
    posed = Posed(*tight, skewed("web"), skewed("db"))
    found = scheduled(posed)
    assert sum(len(wave) for wave in found.waves) == 1
    assert len(found.dropped) == 1


def test_three_nodes_with_room_for_one_more_each_take_two_replacements_at_a_time() -> None:
    narrow = [node("a-0").zone("a"), *(node(f"b-{i}").zone("b").pods(1) for i in range(3))]
    both = [workload(f"w{i}").spread("zone").placed({"a-0": 2}) for i in range(2)]
    found = plan(snapshot(*narrow, *both), PlanOptions())
    assert [sorted(m.pod.name.split("-")[0] for m in wave) for wave in found.waves] == [["w0", "w1"]]
    assert found.optimal


def test_as_many_moves_as_nodes_with_room_for_one_more_take_two_waves() -> None:
    narrow = [node("a-0").zone("a"), *(node(f"b-{i}").zone("b").pods(1) for i in range(3))]
    web, db = (workload(n).spread("zone").placed({"a-0": pods}) for n, pods in (("web", 4), ("db", 2)))
    found = plan(snapshot(*narrow, web, db), PlanOptions())
    assert [len(wave) for wave in found.waves] == [2, 1]


def test_a_wave_has_a_largest_size() -> None:
    wide = [node(f"{zone}-0").zone(zone).cpu(1000).pods(500) for zone in "ab"]
    posed = Posed(wide, *(skewed(f"w{i}") for i in range(LARGEST + 5)))
    assert [len(wave) for wave in scheduled(posed).waves] == [LARGEST, 5]


def test_after_a_move_that_a_cap_forbids_none_of_its_component_follows() -> None:
    policy = PolicyOptions(max_per_owner=Limit(number=1))
    posed = Posed(nodes(a=1, b=1), skewed("web", 7), skewed("db"), options=PlanOptions(policy=policy))
    owners = posed.view.evictable.owners
    moves = in_order(scheduled(posed).waves)
    waits = waiting_moves(Caps(policy, posed.view.snapshot, owners), owners, moves)
    assert [m.pod.name.split("-")[0] for m in moves] == ["db", "web", "web", "web"]
    assert sorted(waits) == [2, 3]
    assert len(set(waits.values())) == 1


def test_a_node_that_another_move_of_the_wave_frees_is_kept_for_who_may_come_by_an_earlier_landing() -> None:
    """api's first replacement may land in c, though a is predicted. Then its second may come to a-0, where
    web's second pod leaves just then, and db's second, which has no other place, waits."""
    things = (
        node("a-0").zone("a").cpu("2200m").label("db", "y").label("web", "y"),
        node("a-1").zone("a").cpu("8"),
        node("a-2").zone("a").cpu("4").label("web", "y"),
        node("b-0").zone("b").cpu("8"),
        node("b-2").zone("b").cpu("8").label("db", "y"),
        node("c-0").zone("c").cpu("8"),
        node("c-2").zone("c").cpu("8").label("web", "y"),
        deployment("api").spread("zone").requests(cpu="800m").placed({"b-0": 3})
        .needs("kubernetes.io/hostname", "In", "a-0", "a-1", "b-0", "c-0"),
        deployment("db").spread("zone").requests(cpu="300m").selects(db="y").placed({"b-2": 4}),
        deployment("web").spread("zone").requests(cpu="500m").selects(web="y").placed({"a-2": 1, "a-0": 3}),
    )  # fmt: skip
    made = objects(*things)
    for o in made:
        if o["kind"] == "Pod" and o["metadata"]["name"].startswith("web") and o["spec"]["nodeName"] == "a-0":
            o["metadata"].setdefault("annotations", {})[DELETION_COST] = "100"
    moves = plan(snapshot(made)).moves
    second = {m.pod.name.split("-")[0]: m for m in moves if m.pod.name.endswith("1")}
    assert second["api"].certain
    assert second["api"].destinations == ("a-0", "a-1", "c-0")
    assert second["db"].wave > second["api"].wave
    assert not second["db"].certain


@pytest.mark.parametrize(
    ("there_too", "certain"), [(0, False), (1, True)], ids=["only there", "there anyway"]
)
def test_what_follows_another_is_certain_only_wherever_that_may_land(there_too: int, certain: bool) -> None:
    """cache's first replacement may land in b or in c, and web has to be near one of cache."""
    moves = plan(
        snapshot(
            *(node(f"{z}-0").zone(z) for z in "bcd"),
            deployment("cache").labels(tier="cache").spread("zone", 2).placed({"d-0": 3}),
            deployment("old").labels(tier="cache").placed({"b-0": there_too, "c-0": there_too}),
            deployment("web").spread("zone").requests(cpu="200m").near("zone", tier="cache")
            .placed({"b-0": 3, "c-0": 1, "d-0": 1}),
        )
    ).moves  # fmt: skip
    assert [(m.pod.name.split("-")[0], m.certain) for m in moves] == [("cache", True), ("web", certain)]


def test_a_node_where_nothing_starts_is_no_further_place_once_another_move_of_the_wave_frees_it() -> None:
    """a-0 is full until a pod of web leaves it. Its network does not work."""
    broken = node("a-0").zone("a").cpu("2").label("web", "y")
    broken.object["status"]["conditions"].append({"type": "NetworkUnavailable", "status": "True"})
    moves = plan(
        snapshot(
            broken,
            *(node(f"{z}-{i}").zone(z).cpu("8") for z, i in (("a", 1), ("a", 2), ("b", 0))),
            node("b-1").zone("b").cpu("8").label("web", "y"),
            deployment("api").spread("zone").requests(cpu="400m").placed({"b-0": 3, "a-1": 1}),
            deployment("web")
            .spread("zone")
            .requests(cpu="500m")
            .selects(web="y")
            .placed({"a-0": 4, "b-1": 2}),
        )
    ).moves
    assert {m.pod.name.split("-")[0] for m in moves} == {"api", "web"}
    assert all("a-0" not in m.destinations or not m.certain for m in moves)
