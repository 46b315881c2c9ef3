"""While another owner under the same selector comes to rest, nobody goes for what its pods count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from tests.support.build import OwnerBuilder, ago, nodes, objects, replica_set, snapshot, workload
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import patched

ROLLOUT, SCALING = ReasonCode.ROLLOUT_IN_PROGRESS, ReasonCode.OWNER_SCALING
WEB = {"a-0": 4, "b-0": 1, "c-0": 1}


def shared(name: str, kind: str, placed: Mapping[str, int]) -> OwnerBuilder:
    built = workload(name, kind).labels(app="x").spread("zone", 1, selector={"app": "x"})
    return built.placed(placed)


def other(kind: str = "ReplicaSet", **placed: int) -> OwnerBuilder:
    return shared("other", kind, {node.replace("_", "-"): n for node, n in placed.items()})


def ordered(age: float, node: str = "c-0") -> list[Json]:
    """A StatefulSet that wants three pods and has two; the second is so old and not Ready."""
    made = objects(other("StatefulSet", b_0=1).placed({node: 1}).replicas(3).unready(1))
    made[2]["metadata"]["creationTimestamp"] = ago(age)
    return made


UNSEEN = {"metadata": {"generation": 2}}
STATES: dict[str, tuple[list[Any], ReasonCode | None]] = {
    "at rest": ([other(b_0=1, c_0=1)], None),
    "short of pods that are not there yet": ([other().replicas(6)], SCALING),
    "of one": ([other(b_0=1).replicas(2)], SCALING),
    "scaled down": ([other(b_0=1, c_0=1).replicas(1)], SCALING),
    "its pod is on a node that is gone": ([other(gone=1)], SCALING),
    "its pods are Pending": ([other(b_0=1, c_0=1).placed({"": 2}).selects(slot="nowhere")], None),
    "between revisions": (
        [
            patched("Deployment", {"status": {"updatedReplicas": 1}}, other("Deployment", b_0=1, c_0=1)),
        ],
        ROLLOUT,
    ),
    "its last change is not seen yet": (
        [patched("Deployment", UNSEEN, other("Deployment", b_0=1, c_0=1))],
        ROLLOUT,
    ),
    "a StatefulSet between revisions": (
        [
            patched(
                "StatefulSet", {"status": {"updateRevision": "other-2"}}, other("StatefulSet", b_0=1, c_0=1)
            )
        ],
        ROLLOUT,
    ),
    "one in order, whose next pod starts": (ordered(20.0), SCALING),
    "one in order, whose next pod never gets Ready": (ordered(3600.0), None),
    "one in order, whose next pod finds no node": (ordered(20.0, ""), None),
    "its controller cannot make them": (
        patched(
            "ReplicaSet",
            {
                "status": {
                    "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]
                }
            },
            other(b_0=1).replicas(2),
        ),
        None,
    ),
    "under a selector of its own": ([replica_set("other").labels(app="y").replicas(6)], None),
    "in another namespace": ([workload("other", namespace="shop").labels(app="x").replicas(6)], None),
}


@pytest.mark.parametrize(("things", "code"), STATES.values(), ids=STATES)
def test_while_another_owner_that_is_counted_is(things: list[Any], code: ReasonCode | None) -> None:
    made = plan(snapshot(*nodes(a=1, b=1, c=1), shared("web", "ReplicaSet", WEB), *things))
    if code is None:
        assert not any("another owner" in b.reason.message for b in made.blocked)
        return
    assert not made.moves
    waiting = [b for b in made.blocked if b.pod.name.startswith("web")]
    assert len(waiting) == 4
    for b in waiting:
        assert b.reason.code is code
        assert "its spread counts pods of another owner, too: " in b.reason.message
        assert b.reason.remedy.startswith("it is left alone until ")
        assert b.reason.remedy.endswith(" other has its pods")


def test_a_constraint_that_counts_none_of_its_pods_is_mended_meanwhile() -> None:
    web = workload("web").labels(app="x").spread("zone", 1, selector={"owner": "web"}).placed(WEB)
    holds = other(b_0=2, c_0=2).replicas(6)
    made = plan(snapshot(*nodes(a=1, b=1, c=1), web, holds))
    assert [m.owner.name for m in made.moves] == ["web"]
