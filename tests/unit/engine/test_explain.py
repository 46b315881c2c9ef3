"""The event of a Pending pod is kube-scheduler's, preemption included."""

from __future__ import annotations

from typing import Any

from tests.support.build import node, nodes, pod
from tests.unit.engine.judge import Asked

ANTI: dict[str, Any] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}


def test_a_pod_that_fits_has_no_event() -> None:
    assert Asked(nodes(a=1), pod("new")).event == ""


def test_reasons_are_counted_and_sorted_as_text() -> None:
    asked = Asked(
        node("n1").taint("dedicated"),
        node("n2").taint("dedicated"),
        node("n3").cordoned(),
        node("n4").cpu("100m"),
        pod("new").requests(cpu="4"),
    )
    assert asked.event == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, "
        "2 node(s) had untolerated taint(s). preemption: 0/4 nodes are available: "
        "4 Preemption is not helpful for scheduling."
    )


def test_a_full_node_without_lower_priority_has_no_victims() -> None:
    asked = Asked(node("n1").pods(1), pod("old").on("n1"), pod("new"))
    assert asked.event == (
        "0/1 nodes are available: 1 Too many pods. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_preemption_that_helps_leaves_no_text_and_the_state_as_it_was() -> None:
    asked = Asked(node("n1").pods(1), pod("old").on("n1"), pod("new").priority(1))
    assert asked.event == "0/1 nodes are available: 1 Too many pods."
    assert asked.event == "0/1 nodes are available: 1 Too many pods."


def test_a_claim_that_is_missing_fails_before_any_node() -> None:
    asked = Asked(nodes(a=2), pod("new").mounts("data"))
    assert asked.event == (
        '0/2 nodes are available: persistentvolumeclaim "data" not found. '
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_without_nodes_there_is_nothing_to_count() -> None:
    assert Asked(pod("new")).event == "no nodes available to schedule pods"
