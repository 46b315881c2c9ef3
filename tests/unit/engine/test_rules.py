"""Rules that the recorded cases do not reach."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.engine.plugins.volume_restrictions import conflict
from rebalancer.model.pod import Volume
from tests.support.build import claim, node, nodes, pod, replica_set, volume
from tests.support.build.pods import PodBuilder
from tests.unit.engine.judge import Asked


def named(*names: str) -> PodBuilder:
    """A pod whose affinity names its nodes by matchFields; several terms intersect in one."""
    new = pod("new")
    fields = [{"key": "metadata.name", "operator": "In", "values": [n]} for n in names]
    terms: dict[str, Any] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    new._spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return new


def test_affinity_to_a_named_node_narrows_the_search() -> None:
    asked = Asked(node("n1"), node("n2").taint("x"), named("n2"))
    assert asked.event.startswith(
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], "
        "1 node(s) had untolerated taint(s)."
    )


def test_affinity_to_two_names_at_once_conflicts() -> None:
    asked = Asked(nodes(a=2), named("a-0", "a-1"))
    assert asked.event.startswith("0/2 nodes are available: pod affinity terms conflict.")


def test_affinity_to_a_node_that_does_not_exist_leaves_none() -> None:
    asked = Asked(nodes(a=1), named("gone"))
    assert asked.fits == []
    assert asked.event.startswith(
        "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


OPEN = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a-0"]}


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("NotIn", ["bad value"]),
        ("NotIn", ["x", "y" * 64]),
        ("NotIn", []),
        ("Gt", ["-5"]),
        ("Lt", ["9.5"]),
        ("DoesNotExist", ["x"]),
    ],
)
def test_a_required_term_that_the_scheduler_cannot_read_opens_no_node(
    operator: str, values: list[str]
) -> None:
    new = pod("new")
    asked = [{"key": key, "operator": operator, "values": values} for key in ("age", "gone")]
    terms = [{"matchExpressions": [one]} for one in (*asked, OPEN)]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    new._spec["affinity"] = {"nodeAffinity": affinity}
    assert Asked(node("a-0").label("age", "7"), node("b-0").label("age", "7"), new).fits == ["a-0"]


def test_a_term_that_names_two_nodes_cannot_be_read() -> None:
    new = named("a-0")
    terms = new._spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms["nodeSelectorTerms"][0]["matchFields"][0]["values"] = ["a-0", "b-0"]
    assert Asked(nodes(a=1, b=1), new).fits == []


def disk(kind: str, *device: str, read_only: bool = False) -> Volume:
    return Volume("v", kind, device=(kind, *device), read_only=read_only)


@pytest.mark.parametrize(
    ("a", "b", "conflicts"),
    [
        (disk("gcePersistentDisk", "d"), disk("gcePersistentDisk", "d"), True),
        (
            disk("gcePersistentDisk", "d", read_only=True),
            disk("gcePersistentDisk", "d", read_only=True),
            False,
        ),
        (disk("gcePersistentDisk", "d"), disk("gcePersistentDisk", "e"), False),
        (
            disk("awsElasticBlockStore", "d", read_only=True),
            disk("awsElasticBlockStore", "d", read_only=True),
            True,
        ),
        (disk("rbd", "pool", "image", "m1", "m2"), disk("rbd", "pool", "image", "m2"), True),
        (disk("rbd", "pool", "image", "m1"), disk("rbd", "pool", "image", "m2"), False),
        (disk("iscsi", "iqn"), disk("gcePersistentDisk", "iqn"), False),
    ],
)
def test_legacy_disks_conflict_unless_all_read(a: Volume, b: Volume, conflicts: bool) -> None:
    assert conflict(a, b) is conflicts
    assert conflict(b, a) is conflicts


def test_a_terminating_pod_holds_room_and_does_not_count_for_spread() -> None:
    things = [nodes(a=1, b=1), pod("web-1").labels(app="web").on("a-0").terminating()]
    asked = Asked(*things, pod("new").labels(app="web").spread("zone", 1))
    assert asked.fits == ["a-0", "b-0"]
    full = Asked(node("a-0").pods(1), pod("web-1").labels(app="web").on("a-0").terminating(), pod("new"))
    assert full.fits == []


@pytest.mark.parametrize(("cpu", "then"), [("100m", ["a-0", "b-0"]), ("7500m", ["b-0"])])
def test_what_a_nominated_pod_says_to_the_spread_is_left_out_with_it(cpu: str, then: list[str]) -> None:
    (waits,) = pod("waits").labels(app="web").requests(cpu=cpu).build()
    waits["status"] = {"phase": "Pending", "nominatedNodeName": "a-0"}
    new = pod("new").labels(app="web").requests(cpu="1").spread("zone", 1)
    asked = Asked(nodes(a=1, b=1), waits, new)
    assert asked.fits == ["b-0"]
    mask = asked.framework.feasible(asked.template, spread=False)
    assert [name for name, fits in zip(asked.state.table.names, mask, strict=True) if fits] == then


def test_a_zonal_volume_keeps_its_pod_in_the_zone() -> None:
    asked = Asked(
        nodes(a=1, b=1), volume("pv", "data", zone="b"), claim("data", "pv"), pod("new").mounts("data")
    )
    assert asked.fits == ["b-0"]


def test_default_constraints_follow_the_controller() -> None:
    things = [nodes(a=1, b=1), replica_set("web").placed({"a-0": 2})]
    alone = Asked(*things, pod("new").labels(app="web"))
    owned = Asked(*things, pod("new").labels(app="web").owned_by("ReplicaSet", "web"))
    assert alone.score("PodTopologySpread") == {}
    assert set(owned.score("PodTopologySpread")) == {"a-0", "b-0"}


@pytest.mark.parametrize(
    ("version", "score"),
    [
        ("v1.35.1", 96),  # 100 · (1 − |500/8000 − 64/32768| / 2)
        ("v1.36.0", 73),  # 50 + (50 + 96 − 100) / 2, the empty node being in balance
    ],
)
def test_the_balance_is_judged_as_the_servers_version_does(version: str, score: int) -> None:
    asked = Asked(nodes(a=1), pod("new").requests(cpu="500m", memory="64Mi"), version=version)
    assert asked.score("NodeResourcesBalancedAllocation") == {"a-0": score}
