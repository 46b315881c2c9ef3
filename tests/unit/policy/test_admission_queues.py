"""Pods that an admission queue lets in stay: what they free may go to others."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.policy.queues import QUEUES
from tests.support.build import deployment
from tests.unit.policy.judged import code, judged, patched


def web() -> Any:
    return deployment("web").placed({"a-0": 2})


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("kind", ["Pod", "ReplicaSet", "Deployment"])
@pytest.mark.parametrize("key", QUEUES)
def test_a_queue_is_known_by_the_pod_its_owner_and_its_deployment(key: str, kind: str, part: str) -> None:
    reason = judged(patched(kind, {"metadata": {part: {key: "true"}}}, web()))
    assert reason is not None
    assert reason.code is ReasonCode.ADMISSION_QUEUE
    assert QUEUES[key] in reason.message
    assert key in reason.message


@pytest.mark.parametrize("value", ["", "false"])
def test_a_key_that_names_no_queue_means_none(value: str) -> None:
    things = patched("Pod", {"metadata": {"labels": {"kueue.x-k8s.io/managed": value}}}, web())
    assert code(things) is None


def gated(template: bool = False) -> list[Any]:
    """A pod of `other` with a scheduling gate, which its template has as well or not."""
    other = deployment("other").placed({"": 1})
    spec = {"spec": {"schedulingGates": [{"name": "example.com/admission"}]}}
    made = patched("Pod", spec, other)
    for kind in ("ReplicaSet", "Deployment"):
        made = patched(kind, {"spec": {"template": spec}}, made) if template else made
    return made


def test_where_a_new_pod_is_held_back_nobody_goes() -> None:
    reason = judged(web(), gated())
    assert reason is not None
    assert reason.code is ReasonCode.ADMISSION_QUEUE
    assert "example.com/admission" in reason.message
    assert code(web(), gated(template=True)) is None


def test_pods_of_other_namespaces_do_not_care() -> None:
    assert code(deployment("web", namespace="shop").placed({"a-0": 2}), gated()) is None
