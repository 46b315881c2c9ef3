"""Moves that wait for a node which an autoscaler has yet to add: one, likely, and only if it does no harm."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.drill import drill
from rebalancer.planner import plan
from rebalancer.planner.plan import Plan, PlanOptions
from rebalancer.policy.options import Method, PolicyOptions
from rebalancer.policy.release import MARK, Mark
from tests.support.build import deployment, node, node_pool, objects, pod, replica_set, snapshot, workload
from tests.support.build.base import uid_of
from tests.support.build.volumes import csi_node

ZONE, RACK = "topology.kubernetes.io/zone", "topology.example/rack"
TIGHT = (node("a-0").zone("a").cpu(16), node("b-0").zone("b").cpu(16), node("c-0").zone("c").cpu(1))
"""In zone c there is a node, and no room."""
POOL = node_pool("default", zones=["b", "c"], cpu="100", used="60")
OPEN = node_pool("default")


def web(placed: dict[str, int] | None = None) -> Any:
    built = deployment("web").labels(tier="front").requests(cpu=2)
    return built.spread("zone", 1, selector={"owner": "web"}).placed(placed or {"a-0": 3, "b-0": 2})


def made(*things: Any, on: bool = True, method: Any = "auto", **more: Any) -> Plan:
    policy = PolicyOptions(method=method, into_new_nodes=on, **more)
    return plan(snapshot(*things), PlanOptions(policy=policy))


def said(found: Plan) -> str:
    return "; ".join(r.message for c in found.constraints for r in c.reasons)


def test_one_pod_is_to_wait_for_a_node() -> None:
    found = made(TIGHT, web({"a-0": 4, "b-0": 4}), POOL)
    (move,) = found.moves
    assert (move.method, move.certain, move.wave) == (Method.REPLACE_FIRST, False, 1)
    assert move.destinations == ("new node of NodePool default in c",)
    assert move.awaits == (f"{ZONE}=c",)
    assert move.reason.endswith("; its replacement comes first, and waits for a node")
    assert (found.excess, found.residual_excess, found.optimal, len(found.waves)) == (3, 2, False, 1)
    assert found.constraints[0].after in ({"a": 3, "b": 4, "c": 1}, {"a": 4, "b": 3, "c": 1})
    assert any("NodePool default" in a and "large enough" in a for a in found.assumptions)
    assert any("asks for the label of a pod" in a for a in found.assumptions), "as of any that is released"
    assert not any("no other zones" in a for a in found.assumptions)
    found = made(TIGHT, web(), OPEN)
    assert [m.awaits for m in found.moves] == [(f"{ZONE}=c",)]
    assert (found.residual_excess, found.blocked) == (0, ())
    assert any("in no other zones than the cluster's nodes are in" in a for a in found.assumptions)


def test_a_new_node_has_the_csi_drivers_of_the_others() -> None:
    with_secrets = objects(web())
    for o in with_secrets:
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})):
            spec["volumes"] = [{"name": "keys", "csi": {"driver": "csi.example"}}]
    drivers = [csi_node(n) for n in ("a-0", "b-0", "c-0")]
    assert [m.awaits for m in made(TIGHT, with_secrets, drivers, OPEN).moves] == [(f"{ZONE}=c",)]


def test_a_drill_goes_by_the_nodes_that_are_there() -> None:
    cluster = snapshot(*TIGHT, web(), POOL)
    there = drill(cluster, plan=made(TIGHT, web(), POOL))
    assert [d.failure.value for d in there.planned] == [d.failure.value for d in there.today]


def test_what_an_existing_node_takes_comes_first() -> None:
    found = made(*TIGHT, node("c-1").zone("c").cpu(2), web(), POOL, method="replaceFirst")
    assert [(m.destinations, m.awaits) for m in found.moves] == [(("c-1",), ())]


def test_a_zone_that_has_no_node_yet() -> None:
    built = deployment("web").requests(cpu=2).spread("zone", 1, min_domains=3).placed({"a-0": 2, "b-0": 2})
    found = made(TIGHT[:2], built, POOL)
    assert [(m.awaits, m.destinations) for m in found.moves] == [
        ((f"{ZONE}=c",), ("new node of NodePool default in c",))
    ]


LOWER = pod("low").on("b-0").priority(-10)
RELEASED = str(Mark("owner", "set", uid_of("ReplicaSet", "default", "set"), uid_of("Pod", "default", "x"), 1))
BATCH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "batch"},
    "value": -5,
}
NOT: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "it is off": ([web(), POOL], {"on": False}, ""),
    "it is evicted": ([web(), POOL], {"method": "evict"}, "its pods are evicted, not replaced first"),
    "its pods cannot be released": (
        [workload("web").requests(cpu=2).spread("zone", 1).placed({"a-0": 3, "b-0": 2}), POOL],
        {}, "ReplicaSet web has no Deployment"),
    "it could preempt a pod": ([web(), POOL, LOWER], {}, "preempt others: pods of lower priority run"),
    "it could preempt pods to come": (
        [web(), POOL, BATCH], {}, "preempt others: PriorityClass batch is lower"),
    "the pool is not Ready": ([web(), node_pool("default", ready=False)], {}, ""),
    "its limits are used up": (
        [web(), node_pool("default", cpu="61", used="60")], {}, "Insufficient cpu"),
    "another move waits": (
        [web(), POOL, replica_set("set").placed({"b-0": 1}),
         pod("x").on("b-0").annotated({MARK: RELEASED})],
        {}, "default/x is released, and one such move is made at a time"),
    "cluster-autoscaler runs": (
        [web(), POOL, pod("ca").on("b-0").labels(app="cluster-autoscaler")], {},
        "cluster-autoscaler runs, and does not show where its groups add nodes"),
    "the taint of the pool": ([web(), node_pool("default", taint="gpu")], {}, "untolerated taint"),
}  # fmt: skip


@pytest.mark.parametrize(("things", "options", "why"), NOT.values(), ids=NOT)
def test_where_no_node_is_waited_for_the_reason_says_so(
    things: list[Any], options: dict[str, Any], why: str
) -> None:
    found = made(TIGHT, *things, **options)
    assert found.moves == ()
    assert ("evictions.intoNewNodes): " in said(found)) is bool(why)
    assert ("an autoscaler would have to add a node in c" in said(found)) is not ("taint" in why), (
        "whether or not it is on"
    )
    if "add a node in c" in said(found):
        assert "evictions.intoNewNodes: true" in found.constraints[0].reasons[0].remedy
    assert why in said(found)


def test_of_two_pools_that_could_serve_it_both_have_to_do_no_harm() -> None:
    """In b it would make worse what `api` asks for."""
    racks = [*(node(f"{z}-0").zone(z).label("rack", "1") for z in "abc"),
             node("a-1").zone("a").label("rack", "2").cpu(1)]  # fmt: skip
    moved = deployment("web").labels(tier="front").requests(cpu=2)
    moved.spread("rack", 1, selector={"owner": "web"}).placed({"a-0": 2})
    api = workload("api").labels(tier="front").spread("zone", 1, selector={"tier": "front"})
    api.placed({"b-0": 2, "c-0": 2})
    pools = {z: node_pool(z, zones=[z]) for z in "ab"}
    for pool in pools.values():
        pool.object["spec"]["template"]["metadata"] = {"labels": {RACK: "2"}}
    found = made(racks, moved, api, pools["a"])
    assert [m.awaits for m in found.moves] == [(f"{RACK}=2", f"{ZONE}=a")]
    found = made(racks, moved, api, pools.values())
    assert found.moves == ()
    assert "intoNewNodes): its replacement could raise the excess of another constraint" in said(found)
