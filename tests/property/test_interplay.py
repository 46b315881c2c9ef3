"""Moves that get in each other's way: through a node, a port, an affinity, a cap, a pod that waits or goes.

Each cluster is one on which a plan was once wrong. The judge plays what the plan promises, wherever the
scheduler may put each replacement, and every excess that stays has to have its reason.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Plan
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import (
    NodeBuilder,
    OwnerBuilder,
    PodBuilder,
    decoded,
    node,
    nodes,
    objects,
    pdb,
    pod,
    stateful_set,
    workload,
)
from tests.support.build.base import Builder
from tests.support.judge.bound import bound
from tests.support.judge.cells import Cells
from tests.support.judge.cycles import after_walk
from tests.support.judge.flight import Problem, settle
from tests.support.judge.plans import told, waves_of
from tests.support.judge.walk import play
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State, total_excess

Case = tuple[str, list[Json], PlanOptions | None, int]
"""The sentence, the cluster, the options, and the excess that the plan leaves."""

PLAYS = 24
"""By chance, all the same in every run; what was wrong showed in one of four or more."""


def filler(name: str, where: str, cpu: str) -> PodBuilder:
    """A pod without an owner that makes its node less attractive."""
    return pod(name).on(where).requests(cpu=cpu)


def counted(placed: dict[str, int], max_skew: int) -> OwnerBuilder:
    """Pods that nobody moves, with a constraint over their whole tier."""
    return (
        workload("d", "Bare").labels(tier="x").spread("zone", max_skew, selector={"tier": "x"}).placed(placed)
    )


def tiered(name: str) -> OwnerBuilder:
    """A workload with a constraint of its own, and counted by that of its tier."""
    return workload(name).labels(tier="x").spread("zone", 1, selector={"owner": name})


def full_but_for(count: int) -> list[NodeBuilder]:
    """Zones a, b and c of a node each; c has so many places."""
    return [node("a-0").zone("a"), node("b-0").zone("b"), node("c-0").zone("c").pods(count)]


def ends_elsewhere() -> list[Json]:
    return objects(
        full_but_for(6),
        tiered("b").placed({"a-0": 3, "b-0": 1, "c-0": 1}),
        counted({"a-0": 1, "b-0": 2, "c-0": 4}, 2),
        pod("old").on("c-0").terminating(),
    )


def capped() -> list[Json]:
    return objects(
        full_but_for(7),
        workload("a", "ReplicaSet", "alpha")
        .spread("zone", 1, selector={"owner": "a"})
        .placed({"a-0": 4, "b-0": 1, "c-0": 1}),
        tiered("b").placed({"a-0": 3, "b-0": 1, "c-0": 1}),
        counted({"a-0": 1, "b-0": 2, "c-0": 4}, 2),
    )


def apart(one: OwnerBuilder, other: OwnerBuilder, how: str) -> tuple[OwnerBuilder, OwnerBuilder]:
    """Two workloads of which no two pods are on one node."""
    for w in (one, other):
        if how == "port":
            w.host_port(8080)
        else:
            w.away_from("hostname", apart="yes").labels(apart="yes")
    return one, other


def ssd_zone() -> list[Any]:
    """Four nodes in zone a; b-0 has what one workload asks for, b-1, the emptier one, has not."""
    return [
        [node(f"a-{i}").zone("a").label("disk", "ssd") for i in range(4)],
        node("b-0").zone("b").label("disk", "ssd"),
        node("b-1").zone("b").label("disk", "hdd"),
        filler("fill", "b-0", "6"),
    ]


def one_constraint(how: str) -> list[Json]:
    one, other = apart(
        workload("w1").labels(app="x").spread("zone", 1, selector={"app": "x"}, affinity_policy="Ignore"),
        workload("w2")
        .labels(app="x")
        .spread("zone", 1, selector={"app": "x"}, affinity_policy="Ignore")
        .selects(disk="ssd"),
        how,
    )
    return objects(ssd_zone(), one.placed({"a-0": 1}), other.placed({"a-1": 1, "a-2": 1, "a-3": 1}))


def two_constraints(how: str) -> list[Json]:
    one = workload("w1").spread("zone", 1)
    other = workload("w2").spread("zone", 1, affinity_policy="Ignore").selects(disk="ssd")
    if how == "port":
        one.host_port(8080)
        other.host_port(8080)
    else:
        other.away_from("hostname", owner="w1")
    return objects(ssd_zone(), one.placed({"a-0": 1, "a-1": 1}), other.placed({"a-2": 1, "a-3": 1}))


def kept_out_of_a_zone() -> list[Json]:
    first = workload("a").spread("zone", 1, selector={"owner": "a"}).tolerates("dedicated")
    return objects(
        [node("a-0").zone("a"), node("b-0").zone("b")],
        [node("c-0").zone("c").taint("dedicated"), node("c-1").zone("c")],
        first.placed({"a-0": 2}),
        tiered("b").away_from("zone", owner="a").placed({"a-0": 2}),
        counted({"a-0": 1, "b-0": 3, "c-1": 6}, 4),
        filler("fill", "b-0", "6"),
        filler("fill2", "c-1", "5"),
    )


def drawn_along() -> list[Json]:
    return objects(
        [node("a-0").zone("a"), node("b-0").zone("b"), node("c-0").zone("c").taint("dedicated")],
        filler("fill", "c-0", "6"),
        workload("b").spread("zone", 1).tolerates("dedicated").placed({"a-0": 2}),
        workload("z").spread("zone", 1, selector={"owner": "z"}).near("zone", owner="b").placed({"a-0": 2}),
    )


def two_shards() -> list[Json]:
    db = stateful_set("db").spread("zone", 1, selector={"owner": "db"}, match_label_keys=("shard",))
    made = objects(nodes(a=2, b=2), db.placed({"a-0": 3, "b-0": 1, "a-1": 3, "b-1": 1}))
    for o in made:
        if o["kind"] == "Pod":
            o["metadata"]["labels"]["shard"] = o["spec"]["nodeName"][-1]
    return made


def quota_and_edited(kind: str, used: str, cpu: str) -> list[Json]:
    """An owner whose template has come to ask for 500m, under a quota of one cpu."""
    q = Builder("v1", "ResourceQuota", "q")
    hard = {"requests.cpu": "1"}
    q.object |= {"spec": {"hard": hard}, "status": {"hard": hard, "used": {"requests.cpu": used}}}
    made = objects(
        nodes(a=1, b=1),
        workload("w", kind).spread("zone", 1).requests(cpu=cpu).placed({"a-0": 3, "b-0": 1}),
        q,
    )
    for o in made:
        if o["kind"] == kind:
            o["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500m"
    return made


def nominated() -> list[Json]:
    made = objects(
        [node("a-0").zone("a").pods(5), node("b-0").zone("b")],
        workload("a").spread("zone", 1, selector={"app": "a"}).placed({"a-0": 4, "b-0": 1}),
        pod("p").labels(app="a").priority(10).selects(hostname="a-0"),
    )
    made[-1]["status"]["nominatedNodeName"] = "a-0"
    return made


def onlookers(scheduler: str) -> list[Json]:
    """Two small Pending pods of nobody's concern, and room for a hundred."""
    waiting = [pod(f"p{i}", namespace="elsewhere").requests(cpu="10m", memory="8Mi") for i in range(2)]
    made = objects(nodes(a=1, b=2), workload("w").spread("zone", 1).placed({"a-0": 3, "b-0": 1}), waiting)
    for o in made[-2:]:
        o["spec"]["schedulerName"] = scheduler
    return made


CASES: list[Case] = [
    ("a pod that terminates leaves room where a replacement would do harm", ends_elsewhere(), None, 1),
    (
        "a cap leaves the plan whole, where one move fills the node on which another would do harm",
        capped(),
        PlanOptions(policy=PolicyOptions(max_per_namespace=Limit(percent=10.0), namespaces_exclude=())),
        0,
    ),
    (
        "one constraint: by a host port, who may go to one node only goes first",
        one_constraint("port"),
        None,
        0,
    ),
    (
        "one constraint: by anti-affinity, who may go to one node only goes first",
        one_constraint("anti"),
        None,
        0,
    ),
    ("two constraints: a host port may be taken by who went first", two_constraints("port"), None, 0),
    ("two constraints: anti-affinity to who went first", two_constraints("anti"), None, 0),
    ("where the first lands decides from which zone another is kept out", kept_out_of_a_zone(), None, 0),
    ("where the first lands decides where another finds company", drawn_along(), None, 0),
    (
        "one at a time of an ordered StatefulSet, though its pods are counted apart",
        two_shards(),
        PlanOptions(certainty="likely"),
        0,
    ),
    ("none at all, as it labels no new pod so", two_shards(), None, 2),
    (
        "a StatefulSet's replacement asks for more than its quota gives back",
        quota_and_edited("StatefulSet", "1", "250m"),
        None,
        1,
    ),
    (
        "a ReplicaSet's replacement asks for more than its victim did",
        quota_and_edited("ReplicaSet", "800m", "200m"),
        None,
        1,
    ),
    # Until it is there its constraint lets the replacements back: nothing is certain.
    ("a nominated pod that the scheduler may place late", nominated(), None, 2),
    ("pods that wait and leave room are in nobody's way", onlookers("default-scheduler"), None, 0),
    ("nor are those of a scheduler that does not run", onlookers("absent-scheduler"), None, 0),
]


def problems(listed: list[Json], made: Plan) -> set[Problem]:
    """What goes wrong in plays of the certain moves; the runtime plans the others anew at their turn."""
    state, waves = State.of(listed), waves_of(made, only_certain=True)
    return {p for seed in range(PLAYS) for p in play(state, waves, Random(seed)).problems}


@pytest.mark.parametrize(("sentence", "listed", "options", "left"), CASES, ids=[c[0] for c in CASES])
def test_what_is_promised_holds(
    sentence: str, listed: list[Json], options: PlanOptions | None, left: int
) -> None:
    del sentence
    made = plan(decoded(listed), options)
    assert problems(listed, made) == set(), told(made)
    assert made.residual_excess == left, told(made)
    for c in made.constraints:
        assert c.reasons or not c.residual_excess
    waves = [m.wave for m in made.moves]
    assert sorted(set(waves)) == list(range(1, len(set(waves)) + 1))


def test_a_pod_that_ends_before_the_first_eviction_changes_nothing() -> None:
    listed = ends_elsewhere()
    later = [o for o in listed if o["metadata"]["name"] != "old"]
    assert problems(later, plan(decoded(listed))) == set()


def test_where_the_quota_is_why_it_is_named() -> None:
    made = plan(decoded(quota_and_edited("StatefulSet", "1", "250m")))
    assert {b.reason.code for b in made.blocked} == {ReasonCode.QUOTA}


def levelled_by_the_other() -> list[Any]:
    """e-0 is full of b's pods: once one is gone, one move is enough for a."""
    return [
        [node(f"{z}-0").zone(z) for z in "abcd"],
        node("e-0").zone("e").pods(2),
        workload("a")
        .labels(tier="x")
        .spread("zone", 3, selector={"owner": "a"})
        .placed({"a-0": 4, "b-0": 4, "c-0": 2, "d-0": 2}),
        workload("b").labels(tier="x").spread("zone", 1, selector={"owner": "b"}).placed({"e-0": 2}),
    ]


@pytest.mark.parametrize(
    "more",
    [[], [pdb("both", {"tier": "x"}, max_unavailable=1)]],
    ids=["in any order", "under a budget that keeps the helpful move behind"],
)
def test_the_bound_counts_what_another_workload_may_leave(more: list[Builder]) -> None:
    listed = objects(levelled_by_the_other(), more)
    made = plan(decoded(listed))
    goal = bound(Cells.of(State.of(listed)), seconds=10)
    assert goal.proved
    assert (made.lower_bound, goal.evictions) == (2, 2), told(made)
    assert not made.optimal or len(made.moves) == 2, told(made)
    assert problems(listed, made) == set()


def test_what_two_victims_together_let_in_is_not_let_in() -> None:
    """A Pending pod that asks for what two of them hold, and is counted by the constraint of one."""
    listed = objects(
        [node("a-0").zone("a").cpu("7"), node("b-0").zone("b")],
        workload("a").spread("zone", 1, selector={"app": "a"}).requests(cpu="1").placed({"a-0": 4, "b-0": 1}),
        workload("b").spread("zone", 1).requests(cpu="1").placed({"a-0": 3, "b-0": 1}),
        pod("p").labels(app="a").requests(cpu="2").selects(hostname="a-0"),
    )
    made = plan(decoded(listed))
    for seed in range(PLAYS):
        end = play(State.of(listed), waves_of(made), Random(seed))
        assert end.problems == ()
        for settled in settle(end.state, 0):
            assert total_excess(settled) <= made.residual_excess, told(made)
            assert plan(decoded(after_walk(settled))).moves == ()


def test_an_excess_that_a_pending_pod_would_bring_is_none_of_the_plans() -> None:
    listed = objects(
        nodes(a=1, b=1),
        workload("a").spread("zone", 1, selector={"app": "a"}).placed({"a-0": 3, "b-0": 2}),
        pod("p").labels(app="a").selects(hostname="a-0"),
    )
    made = plan(decoded(listed))
    assert (made.excess, made.residual_excess, made.moves) == (0, 0, ())
    assert [c.status for c in made.constraints] == ["balanced"]


def test_a_plan_with_caps_is_the_plan_without_them_and_marks_what_waits() -> None:
    listed = objects(nodes(a=1, b=1), workload("w").spread("zone", 1).placed({"a-0": 9}))
    made = plan(decoded(listed), PlanOptions(policy=PolicyOptions(max_total=Limit(number=1))))
    free = plan(decoded(listed))
    assert [m.pod.key for m in made.moves] == [m.pod.key for m in free.moves]
    assert (made.residual_excess, made.optimal, made.blocked) == (0, free.optimal, free.blocked)
    assert made.lower_bound == len(made.moves) == 4
    assert [m.waits.code if m.waits else None for m in made.moves] == [None, *[ReasonCode.CAP] * 3]


def test_pods_that_two_constraints_count_are_the_reason_for_both() -> None:
    full = node("b-0").zone("b").pods(0)
    listed = objects(
        nodes(a=2), full, workload("w").spread("zone", 1).spread("hostname", 1).placed({"a-0": 5})
    )
    made = plan(decoded(listed))
    assert len(made.constraints) == 2
    for c in made.constraints:
        assert [r.numbers["pods"] for r in c.reasons] == [5]
        assert "no pod that may move" not in c.reasons[0].message
