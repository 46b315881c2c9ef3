"""Which pods get which deletion cost, and which are left alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest

from rebalancer.model.pod import Pod
from rebalancer.model.selectors import Selector
from rebalancer.planner import plan
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.prevention.steering import Steering, right, steer
from tests.support.build import decoded, deployment, node, nodes, objects, replica_set, stateful_set
from tests.support.judge.scale_in import COST, priced
from tests.support.scheduler.plain import Json

ALL = ScaleInOptions(mode="all")
THREE = nodes(a=1, b=1, c=1)


def costs(found: Steering) -> dict[str, int]:
    """Pod → cost that is to be written."""
    return {c.pod.name[-5:].lstrip("0") or "0": c.cost for o in found.owners for c in o.changes}


def steered(*things: Any, options: ScaleInOptions = ALL) -> Steering:
    return steer(decoded(objects(*things)), options)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    things: tuple[Any, ...]
    costs: dict[str, int]
    """The last digits of a pod's name → its cost."""


SHARED = replica_set("web").labels(tier="t").spread("zone", selector={"tier": "t"})
SOFT = replica_set("web").spread("zone", soft=True)
CASES = [
    Case(
        "one in each zone: any may go, none needs a cost",
        (THREE, replica_set("web").spread("zone").placed({"a-0": 1, "b-0": 1, "c-0": 1})),
        {},
    ),
    Case(
        "the second of a zone goes before the first of another",
        (THREE, replica_set("web").spread("zone").placed({"a-0": 2, "b-0": 1, "c-0": 1})),
        {"0": -1},
    ),
    Case(
        "three heights, three costs",
        (THREE, replica_set("web").spread("zone").placed({"a-0": 3, "b-0": 2, "c-0": 1})),
        {"0": -2, "1": -1, "3": -1},
    ),
    Case("a soft constraint counts too", (THREE, SOFT.placed({"a-0": 2, "b-0": 1})), {"0": -1}),
    Case(
        "no constraint of its own: the scheduler's defaults",
        (THREE, replica_set("web").placed({"a-0": 3})),
        {"0": -2, "1": -1},
    ),
    Case("a single pod: no cost", (THREE, replica_set("web").spread("zone").placed({"a-0": 1})), {}),
    Case(
        "a StatefulSet goes by ordinals",
        (THREE, stateful_set("web").spread("zone").placed({"a-0": 3})),
        {},
    ),
    Case(
        "pods of others make a domain full",
        (
            THREE,
            SHARED.placed({"a-0": 1, "b-0": 1}),
            replica_set("more").labels(tier="t").placed({"a-0": 2}),
        ),
        {"0": -1},
    ),
    Case(
        "a pod where no pod is counted goes as soon as the rest is in order",
        (
            [*THREE, node("x-0")],
            replica_set("web").spread("zone").placed({"a-0": 2, "b-0": 1, "c-0": 1, "x-0": 1}),
        ),
        {"0": -1, "4": -2},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_costs(case: Case) -> None:
    assert costs(steered(*case.things)) == case.costs


def placed(**per_zone: int) -> list[Json]:
    return objects(
        THREE, replica_set("web").spread("zone").placed({f"{z}-0": n for z, n in per_zone.items()})
    )


def with_costs(
    cluster: list[Json], costs: dict[str, int], manager: str = "rebalancer-scale-in"
) -> list[Json]:
    pods = [o for o in cluster if o["kind"] == "Pod"]
    return [o for o in cluster if o["kind"] != "Pod"] + priced(pods, costs, manager)


def named(found: Steering) -> dict[str, int]:
    return {c.pod.name: c.cost for o in found.owners for c in o.changes}


def test_what_is_written_needs_no_second_write() -> None:
    cluster = placed(a=4, b=2, c=2)
    first = named(steer(decoded(cluster), ALL))
    assert first
    assert not steer(decoded(with_costs(cluster, first)), ALL).changes


def test_pods_that_come_and_go_change_no_other_pod() -> None:
    cluster = placed(a=3, b=3, c=3)
    written = named(steer(decoded(cluster), ALL))
    grown = placed(a=4, b=4, c=4)
    renamed = {p["metadata"]["name"]: p for p in grown if p["kind"] == "Pod"}
    # Of each zone three keep what they had.
    kept: dict[str, int] = {}
    for zone in ("a-0", "b-0", "c-0"):
        before = [
            p["metadata"]["name"] for p in cluster if p["kind"] == "Pod" and p["spec"]["nodeName"] == zone
        ]
        after = [n for n, p in renamed.items() if p["spec"]["nodeName"] == zone]
        kept.update({new: written.get(name, 0) for new, name in zip(after, before, strict=False)})
    found = named(steer(decoded(with_costs(grown, kept)), ALL))
    assert len(found) == 3
    shrunk = [
        o
        for o in with_costs(cluster, written)
        if not (o["kind"] == "Pod" and written.get(o["metadata"]["name"]) == -2)
    ]
    assert not steer(decoded(shrunk), ALL).changes


def test_what_was_written_to_in_part_keeps_its_costs() -> None:
    """However far the writing got: the same pods get the same costs, and none that has one another."""
    cluster = placed(a=5, b=5, c=5)
    whole = steer(decoded(cluster), ALL)
    changes = [(c.pod.name, c.cost) for o in whole.owners for c in o.changes]
    for done in range(len(changes)):
        half = with_costs(cluster, dict(changes[:done]))
        assert named(steer(decoded(half), ALL)) == dict(changes[done:]), done


def test_pods_that_came_at_once_change_no_other_pod() -> None:
    """Some of them are written to already."""
    cluster = placed(a=6, b=6, c=6)
    pods = [o for o in cluster if o["kind"] == "Pod"]
    old = {p["metadata"]["name"] for n, p in enumerate(pods) if n % 6 < 3}
    for pod in pods:
        if pod["metadata"]["name"] not in old:
            pod["metadata"]["creationTimestamp"] = "2026-01-01T11:59:00Z"
    there = [o for o in cluster if o["kind"] != "Pod" or o["metadata"]["name"] in old]
    written = named(steer(decoded(there), ALL))
    came = steer(decoded(with_costs(cluster, written)), ALL)
    changes = [(c.pod.name, c.cost) for o in came.owners for c in o.changes]
    assert len(changes) == 9
    for done in range(9):
        half = with_costs(cluster, {**written, **dict(changes[:done])})
        assert len(named(steer(decoded(half), ALL))) == 9 - done


def test_costs_of_somebody_else_are_left_alone_and_counted() -> None:
    cluster = placed(a=3, b=1, c=1)
    name = next(o["metadata"]["name"] for o in cluster if o["kind"] == "Pod")
    found = steer(decoded(with_costs(cluster, {name: 7}, "kubectl-annotate")), ALL)
    assert found.foreign == 1
    assert name not in named(found)
    assert sorted(named(found).values()) == [-2, -1], "the two others of that zone, above the one that stays"


def test_a_cost_that_two_have_set_is_not_ours() -> None:
    cluster = with_costs(placed(a=2, b=1, c=1), {"web-00000": -1})
    for o in cluster:
        for entry in list(o["metadata"].get("managedFields", ())):
            o["metadata"]["managedFields"].append({**entry, "manager": "someone"})
    assert steer(decoded(cluster), ALL).foreign == 1


def test_our_costs_are_nothing_to_the_plan() -> None:
    cluster = placed(a=4, b=1, c=1)
    costs = named(steer(decoded(cluster), ALL))
    before, after = plan(decoded(cluster)), plan(decoded(with_costs(cluster, costs)))
    assert [m.pod.name for m in before.moves] == [m.pod.name for m in after.moves]
    assert all(COST not in p.annotations for p in decoded(with_costs(cluster, costs)).pods)


@pytest.mark.parametrize(
    ("case", "mode", "on_owner", "on_namespace", "steered_pods"),
    [
        ("off: not even where it is asked for", "off", "spread", "spread", 0),
        ("annotated: nobody asked", "annotated", "", "", 0),
        ("annotated: the namespace asks", "annotated", "", "spread", 1),
        ("annotated: the Deployment asks", "annotated", "spread", "", 1),
        ("annotated: only the ReplicaSet's copy asks", "annotated", "copy", "", 0),
        ("the Deployment knows better than its namespace", "annotated", "off", "spread", 0),
        ("all", "all", "", "", 1),
        ("all: a namespace does not want it", "all", "", "off", 0),
        ("all: a word that is none is a no", "all", "no", "spread", 0),
    ],
)
def test_scope(case: str, mode: Any, on_owner: str, on_namespace: str, steered_pods: int) -> None:
    assert case
    space: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    if on_namespace:
        space["metadata"]["annotations"] = {"rebalancer.io/scale-in": on_namespace}
    cluster = objects(THREE, space, deployment("web").spread("zone").placed({"a-0": 2, "b-0": 1, "c-0": 1}))
    for o in cluster:
        if on_owner and o["kind"] == ("ReplicaSet" if on_owner == "copy" else "Deployment"):
            said = on_owner.replace("copy", "spread")
            o["metadata"].setdefault("annotations", {})["rebalancer.io/scale-in"] = said
    assert steer(decoded(cluster), ScaleInOptions(mode=mode)).changes == steered_pods


@pytest.mark.parametrize(("said", "steered_pods"), [("off", 0), ("spread", 1)])
def test_of_what_an_argo_rollouts_replica_set_says_a_no_counts(said: str, steered_pods: int) -> None:
    """The Rollout is not read. What it asked for once counts for nothing, as its copy stays."""
    web = deployment("web").spread("zone").placed({"a-0": 2, "b-0": 1, "c-0": 1})
    cluster = [o for o in objects(THREE, web) if o["kind"] != "Deployment"]
    top = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "u"}
    for o in cluster:
        if o["kind"] == "ReplicaSet":
            o["metadata"]["ownerReferences"] = [{**top, "controller": True}]
            o["metadata"]["annotations"] = {"rebalancer.io/scale-in": said}
    found = {
        mode: steer(decoded(cluster), ScaleInOptions(mode=mode)).changes for mode in ("all", "annotated")
    }
    assert found == {"all": steered_pods, "annotated": 0}


def test_what_is_out_of_scope_now_loses_its_costs() -> None:
    cluster = placed(a=2, b=1, c=1)
    written = with_costs(cluster, named(steer(decoded(cluster), ALL)))
    found = steer(decoded(written), ScaleInOptions(mode="annotated"))
    assert [c.cost for o in found.owners for c in o.changes] == [0]


@pytest.mark.parametrize("scope", [{"excluded": ("default",)}, {"included": ("shop",)}])
def test_nothing_is_touched_where_it_may_not_steer(scope: dict[str, Any]) -> None:
    cluster = placed(a=2, b=1, c=1)
    written = with_costs(cluster, named(steer(decoded(cluster), ALL)))
    assert not steer(decoded(written), ScaleInOptions(mode="all", **scope)).changes
    assert not steer(decoded(written), ScaleInOptions(mode="annotated", **scope)).changes


@pytest.mark.parametrize(
    ("case", "theirs", "by", "changes", "kept"),
    [
        ("its own", "", "b/brake", 1, {}),
        ("of another one", ":a/brake", "b/brake", 0, {"a/brake": 1}),
        ("of another one whose name comes later", ":c/brake", "b/brake", 0, {"c/brake": 1}),
        ("whoever shows it has none", ":a/brake", "", 1, {}),
    ],
)
def test_costs_of_another_installation_are_left_alone(
    case: str, theirs: str, by: str, changes: int, kept: dict[str, int]
) -> None:
    assert case
    cluster = with_costs(placed(a=3, b=1, c=1), {"web-00000": -2}, f"rebalancer-scale-in{theirs}")
    for mode in ("all", "annotated"):
        found = steer(decoded(cluster), ScaleInOptions(mode=mode, by=by))
        assert found.changes == changes
        assert found.kept == (kept if mode == "all" else {})


def test_of_two_installations_that_began_at_once_one_goes_on() -> None:
    cluster = with_costs(placed(a=4, b=1, c=1), {"web-00000": -3}, "rebalancer-scale-in:a/brake")
    pods = {o["metadata"]["name"]: o for o in cluster if o["kind"] == "Pod"}
    theirs = priced([pods["web-00001"]], {"web-00001": -2}, "rebalancer-scale-in:b/brake")
    cluster = [o for o in cluster if o["metadata"]["name"] != "web-00001"] + theirs
    assert set(named(steer(decoded(cluster), ScaleInOptions(mode="all", by="a/brake")))) == {"web-00002"}
    assert not steer(decoded(cluster), ScaleInOptions(mode="all", by="b/brake")).changes


@pytest.mark.parametrize(
    ("case", "costs", "pods"),
    [
        ("none has a cost, and they should not go in any order", [(0, -2), (0, -1), (0, 0)], 0),
        ("none has a cost, and needs one", [(0, 0), (0, 0)], 2),
        ("the first is written", [(-2, -2), (0, -1), (0, 0)], 1),
        ("one that goes first now should stay", [(-3, 0), (-2, -2), (-1, -1)], 0),
        ("of two that may go first one is written", [(-2, -2), (0, -2), (0, -1)], 1),
        ("all are written", [(-2, -2), (-1, -1), (0, 0)], 3),
        ("other numbers, the same order", [(-9, -2), (-7, -1), (-7, -1), (-3, 0)], 4),
    ],
)
def test_how_many_pods_may_go(case: str, costs: list[tuple[int, int]], pods: int) -> None:
    assert case
    assert right(costs) == pods


def test_where_karpenter_runs_nothing_is_steered_if_the_settings_say_so() -> None:
    cluster = objects(
        node("a-0").zone("a").label("karpenter.sh/nodepool", "general"),
        nodes(b=1, c=1),
        replica_set("web").spread("zone").placed({"a-0": 2, "b-0": 1, "c-0": 1}),
    )
    assert steer(decoded(cluster), ALL).changes == 1
    held = steer(decoded(cluster), ScaleInOptions(mode="all", beside_karpenter=False))
    assert "Karpenter" in held.held_back
    assert not held.changes


def disruption_cost(pods: Iterable[Pod], costs: Mapping[str, int], left: float) -> float:
    """What Karpenter sorts its nodes by (pkg/utils/disruption of 1.13): each pod 1, and a little more or less
    by its deletion cost and its priority; times the share that is left of the node's life."""
    own = (1 + costs.get(p.key, 0) / 2**27 + p.template.priority / 2**25 for p in pods)
    return left * sum(min(10.0, max(-10.0, c)) for c in own)


@pytest.mark.parametrize("seed", range(12))
def test_our_costs_are_a_tie_break_to_karpenter(seed: int) -> None:
    """They move a node's cost by less than a hundred-thousandth of a pod: nodes change places only where a
    second of their age, or nothing, sets them apart."""
    rng = random.Random(seed)
    names = [f"{z}-{i}" for z in "abc" for i in range(rng.randint(4, 8))]
    things: list[Any] = [
        node(n).zone(n[0]).label("karpenter.sh/nodepool", "general").pods(110) for n in names
    ]
    for i in range(rng.randint(5, 15)):
        web = replica_set(f"web-{i}").requests(cpu="1m").priority(rng.choice([0, 0, 1000, 10**6]))
        weights = [rng.random() ** 3 for _ in names]
        things.append(web.spread("zone").on_nodes(rng.choices(names, weights, k=rng.choice([2, 5, 20, 60]))))
    cluster = decoded(objects(*things))
    costs = {c.pod.key: c.cost for o in steer(cluster, ALL).owners for c in o.changes}
    assert costs
    month = 720 * 3600
    left = {n: rng.choice([1.0, rng.randrange(month) / month]) for n in names}
    pods = {n: [p for p in cluster.pods if p.node_name == n] for n in names}
    without = {n: disruption_cost(pods[n], {}, left[n]) for n in names}
    beside = {n: disruption_cost(pods[n], costs, left[n]) for n in names}
    assert max(abs(beside[n] - without[n]) for n in names) < 1e-5
    for n, m in combinations(names, 2):
        if (without[n] - without[m]) * (beside[n] - beside[m]) < 0:
            assert abs(without[n] - without[m]) < max(len(pods[n]), len(pods[m])) / month


@pytest.mark.parametrize(
    ("labels", "reached"), [({"team": "shop"}, True), ({"team": "x"}, False), (None, False)]
)
def test_where_a_selector_says_which_namespaces_one_whose_labels_are_not_known_is_none_of_them(
    labels: dict[str, str] | None, reached: bool
) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}}
    there = decoded(objects(THREE, *([space] if labels is not None else [])))
    chosen = Selector.equals({"team": "shop"})
    assert ScaleInOptions(mode="all", selector=chosen).reaches("shop", there) is reached
    assert ScaleInOptions(mode="all").reaches("shop", there)
