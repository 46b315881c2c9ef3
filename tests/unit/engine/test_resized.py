"""A pod that is resized in place takes the largest of what is asked for, allocated and enacted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.decode.pods import PodDecoder
from tests.support.build import node, pod, snapshot
from tests.unit.engine.judge import Asked

PENDING, UNDER_WAY = "PodResizePending", "PodResizeInProgress"


def resized(asked: str, allocated: str | None, enacted: str | None, condition: str = UNDER_WAY,
            reason: str = "") -> Any:  # fmt: skip
    """A pod on a node whose spec asks for so much cpu."""
    made = pod("web").on("a-0").requests(cpu=asked).build()[0]
    made["status"].setdefault("conditions", []).append(
        {"type": condition, "status": "True", "reason": reason}
    )
    given: dict[str, Any] = {"name": made["spec"]["containers"][0]["name"]}
    if allocated is not None:
        given["allocatedResources"] = {"cpu": allocated}
    if enacted is not None:
        given["resources"] = {"requests": {"cpu": enacted}}
    made["status"]["containerStatuses"] = [given]
    return made


TABLE: list[tuple[str, str, str | None, str | None, str, str, int]] = [
    ("a larger one was asked for", "3", "1", "1", UNDER_WAY, "", 3000),
    ("a smaller one was asked for, and not yet allocated", "1", "3", "3", UNDER_WAY, "", 3000),
    ("a smaller one was allocated, and not yet enacted", "1", "1", "3", UNDER_WAY, "", 3000),
    ("it waits for room", "3", "1", "1", PENDING, "Deferred", 3000),
    ("its node can never give it", "9", "1", "1", PENDING, "Infeasible", 1000),
    ("its node can never give it, and enacts a change before", "9", "1", "2", PENDING, "Infeasible", 2000),
    ("the status says nothing", "2", None, None, UNDER_WAY, "", 2000),
    ("its kubelet has not seen it yet, so that no condition says it", "1", "3", "3", "Ready", "", 3000),
]


@pytest.mark.parametrize("version", ["1.33.13", "1.36.2"])
@pytest.mark.parametrize(("asked", "allocated", "enacted", "condition", "reason", "takes"),
                         [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])  # fmt: skip
def test_what_it_takes_of_its_node(
    asked: str,
    allocated: str | None,
    enacted: str | None,
    condition: str,
    reason: str,
    takes: int,
    version: str,
) -> None:
    made = resized(asked, allocated, enacted, condition, reason)
    assert held(made, version) == takes


def held(made: Any, version: str) -> int:
    """The cpu that a pod takes of its node under a version of the scheduler."""
    cluster = replace(snapshot(node("a-0").zone("a"), made), server_version=version)
    return int(ClusterState.of(cluster).requested["cpu"][0])


def test_before_it_was_on_by_default_what_the_spec_says_counts() -> None:
    assert held(resized("1", "3", "3"), "1.32.1") == 1000


def of_the_whole_pod(asked: str, status: str, overhead: str = "", reason: str = "") -> Any:
    """A pod with pod-level resources, and what its status says of them."""
    made = resized("1", "1", "1", PENDING, reason)
    made["spec"]["resources"] = {"requests": {"cpu": asked}}
    if overhead:
        made["spec"]["overhead"] = {"cpu": overhead}
    made["status"] |= {"allocatedResources": {"cpu": status}, "resources": {"requests": {"cpu": status}}}
    return made


@pytest.mark.parametrize(
    ("made", "of_35", "of_36"),
    [
        (of_the_whole_pod("2", "1"), 2000, 2000),
        (of_the_whole_pod("2", "3"), 2000, 3000),
        (of_the_whole_pod("4", "1", reason="Infeasible"), 4000, 1000),
        (of_the_whole_pod("1", "2", overhead="1"), 2000, 3000),
    ],
    ids=["it grows", "it shrinks", "it can never grow", "its overhead is in the status, and added once more"],
)
def test_pod_level_resources_are_resized_from_1_36_on(made: Any, of_35: int, of_36: int) -> None:
    assert (held(made, "1.35.6"), held(made, "1.36.2")) == (of_35, of_36)


@pytest.mark.parametrize(
    ("cpu", "certain"),
    [("3", True), ("2", True), ("2500m", False)],
    ids=["too much either way", "fits either way", "fits by one of the two rules"],
)
def test_a_move_is_likely_where_the_rule_of_one_version_back_decides(cpu: str, certain: bool) -> None:
    """4 cpu, of which 1.36 says 2 are taken and 1.35 said 1500m."""
    there = of_the_whole_pod("1500m", "2")
    asked = Asked(node("a-0").cpu(4), there, pod("new").requests(cpu=cpu), version="v1.36.0")
    assert ("so do pod-level resources" not in asked.doubts) is certain
    assert (asked.fits == ["a-0"]) is (cpu == "2")


@pytest.mark.parametrize(
    ("version", "cpu", "reason", "certain"),
    [
        ("v1.37.0", "1", "Deferred", False),
        ("v1.37.0", "3", "Deferred", True),
        ("v1.37.0", "1", "Infeasible", True),
        ("v1.36.2", "1", "Deferred", True),
    ],
    ids=["room for the pod", "no room for it", "a resize that will never be", "a version without the queue"],
)
def test_a_resize_that_waits_where_the_pod_could_land_makes_it_likely(
    version: str, cpu: str, reason: str, certain: bool
) -> None:
    there = resized("2", "1", "1", PENDING, reason)
    asked = Asked(node("a-0").cpu(4), there, pod("new").requests(cpu=cpu), version=version)
    assert ("a resize waits on a-0" not in asked.doubts) is certain


def test_equal_ones_share_a_template_and_the_decoder_forgets_them() -> None:
    decoder = PodDecoder()
    raw = msgspec.json.encode(resized("3", "1", "1"))
    one, other = decoder.pod(raw), decoder.pod(raw)
    assert one.template is other.template
    decoder.keep([one])
    assert decoder.pod(raw).template is one.template
    decoder.keep([])
    assert decoder.entries == 0
