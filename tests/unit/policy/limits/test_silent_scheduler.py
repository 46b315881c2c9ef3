"""Which pods tell that a scheduler works."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebalancer.model.node import OwnerReference
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.policy.circuit_breaker import judged_since, silent

POD = Pod("x", "default", "u", PodTemplate("default", {}, {}), created=100.0)
BOUND = replace(POD, node_name="a-0", judged=True)


def of(api: str, kind: str) -> Pod:
    """A pod on a node, with that owner."""
    return replace(BOUND, owner=OwnerReference(kind=kind, name="o", api_version=api, controller=True))


CASES = {
    "a Deployment's pod on a node": (of("apps/v1", "ReplicaSet"), True),
    "a StatefulSet's": (of("apps/v1", "StatefulSet"), True),
    "a DaemonSet's": (of("apps/v1", "DaemonSet"), True),
    "a ReplicationController's": (of("v1", "ReplicationController"), True),
    "a Job's": (of("batch/v1", "Job"), True),
    "a pod that fits nowhere, by the scheduler": (replace(POD, judged=True, unschedulable="0/3 nodes"), True),
    "a pod of kubectl debug node": (BOUND, False),
    "a static pod": (of("v1", "Node"), False),
    "an add-on's DaemonSet, which may name the node": (of("apps.kruise.io/v1alpha1", "DaemonSet"), False),
    "a gated pod, of which the API server says so": (replace(POD, judged=True), False),
    "a pod that nobody has looked at": (POD, False),
    "an older pod": (replace(of("apps/v1", "ReplicaSet"), created=99.0), False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_scheduler_works_if_a_younger_pod_is_its_work(case: str) -> None:
    pod, works = CASES[case]
    assert judged_since([pod], 99.0) is works


def test_the_reason_names_the_scheduler_and_the_pod_that_waits_longest() -> None:
    reason = silent("fast", [replace(POD, name="younger", created=200.0), POD])
    assert reason.code is ReasonCode.SCHEDULER_SILENT
    assert reason.message.startswith(
        "2 pods wait for scheduler fast, which has not looked at default/x for 30 s"
    )
    assert reason.numbers == {"pods": 2}
    assert "whether scheduler fast runs" in reason.remedy
    assert silent("fast", [POD]).message.startswith("a pod waits for scheduler fast")
