"""The daemon's last plan serves again exactly as long as nothing changes that it rests on."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.findings import plan_with_findings
from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Namespace
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan, Refusal
from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.evictable import next_change
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import PolicyOptions, Refused
from rebalancer.policy.owners import ARRIVAL
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import LastPlan, remembering
from tests.support.build import NOW, node, nodes, pod, snapshot, workload
from tests.support.servers.api import FakeTime

OPTIONS = PlanOptions()
AGES = PlanOptions(policy=PolicyOptions(min_pod_age=300.0))


class Counting:
    """Plans nothing, and counts how often."""

    def __init__(self) -> None:
        self.plans = 0

    def __call__(self, _: Snapshot, __: PlanOptions) -> Plan:
        self.plans += 1
        return Plan(constraints=(), moves=(), blocked=())


def cluster() -> Snapshot:
    return snapshot(node("a"), pod("web").on("a"))


def young(age: float, *, ready: bool) -> Snapshot:
    """A cluster with one pod of that age."""
    made = cluster()
    (only,) = made.pods
    return replace(made, pods=(replace(only, created=NOW - age, ready=ready),))


def test_the_same_cluster_under_the_same_options_is_planned_once() -> None:
    make = Counting()
    last, one = LastPlan(make), cluster()
    plan = last(one, OPTIONS)
    assert last(replace(one, now=one.now + 300, reads=()), OPTIONS) is plan
    assert make.plans == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"pods": ()},
        {"nodes": ()},
        {"namespaces": {"new": Namespace(ObjectMeta("new"))}},
        {"kinds": frozenset({"Pod"})},
        {"server_version": "9.9"},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_cluster_of_which_anything_is_new_is_planned_again(changed: dict[str, Any]) -> None:
    make = Counting()
    last, one = LastPlan(make), cluster()
    last(one, OPTIONS)
    last(replace(one, **changed), OPTIONS)
    assert make.plans == 2


def in_another_version(o: Any) -> Any:
    """The object as after a write of what nothing reads."""
    if isinstance(o, Pod):
        return replace(o, resource_version="9")
    return replace(o, metadata=replace(o.metadata, resource_version="9"))


MANY = snapshot(node("a"), node("b"), *(pod(f"web-{i}").on("a") for i in range(40)))
MOVED = MANY.pods[7]


@pytest.mark.parametrize(
    ("pods", "plans"),
    [
        ((in_another_version(MANY.pods[0]), *MANY.pods[1:]), 1),
        ((replace(MANY.pods[0], ready=not MANY.pods[0].ready), *MANY.pods[1:]), 2),
        (tuple(in_another_version(p) if p is MOVED else p for p in MANY.pods), 2),
        (tuple(map(in_another_version, MANY.pods)), 2),
    ],
    ids=["nothing that is read", "something that is read", "a pod that the plan names", "listed again"],
)
def test_pods_in_another_version_are_mostly_the_same_cluster(pods: tuple[Pod, ...], plans: int) -> None:
    class Naming(Counting):
        def __call__(self, snapshot: Snapshot, options: PlanOptions) -> Plan:
            blocked = Refusal(MOVED, Reason(ReasonCode.BARE_POD, "alone"))
            return replace(super().__call__(snapshot, options), blocked=(blocked,))

    make = Naming()
    last = LastPlan(make)
    last(MANY, OPTIONS)
    nodes = (in_another_version(MANY.nodes[0]), *MANY.nodes[1:])
    last(replace(MANY, nodes=nodes, pods=pods), OPTIONS)
    assert make.plans == plans


def test_other_options_are_planned_for_and_four_of_them_are_kept() -> None:
    make = Counting()
    last, one = LastPlan(make), cluster()
    for options in (OPTIONS, AGES, OPTIONS, AGES):
        last(one, options)
    assert make.plans == 2
    for effort in (1, 3, 5):
        last(one, PlanOptions(effort=effort))
    last(one, OPTIONS)
    assert make.plans == 6


def test_a_plan_ends_when_a_pod_comes_of_age() -> None:
    made = young(100, ready=True)
    assert next_change(made, AGES.policy) == NOW + 200
    make = Counting()
    last = LastPlan(make)
    for later in (0, 199, 200, 400):
        last(replace(made, now=NOW + later), AGES)
    assert make.plans == 2


def test_a_replacement_that_is_not_ready_is_waited_for_only_so_long() -> None:
    made = young(100, ready=False)
    assert next_change(made, PolicyOptions(min_pod_age=0.0)) == NOW - 100 + ARRIVAL


def test_so_is_the_last_pod_of_a_rollout_that_may_wait_for_another() -> None:
    made = snapshot(workload("db", "StatefulSet").placed({"a-0": 1}))
    made = replace(made, pods=tuple(replace(p, created=NOW - 100) for p in made.pods))
    assert next_change(made, PolicyOptions(min_pod_age=0.0)) == NOW - 100 + ARRIVAL


def test_a_refusal_ends() -> None:
    made = young(9999, ready=True)
    options = PolicyOptions(refused={"u": Refused(NOW - 100, "d", "no")}, retry_after=300.0)
    assert next_change(made, options) == NOW + 200
    assert next_change(replace(made, now=NOW + 200), options) == inf


def test_a_pause_ends() -> None:
    metadata = {"name": "default", "annotations": {PAUSE: "2026-11-22T12:00:00Z"}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    made = snapshot(node("a"), pod("web").on("a"), [space], now=1_795_348_700.0)
    assert next_change(made, PolicyOptions()) == 1_795_348_800.0
    assert next_change(replace(made, now=1_795_348_800.0), PolicyOptions()) == inf


def test_a_plan_with_moves_serves_for_its_own_moment_only() -> None:
    """A rule that reads the clock may say something else by then."""
    seen = snapshot(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3}))
    last = LastPlan()
    made = last(seen, OPTIONS)
    assert made.moves
    assert last(replace(seen, reads=()), OPTIONS) is made
    assert last(replace(seen, now=seen.now + 1), OPTIONS) is not made


@pytest.mark.parametrize(("later", "plans"), [(899.0, 1), (900.0, 2), (-1.0, 2)])
def test_one_without_moves_serves_for_a_quarter_of_an_hour(later: float, plans: int) -> None:
    make = Counting()
    last, one = LastPlan(make), cluster()
    last(one, OPTIONS)
    last(replace(one, now=one.now + later), OPTIONS)
    assert make.plans == plans


@pytest.mark.parametrize("waits", ["w1", "w2"])
def test_a_daemon_plans_without_the_owners_that_wait(waits: str) -> None:
    """The plan with them is remembered by whom it leaves alone: nobody."""
    both = [workload(w).spread("zone", 1, selector={"team": "t"}).labels(team="t") for w in ("w1", "w2")]
    seen = snapshot(*nodes(a=1, b=1), *(w.placed({"a-0": 3}) for w in both))
    memory = Memory(FakeTime(NOW), HistoryRules())
    why = Reason(ReasonCode.COOL_DOWN, "waits", {"until": int(NOW) + 60})
    memory.waits = lambda *_: {f"ReplicaSet/default/{waits}": why}  # type: ignore[method-assign]
    once, run = (remembering(OPTIONS, memory, make)(seen) for make in (plan_with_findings, LastPlan()))
    assert {m.owner.metadata.name for m in run.moves} == {"w1", "w2"} - {waits}
    assert [m.pod.key for m in run.moves] == [m.pod.key for m in once.moves]
    assert all(m.waits is None for m in run.moves)
