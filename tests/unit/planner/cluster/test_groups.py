"""Counts of a constraint's domains, and what one move makes of them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.planner.cluster.groups import Group, Groups
from tests.support.build import decoded, node, nodes, objects, pod, snapshot, workload
from tests.support.scheduler.plain import Json

ZONES = "abcdef"


def in_(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def not_in(key: str, *values: str) -> Json:
    return {**in_(key, *values), "operator": "NotIn"}


@cache
def group(domains: int, max_skew: int, min_domains: int) -> Group:
    """A group over so many zones of one node each."""
    web = workload("web").spread("zone", max_skew, min_domains=min_domains or None).placed({"a-0": 1})
    s = snapshot(nodes(**dict.fromkeys(ZONES[:domains], 1)), web)
    (found,) = Groups(ClusterState.of(s), [s.pods[0].template]).all
    return found


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(st.data())
def test_the_excess_after_a_move_is_what_a_recount_says(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    size = len(counts)
    min_domains = data.draw(st.sampled_from((0, 1, size, size + 1)))
    g = group(size, data.draw(st.integers(1, 3)), min_domains)
    leaves = data.draw(st.sampled_from([-1, *(d for d in range(size) if counts[d])]))
    into = data.draw(st.lists(st.integers(-1, size - 1), min_size=1, max_size=8))
    expected = []
    for d in into:
        after = list(counts)
        if leaves >= 0:
            after[leaves] -= 1
        if d >= 0:
            after[d] += 1
        lowest = 0 if size < min_domains else min(after)
        expected.append(max(0, max(after) - lowest - g.constraint.max_skew))
    before = np.array(counts)
    assert g.excess_after(before, leaves, np.array(into)).tolist() == expected
    assert before.tolist() == counts, "the counts are the caller's"


def test_domains_are_those_of_eligible_nodes() -> None:
    web = workload("web").spread("zone", 1).selects(pool="x").placed({"a-0": 2, "b-0": 1})
    pooled = [node(n).zone(z).label("pool", "x") for n, z in (("a-0", "a"), ("b-0", "b"))]
    s = snapshot(pooled, node("c-0").zone("c"), node("d-0"), web)
    state = ClusterState.of(s)
    (g,) = Groups(state, [s.pods[0].template]).all
    assert g.names == ("a", "b")
    assert g.counts(state).tolist() == [2, 1]
    assert (g.skew(g.counts(state)), g.excess(g.counts(state))) == (1, 0)


def test_pods_that_spell_one_constraint_alike_share_a_group() -> None:
    one = workload("web").spread("zone", 1).placed({"a-0": 1})
    spelled = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    two = workload("api").labels(app="web").spread("zone", 1, selector=spelled).placed({"b-0": 1})
    third = workload("db").labels(app="web").spread("zone", 2, selector={"app": "web"}).placed({"b-0": 1})
    s = snapshot(nodes(a=1, b=1), one, two, third)
    groups = Groups(ClusterState.of(s), [p.template for p in s.pods])
    by_name = {p.name[:2]: groups.carried(p.template) for p in s.pods}
    assert by_name["we"] == by_name["ap"] != by_name["db"]
    assert all(len(groups.counted(p.template)) == 2 for p in s.pods)


def test_too_few_domains_count_from_zero() -> None:
    g = group(2, 1, 3)
    assert not g.enough_domains
    assert g.excess(np.array([2, 2])) == 1


def test_a_constraint_that_only_a_new_template_has_counts_nobody_yet() -> None:
    """A rollout that adds a constraint over all apps has begun: neighbours are planned for as before."""
    web = workload("web").spread("zone", 1).placed({"a-0": 3})
    listed = objects(nodes(a=1, b=1), web, workload("zed").spread("zone", 1).placed({"a-0": 2}))
    everybody = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    added = pod("x").spread("hostname", 1, selector=everybody).spec()["topologySpreadConstraints"]
    for o in listed:
        if o["kind"] == "ReplicaSet" and o["metadata"]["name"] == "web":
            o["spec"]["template"]["spec"]["topologySpreadConstraints"] += added
    found = plan(decoded(listed))
    assert [m.pod.name for m in found.moves] == ["zed-00000"]
    assert {b.reason.code for b in found.blocked} == {ReasonCode.ROLLOUT_IN_PROGRESS}


@pytest.mark.parametrize(
    ("sentence", "selector", "counts"),
    [
        ("one of two values", {"matchExpressions": [in_("app", "x", "web")]}, True),
        ("two labels, one of which fits", {"matchLabels": {"app": "web", "tier": "y"}}, False),
        ("a label must not have a value", {"matchExpressions": [not_in("app", "x")]}, True),
        ("a label must be there", {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ("all pods are meant, which counts none", {}, False),
        ("no selector", None, False),
    ],
)
def test_who_is_counted(sentence: str, selector: Json | None, counts: bool) -> None:
    web = workload("web").labels(tier="x").placed({"a-0": 1})
    other = workload("other").spread("zone", 1, selector=selector).placed({"a-0": 1})
    s = snapshot(nodes(a=1, b=1), web, other)
    groups = Groups(ClusterState.of(s), [p.template for p in s.pods])
    (template,) = (p.template for p in s.pods if p.name.startswith("web"))
    assert groups.counted(template) == ((0,) if counts else ()), sentence


def test_hard_and_soft_constraints_are_asked_for_apart_or_together() -> None:
    web = workload("web").spread("zone", 1, soft=True).spread("hostname", 1).placed({"a-0": 2})
    s = snapshot(nodes(a=1, b=1), web)
    template, state = s.pods[0].template, ClusterState.of(s)
    keys = {
        (hard, soft): [g.constraint.topology_key for g in Groups(state, [template], hard=hard, soft=soft).all]
        for hard, soft in ((True, False), (False, True), (True, True))
    }
    zone, host = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
    assert keys == {(True, False): [host], (False, True): [zone], (True, True): [host, zone]}
