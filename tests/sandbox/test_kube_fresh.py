"""A fresh look before an eviction: what changed since the plan stops it, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import KubeError
from rebalancer.kube.fresh import Revalidation
from rebalancer.kube.read import read_snapshot
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move
from rebalancer.sandbox import ApiServer, Reply
from tests.support.api import FakeTime, connected, objects_of
from tests.support.build import deployment, node, objects, pdb

CLUSTER = (
    node("a-0").zone("a"),
    node("b-0").zone("b"),
    deployment("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
    pdb("web", {"app": "web"}, max_unavailable=1),
)


def move_of(snapshot: Snapshot) -> Move:
    pod = snapshot.pods[0]
    owner = snapshot.owner_of(pod.namespace, pod.owner)
    assert owner is not None
    return Move(
        pod=pod,
        owner=owner,
        replacement=pod.template,
        destinations=("b-0",),
        predicted="b-0",
        certain=True,
        wave=1,
        fixes=(0,),
        reason="",
    )


class World:
    """A server, a plan made of it, and ways to change the server afterwards."""

    def __init__(self, server: ApiServer, connection: Connection) -> None:
        self.server = server
        self.time = FakeTime()
        self.snapshot = read_snapshot(connection, now=self.time.now, wait=self.time.wait)
        self.move = move_of(self.snapshot)
        self.replica_set = self.move.owner.name
        self.pod = self.move.pod.name
        self.look = Revalidation(
            objects_of(connection, self.time), self.snapshot, [self.move], monotonic=self.time.monotonic
        )

    def send(self, method: str, kind: str, name: str, body: Any = None, *, status: bool = False) -> None:
        """A request of somebody else's."""
        path = RESOURCES[kind].path("default", name, "status" if status else "")
        headers = {
            "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"
        }
        answer = urllib3.request(method, self.server.url + path, json=body, headers=headers)
        assert answer.status < 300, answer.data

    def patch(self, kind: str, name: str, body: Any, *, status: bool = False) -> None:
        """A merge patch."""
        self.send("PATCH", kind, name, body, status=status)

    def code(self, in_flight: int = 0) -> ReasonCode | None:
        """The reason that the fresh look gives."""
        reason = self.look.why_not(self.move, in_flight)
        return reason.code if reason else None


@pytest.fixture
def world() -> Iterator[World]:
    with ApiServer(objects(*CLUSTER)) as server, connected(server) as c:
        yield World(server, c)


def test_an_unchanged_world_lets_the_move_pass(world: World) -> None:
    assert world.look.why_not(world.move) is None


def test_a_pod_that_is_gone_has_changed(world: World) -> None:
    world.send("DELETE", "Pod", world.pod, {"gracePeriodSeconds": 0})
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def test_a_terminating_pod_is_somebody_elses(world: World) -> None:
    world.send("DELETE", "Pod", world.pod, {"gracePeriodSeconds": 60})
    assert world.code() is ReasonCode.TERMINATING


def test_a_pod_that_runs_no_more_would_bypass_its_budget(world: World) -> None:
    world.patch("Pod", world.pod, {"status": {"phase": "Pending"}}, status=True)
    assert world.code() is ReasonCode.NOT_RUNNING


@pytest.mark.parametrize("what", ["labels", "annotations"])
def test_a_pod_whose_metadata_changed_is_not_the_planned_one(world: World, what: str) -> None:
    world.patch("Pod", world.pod, {"metadata": {what: {"rebalancer.io/evict": "false"}}})
    reason = world.look.why_not(world.move)
    assert reason is not None
    assert reason.code is ReasonCode.CHANGED_SINCE_PLAN
    assert reason.message.endswith(what)


def test_an_owner_that_is_scaled_is_left_alone(world: World) -> None:
    world.patch("ReplicaSet", world.replica_set, {"spec": {"replicas": 7}})
    assert world.code() is ReasonCode.OWNER_SCALING


def test_a_template_that_changes_means_a_rollout(world: World) -> None:
    world.patch(
        "Deployment", "web", {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    )
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def test_an_owner_that_is_deleted_makes_no_replacement(world: World) -> None:
    world.send("DELETE", "ReplicaSet", world.replica_set, {"propagationPolicy": "Orphan"})
    assert world.code() in (ReasonCode.CHANGED_SINCE_PLAN, ReasonCode.OWNER_TERMINATING)


def test_an_annotation_on_the_deployment_is_heard(world: World) -> None:
    world.patch("Deployment", "web", {"metadata": {"annotations": {"rebalancer.io/evict": "false"}}})
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def test_the_owners_missing_pods_are_allowed_as_far_as_this_wave_took_them(world: World) -> None:
    world.patch("ReplicaSet", world.replica_set, {"status": {"replicas": 4, "readyReplicas": 3}}, status=True)
    assert world.code() is ReasonCode.REPLACEMENT_NOT_READY
    assert world.code(in_flight=1) is None
    world.patch("ReplicaSet", world.replica_set, {"status": {"replicas": 3, "readyReplicas": 3}}, status=True)
    assert world.code() is ReasonCode.OWNER_SCALING
    assert world.code(in_flight=1) is None


def test_an_exhausted_budget_stops_it_before_the_server_has_to(world: World) -> None:
    world.patch("PodDisruptionBudget", "web", {"status": {"disruptionsAllowed": 0}}, status=True)
    assert world.code() is ReasonCode.PDB_EXHAUSTED


def test_a_budget_that_its_controller_has_not_seen_stops_it(world: World) -> None:
    world.patch("PodDisruptionBudget", "web", {"spec": {"maxUnavailable": 2}})
    assert world.code() is ReasonCode.PDB_STALE


def test_budgets_that_may_not_be_read_are_left_to_the_server(world: World) -> None:
    world.server.faults.add(Reply(403), resource="poddisruptionbudgets")
    assert world.code() is None


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}},
        {"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}},
    ],
    ids=["cordoned", "tainted", "relabelled"],
)
def test_a_node_that_changed_ends_the_plan(world: World, change: Any) -> None:
    world.patch("Node", "b-0", change)
    reason = world.look.world_moved()
    assert reason is not None
    assert reason.code is ReasonCode.NODES_CHANGED
    assert "b-0" in reason.message


def test_a_node_that_has_less_room_than_planned_with_ends_the_plan(world: World) -> None:
    world.patch("Node", "b-0", {"status": {"allocatable": {"cpu": "1"}}}, status=True)
    assert world.code() is ReasonCode.NODES_CHANGED


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"taints": [{"key": "soon", "effect": "PreferNoSchedule"}]}},
        {"metadata": {"labels": {"feature.example/checked": "now"}, "annotations": {"x": "y"}}},
    ],
    ids=["preference", "other label"],
)
def test_a_node_that_changed_in_what_no_plan_rests_on_does_not(world: World, change: Any) -> None:
    world.patch("Node", "b-0", change)
    assert world.code() is None


def test_nodes_are_read_again_only_after_some_seconds(world: World) -> None:
    def lists() -> int:
        return sum(1 for a in world.server.accesses if a.verb == "list" and a.resource == "nodes")

    before = lists()
    assert world.code() is None
    world.patch("Node", "b-0", {"spec": {"unschedulable": True}})
    assert world.code() is None
    assert lists() == before + 1
    world.time.linger(11)
    assert world.code() is ReasonCode.NODES_CHANGED


def test_what_cannot_be_looked_at_is_an_error_not_a_yes(world: World) -> None:
    world.server.faults.add(Reply(500), verb="get", resource="pods")
    with pytest.raises(KubeError):
        world.look.why_not(world.move)
