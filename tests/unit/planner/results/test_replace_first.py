"""Plans whose pods are replaced first: the old pod is there until the new one is."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.planner.plan import Move, Plan, PlanOptions
from rebalancer.policy.options import Method, PolicyOptions
from tests.support.build import OwnerBuilder, deployment, nodes, objects, pdb, snapshot, workload
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import patched

HASH = "pod-template-hash"
ASKS = {"metadata": {"annotations": {"rebalancer.io/method": "replaceFirst"}}}


def made(*things: Any, method: Any = "auto", **options: Any) -> Plan:
    return plan(snapshot(*things), PlanOptions(policy=PolicyOptions(method=method, **options)))


def full(name: str = "web") -> Any:
    return pdb(name, {"owner": name}, max_unavailable=0)


def web(placed: dict[str, int], name: str = "web", key: str = "zone") -> OwnerBuilder:
    return deployment(name).spread(key, 1, selector={"owner": name}).placed(placed)


def by(moves: tuple[Move, ...]) -> list[tuple[Method, str]]:
    return [(m.method, m.release_label) for m in moves]


def test_what_a_budget_forbids_is_mended_one_pod_at_a_time() -> None:
    found = made(nodes(a=1, b=1, c=1), web({"a-0": 6}), full())
    assert by(found.moves) == [(Method.REPLACE_FIRST, HASH)] * 4
    assert [len(wave) for wave in found.waves] == [1, 1, 1, 1]
    assert (found.residual_excess, found.optimal) == (0, True)
    assert all(m.certain for m in found.moves)
    assert all(m.reason.endswith("; its replacement comes first") for m in found.moves)
    assert found.waves_bound == 4
    assert found.demands[0].reason == "web with 1 of its pods released at a time"
    assert all(HASH not in m.released.labels for m in found.moves if m.released is not None)


def test_where_the_budget_lets_one_go_auto_evicts() -> None:
    found = made(nodes(a=1, b=1), web({"a-0": 4}), pdb("web", {"owner": "web"}, max_unavailable=1))
    assert by(found.moves) == [(Method.EVICT, "")] * 2
    found = made(nodes(a=1, b=1), web({"a-0": 4}), method="replaceFirst")
    assert by(found.moves) == [(Method.REPLACE_FIRST, HASH)] * 2


def test_of_two_workloads_that_budgets_block_one_has_two_budgets_and_stays() -> None:
    """What the Eviction API refuses always is not released."""
    pods, alone = (
        [of(n).labels(app=n).spread("zone", 1, selector={"app": n}).placed({"a-0": 2, "a-1": 2})
         for n in ("web", "two")]
        for of in (deployment, workload)
    )  # fmt: skip
    budgets = [pdb("web", {"app": "web"}, min_available="100%"),
               *(pdb(n, {"app": "two"}, max_unavailable=1) for n in ("two-1", "two-2"))]  # fmt: skip
    cluster = patched("Deployment", ASKS, nodes(a=2, b=2, c=2), pods, budgets)
    assert (made(cluster, method="evict").excess, made(cluster).residual_excess) == (6, 3)
    assert {m.pod.name[:3] for m in made(cluster).moves} == {"web"}
    assert {b.reason.code for b in made(cluster).blocked} == {ReasonCode.MULTIPLE_PDBS}
    bare = nodes(a=2, b=2, c=2), alone, budgets
    assert made(*bare).residual_excess == 6, "nothing says that it bears a pod too many"
    assert made(patched("ReplicaSet", ASKS, *bare), method="evict").residual_excess == 3


TIGHT = {"a-0": 2, "a-2": 1, "b-0": 1, "b-1": 1}
"""Only a-1 is open by the host, and while five pods and one more are there, not by the zone."""


def two_keys(keys: tuple[str, ...] = ()) -> list[Json]:
    made = deployment("web").labels(app="web").placed(TIGHT)
    for key in ("zone", "hostname"):
        made.spread(key, 1, selector={"app": "web"}, match_label_keys=keys)
    return objects(nodes(a=3, b=2), made)


def test_the_old_pod_counts_while_the_new_one_is_placed() -> None:
    budget = pdb("web", {"app": "web"}, max_unavailable=0)
    assert made(two_keys(), method="evict").residual_excess == 0
    found = made(two_keys(), budget)
    assert (found.moves, found.residual_excess) == ((), 1)
    [evicted] = made(two_keys(), method="replaceFirst").moves
    assert evicted.method is Method.EVICT
    assert "not replaced first: beside it no node would take another" in evicted.reason


def test_by_revision_a_released_pod_no_longer_counts() -> None:
    budget = pdb("web", {"app": "web"}, max_unavailable=0)
    [move] = made(two_keys((HASH,)), budget).moves
    assert (move.method, move.destinations, move.certain) == (Method.REPLACE_FIRST, ("a-1",), True)


def merged() -> list[Json]:
    """As servers from 1.34 on have it: the revision's value is in the selector itself."""
    value = next(o for o in two_keys() if o["kind"] == "Pod")["metadata"]["labels"][HASH]
    expression = {"key": HASH, "operator": "In", "values": [value]}
    found = two_keys((HASH,))
    for pod in (o for o in found if o["kind"] == "Pod"):
        for c in pod["spec"]["topologySpreadConstraints"]:
            c["labelSelector"] = {**c["labelSelector"], "matchExpressions": [expression]}
    return found


def test_both_spellings_of_a_revision_key_are_one() -> None:
    [move] = made(merged(), pdb("web", {"app": "web"}, max_unavailable=0)).moves
    assert (move.method, move.destinations) == (Method.REPLACE_FIRST, ("a-1",))


def test_others_that_count_the_pod_must_not_see_two_in_its_zone() -> None:
    """db's constraint counts web's pods, and binds none of them: zones 3 and 2 are as far as it goes."""
    db = deployment("db").labels(app="web").spread("zone", 1, selector={"app": "web"}).placed({"b-0": 2})
    web = deployment("web").labels(app="web").spread("hostname", 1, selector={"owner": "web"})
    shut = {"spec": {"taints": [{"key": "full", "effect": "NoSchedule"}]}}
    cluster = patched("Node", shut, nodes(a=2, b=1), db, web.placed({"a-0": 3}), name="b-0")
    assert [m.method for m in made(cluster).moves] == [Method.EVICT]
    found = made(cluster, full())
    assert found.moves == ()
    assert ReasonCode.WOULD_WORSEN in {b.reason.code for b in found.blocked}


@pytest.mark.parametrize(
    ("change", "moves"),
    [({}, 1), ({"host_port": 80}, 1), ({"cpu": "3"}, 1), ({"cpu": "5"}, 0)],
    ids=["as it is", "a host port, free elsewhere", "room for one more", "no room for one more"],
)
def test_room_and_ports_of_one_more_are_needed_where_it_lands(change: dict[str, Any], moves: int) -> None:
    made_ = web({"a-0": 1, "a-1": 1})
    if "host_port" in change:
        made_.host_port(change["host_port"])
    made_.requests(cpu=change.get("cpu", "100m"))
    machines = [n.cpu("5") if i < 2 else n.cpu("4") for i, n in enumerate(nodes(a=2, b=1))]
    assert len(made(machines, made_, full()).moves) == moves


def test_several_workloads_share_a_wave_as_far_as_max_released_goes() -> None:
    names = ("web", "api", "cart")
    cluster = [nodes(a=1, b=1), [web({"a-0": 2}, n) for n in names], [full(n) for n in names]]
    assert [len(w) for w in made(cluster).waves] == [3]
    found = made(cluster, max_released=2)
    assert [len(w) for w in found.waves] == [2, 1]
    assert (found.waves_bound, found.demands[0].reason) == (2, "2 released pods at a time")


def test_a_plan_from_a_file_says_that_nobody_looked_who_else_asks_for_the_label() -> None:
    cluster = [nodes(a=1, b=1), web({"a-0": 4}), full()]
    assert any("asks for the label" in a for a in made(cluster).assumptions)
    assert not any("asks for the label" in a for a in made(cluster, method="evict").assumptions)


def test_planning_on_the_result_gives_nothing() -> None:
    assert made(nodes(a=1, b=1), web({"a-0": 2, "b-0": 2}), full()).moves == ()


@pytest.mark.parametrize(("method", "moves"), [("evict", 2), ("auto", 2), ("replaceFirst", 0)])
def test_moves_for_soft_constraints_take_no_pod_that_is_to_be_replaced_first(method: str, moves: int) -> None:
    soft = deployment("web").spread("zone", 1, selector={"owner": "web"}, soft=True).placed({"a-0": 4})
    policy = PolicyOptions(method=method)  # type: ignore[arg-type]
    found = plan(snapshot(nodes(a=1, b=1), soft), PlanOptions(policy=policy, soft="predicted"))
    assert len(found.moves) == moves
    assert moves or ReasonCode.NOT_REPLACED_FIRST in {b.reason.code for b in found.blocked}
