"""While another owner under the same selector comes to rest, nobody goes for what its pods count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.options import PolicyOptions
from tests.support.build import OwnerBuilder, ago, nodes, objects, replica_set, snapshot, workload
from tests.support.build.base import reference
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
REVISIONS = {"StatefulSet": {"updateRevision": "other-2"}, "Deployment": {"updatedReplicas": 1}}


def rolling(
    built: OwnerBuilder, ages: tuple[float, float], ready: tuple[bool, bool], seen: bool = True
) -> list[Json]:
    """One between two revisions, whose two pods are so old, and Ready or not."""
    built.placed({"b-0": 1}).placed({"c-0": 1}).unready(*(i for i, r in enumerate(ready) if not r))
    made = patched(built.kind, {"status": REVISIONS[built.kind], **({} if seen else UNSEEN)}, built)
    for pod, age in zip((o for o in made if o["kind"] == "Pod"), ages, strict=True):
        pod["metadata"]["creationTimestamp"] = ago(age)
    return made


NEWEST_OLD, NEWEST_NEW = (7200.0, 3600.0), (7200.0, 20.0)


def ending(node: str, built: OwnerBuilder) -> list[Json]:
    """One whose first pod on the node is being deleted."""
    made = objects(built)
    pod = next(o for o in made if o["kind"] == "Pod" and o["spec"].get("nodeName") == node)
    pod["metadata"].update(deletionTimestamp=ago(1), deletionGracePeriodSeconds=30)
    return made


FIRST, SECOND = (False, True), (True, False)
"""Which of two pods is broken."""
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
    "a rollout in order, whose newest pod starts": (
        rolling(other("StatefulSet"), NEWEST_NEW, SECOND),
        ROLLOUT,
    ),
    "one whose newest pod never gets Ready": (rolling(other("StatefulSet"), NEWEST_OLD, SECOND), None),
    "one that waits for a pod that broke before": (rolling(other("StatefulSet"), NEWEST_OLD, FIRST), None),
    "one that was changed again": (
        rolling(other("StatefulSet"), NEWEST_OLD, SECOND, seen=False),
        ROLLOUT,
    ),
    "a rollout in parallel, whose newest pod never gets Ready": (
        rolling(other("StatefulSet").parallel(), NEWEST_OLD, SECOND),
        None,
    ),
    "one in which an older pod broke": (
        rolling(other("StatefulSet").parallel(), NEWEST_OLD, FIRST),
        ROLLOUT,
    ),
    "a Deployment whose newest pod starts": (rolling(other("Deployment"), NEWEST_NEW, SECOND), ROLLOUT),
    "one whose newest pod is not Ready for long": (rolling(other("Deployment"), NEWEST_OLD, SECOND), None),
    "one whose newest pod is Ready": (rolling(other("Deployment"), NEWEST_OLD, FIRST), ROLLOUT),
    "one that lacks a pod beside": (
        rolling(other("Deployment").replicas(3), NEWEST_OLD, SECOND),
        SCALING,
    ),
    "a DaemonSet at rest": ([other("DaemonSet", b_0=1, c_0=1)], None),
    "one of which a pod ends": (ending("b-0", other("DaemonSet", b_0=1, c_0=1)), SCALING),
    "one that has made its pod anew already": (
        ending("b-0", other("DaemonSet", b_0=2, c_0=1)),
        None,
    ),
    "one whose node is gone": (ending("gone", other("DaemonSet", gone=1, c_0=1)), None),
    "one that is being deleted": (
        patched("DaemonSet", {"metadata": {"deletionTimestamp": ago(1)}}, other("DaemonSet", b_0=1)),
        SCALING,
    ),
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


@pytest.mark.parametrize("protected", [True, False])
def test_a_paused_rollout_is_not_waited_for(protected: bool) -> None:
    both_ready = rolling(other("Deployment"), NEWEST_OLD, (True, True))
    paused = patched("Deployment", {"spec": {"paused": True}}, *both_ready)
    old = replica_set("old").labels(app="x").placed({"b-0": 1})
    child = {"metadata": {"ownerReferences": [reference("apps/v1", "Deployment", "default", "other")]}}
    every = [*paused, *patched("ReplicaSet", child, old, name="old")]
    options = PlanOptions(policy=PolicyOptions(protect_paused=protected))
    made = plan(snapshot(*nodes(a=1, b=1, c=1), shared("web", "ReplicaSet", WEB), *every), options)
    assert not any("another owner" in b.reason.message for b in made.blocked)


def test_a_constraint_that_counts_none_of_its_pods_is_mended_meanwhile() -> None:
    web = workload("web").labels(app="x").spread("zone", 1, selector={"owner": "web"}).placed(WEB)
    holds = other(b_0=2, c_0=2).replicas(6)
    made = plan(snapshot(*nodes(a=1, b=1, c=1), web, holds))
    assert [m.owner.name for m in made.moves] == ["web"]
