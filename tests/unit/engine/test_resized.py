"""A pod that is resized in place takes the largest of what is asked for, allocated and enacted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.decode.pods import PodDecoder
from tests.support.build import node, pod, snapshot

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


TABLE = [
    ("a larger one was asked for", "3", "1", "1", UNDER_WAY, "", 3000),
    ("a smaller one was asked for, and not yet allocated", "1", "3", "3", UNDER_WAY, "", 3000),
    ("a smaller one was allocated, and not yet enacted", "1", "1", "3", UNDER_WAY, "", 3000),
    ("it waits for room", "3", "1", "1", PENDING, "Deferred", 3000),
    ("its node can never give it", "9", "1", "1", PENDING, "Infeasible", 1000),
    ("its node can never give it, and enacts a change before", "9", "1", "2", PENDING, "Infeasible", 2000),
    ("the status says nothing", "2", None, None, UNDER_WAY, "", 2000),
    ("another condition: statuses are not looked at", "1", "3", "3", "Ready", "", 1000),
]


@pytest.mark.parametrize(("asked", "allocated", "enacted", "condition", "reason", "takes"),
                         [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])  # fmt: skip
def test_what_it_takes_of_its_node(
    asked: str, allocated: str | None, enacted: str | None, condition: str, reason: str, takes: int
) -> None:
    made = resized(asked, allocated, enacted, condition, reason)
    state = ClusterState.of(snapshot(node("a-0").zone("a"), made))
    assert state.requested["cpu"].tolist() == [takes]


def test_equal_ones_share_a_template_and_the_decoder_forgets_them() -> None:
    decoder = PodDecoder()
    raw = msgspec.json.encode(resized("3", "1", "1"))
    one, other = decoder.pod(raw), decoder.pod(raw)
    assert one.template is other.template
    decoder.keep([one])
    assert decoder.pod(raw).template is one.template
    decoder.keep([])
    assert decoder.entries == 0
