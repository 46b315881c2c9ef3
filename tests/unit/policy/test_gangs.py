"""Pods that belong together stay, and count like everybody."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import KINDS
from tests.support.build import nodes, objects, snapshot, workload


def world(change: Any) -> Any:
    """Nine pods in one of three zones; `change` is applied to each pod and its owner."""
    made = objects(nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 9}))
    for o in made:
        change(o)
    return snapshot(*made)


def in_pods(part: str, key: str, value: Any) -> Any:
    def change(o: dict[str, Any]) -> None:
        if o["kind"] == "Pod":
            where = o["spec"] if part == "spec" else o["metadata"].setdefault(part, {})
            where[key] = value

    return change


def owned(kind: str, api: str = "example.com/v1", *, directly: bool = False) -> Any:
    """The ReplicaSet, or the pods themselves, belong to an object of this kind. The ReplicaSet then wants
    none."""

    def change(o: dict[str, Any]) -> None:
        if o["kind"] == ("Pod" if directly else "ReplicaSet"):
            ref = {"apiVersion": api, "kind": kind, "name": "top", "uid": "t", "controller": True}
            o["metadata"]["ownerReferences"] = [ref]
        elif o["kind"] == "ReplicaSet":
            o["spec"]["replicas"] = 0

    return change


GANGS = [
    *(
        (f"label {key}", in_pods("labels", key, "ring"))
        for key in (
            "kueue.x-k8s.io/pod-group-name",
            "scheduling.x-k8s.io/pod-group",
            "pod-group.scheduling.sigs.k8s.io",
            "pod-group.scheduling.sigs.k8s.io/name",
            "leaderworkerset.sigs.k8s.io/name",
            "jobset.sigs.k8s.io/jobset-name",
            "ray.io/cluster",
            "training.kubeflow.org/job-name",
            "volcano.sh/job-name",
        )
    ),
    *(
        (f"annotation {key}", in_pods("annotations", key, "ring"))
        for key in (
            "scheduling.k8s.io/group-name",
            "scheduling.volcano.sh/group-name",
            "pod-group-name",
            "gang.scheduling.koordinator.sh/name",
        )
    ),
    ("schedulingGroup", in_pods("spec", "schedulingGroup", {"podGroupName": "ring"})),
    ("workloadRef", in_pods("spec", "workloadRef", {"name": "ring", "podGroup": "workers"})),
]


@pytest.mark.parametrize("change", [g[1] for g in GANGS], ids=[g[0] for g in GANGS])
@pytest.mark.parametrize("directly", [True, False], ids=["the pods' own", "the ReplicaSet's"])
def test_a_kind_that_is_allowed_does_not_open_the_groups_of_its_pods(change: Any, directly: bool) -> None:
    def both(o: dict[str, Any]) -> None:
        owned("CloneSet", "apps.kruise.io/v1alpha1", directly=directly)(o)
        change(o)

    made = plan(world(both), PlanOptions(policy=PolicyOptions(owner_kinds_allow=("CloneSet",))))
    assert made.moves == ()
    assert {b.reason.code for b in made.blocked} == {ReasonCode.GANG}


@pytest.mark.parametrize("change", [g[1] for g in GANGS], ids=[g[0] for g in GANGS])
def test_a_member_of_a_group_stays_and_counts_unless_policy_names_the_group(change: Any) -> None:
    made = plan(world(change))
    assert made.moves == ()
    assert {b.reason.code for b in made.blocked} == {ReasonCode.GANG}
    assert made.constraints[0].domains == {"a": 9, "b": 0, "c": 0}
    # kube-scheduler places a PodGroup as a whole, so that no move of its pods is certain.
    opened = PlanOptions(policy=PolicyOptions(gangs_allow=("ring",)), certainty="likely")
    assert len(plan(world(change), opened).moves) == 6


@pytest.mark.parametrize(
    ("kind", "code"),
    [*((kind, ReasonCode.GANG) for kind in sorted(KINDS)), ("Elasticsearch", ReasonCode.OWNER_UNKNOWN)],
)
def test_an_owner_under_another_controller_stays_unless_policy_allows_its_kind(
    kind: str, code: ReasonCode
) -> None:
    made = plan(world(owned(kind)))
    assert (made.moves, {b.reason.code for b in made.blocked}) == ((), {code})
    opened = PlanOptions(policy=PolicyOptions(owner_kinds_allow=(kind,)))
    assert len(plan(world(owned(kind)), opened).moves) == 6


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_so_does_a_pod_of_such_a_controller_itself(kind: str) -> None:
    change = owned(kind, directly=True)
    made = plan(world(change))
    assert (made.moves, {b.reason.code for b in made.blocked}) == ((), {ReasonCode.GANG})
    opened = PlanOptions(policy=PolicyOptions(owner_kinds_allow=(kind,)))
    assert len(plan(world(change), opened).moves) == 6


NAMED = {
    "a leader": ("Pod", "v1"),
    "LeaderWorkerSet": ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
    "JobSet": ("JobSet", "jobset.x-k8s.io/v1alpha2"),
    "Ray": ("RayCluster", "ray.io/v1"),
    "Kubeflow's trainer": ("TrainJob", "trainer.kubeflow.org/v1alpha1"),
    "Kubeflow's trainer for PyTorch": ("PyTorchJob", "kubeflow.org/v1"),
    "Kubeflow's trainer for TensorFlow": ("TFJob", "kubeflow.org/v1"),
    "Kubeflow's trainer for XGBoost": ("XGBoostJob", "kubeflow.org/v1"),
    "Kubeflow's trainer for Paddle": ("PaddleJob", "kubeflow.org/v1"),
    "Kubeflow's trainer for JAX": ("JAXJob", "kubeflow.org/v1"),
    "Kubeflow's trainer for MXNet": ("MXJob", "kubeflow.org/v1"),
    "MPI": ("MPIJob", "kubeflow.org/v2beta1"),
    "Volcano": ("Job", "batch.volcano.sh/v1alpha1"),
    "Volcano's PodGroup": ("PodGroup", "scheduling.volcano.sh/v1beta1"),
    "KAI": ("PodGroup", "scheduling.run.ai/v2alpha2"),
}
"""Who makes pods that belong together, under the names that their APIs have."""


@pytest.mark.parametrize("directly", [True, False], ids=["the pods' owner", "the owner's owner"])
@pytest.mark.parametrize(("kind", "api"), NAMED.values(), ids=NAMED)
def test_whose_pods_belong_together(kind: str, api: str, directly: bool) -> None:
    made = plan(world(owned(kind, api, directly=directly)))
    assert (made.moves, {b.reason.code for b in made.blocked}) == ((), {ReasonCode.GANG})


def test_a_job_of_kubernetes_is_a_job() -> None:
    made = plan(world(owned("Job", "batch/v1", directly=True)))
    assert {b.reason.code for b in made.blocked} == {ReasonCode.JOB_POD}


def test_a_disruption_mode_of_a_pod_group_is_no_evidence() -> None:
    """It is about preemption, and `Pod`, each by itself, is its default."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "ring", "namespace": "default"},
        "spec": {"disruptionMode": "Pod"},
    }
    member = in_pods("spec", "schedulingGroup", {"podGroupName": "ring"})
    things = objects(nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 9}), group)
    for o in things:
        member(o)
    assert {b.reason.code for b in plan(snapshot(*things)).blocked} == {ReasonCode.GANG}


def test_a_label_without_a_value_names_no_group() -> None:
    """So the plugins read it."""
    made = plan(world(in_pods("labels", "scheduling.x-k8s.io/pod-group", "")))
    assert len(made.moves) == 6
