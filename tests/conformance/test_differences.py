"""Where versions of kube-scheduler differ: the smallest cluster of each difference, and every answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.compare import differences
from tests.conformance.recordings import Json, recorded, versions
from tests.conformance.replay import replay


def rejected(verdict: Json) -> object:
    """The nodes that do not take the pod, and by which plugin."""
    if "preFilter" in verdict:
        return {"every node": verdict["preFilter"]["plugin"]}
    return {node: r["plugin"] for node, r in verdict["filter"].items() if r is not None}


def image_locality(verdict: Json) -> object:
    """What the image scores on the node that has it."""
    return verdict["weightedScoresByPlugin"]["ImageLocality"]["node-0"]


def least_allocated(verdict: Json) -> object:
    """What the node scores that has a pod with a sidecar."""
    return verdict["weightedScoresByPlugin"]["NodeResourcesFit"]["node-0"]


DIFFERENCES: list[tuple[str, str, Callable[[Json], object], dict[str, object]]] = [
    (
        "a term that only excludes namespaces selects every one from 1.34 on",
        "ns-notin",
        rejected,
        {"1.29.1": {}, "1.34.9": {"node-0": "InterPodAffinity"}},
    ),
    (
        "host ports of sidecars count in 1.33.6 and from 1.34 on",
        "sidecar-port",
        rejected,
        {"1.29.1": {}, "1.33.13": {"node-0": "NodePorts"}},
    ),
    (
        "a nominated pod of a scheduler without a profile does not take part",
        "foreign-nominated",
        rejected,
        {"1.29.1": {}},
    ),
    (
        "a generic ephemeral volume whose claim belongs to somebody else fails",
        "ephemeral-owner",
        rejected,
        {"1.29.1": {"every node": "VolumeBinding"}},
    ),
    (
        "attachable-volumes-csi-… in allocatable is a limit up to 1.31",
        "limit-alloc",
        rejected,
        {"1.29.1": {"node-0": "NodeVolumeLimits"}, "1.33.13": {}},
    ),
    ("image volumes score from 1.36 on", "image-volume", image_locality, {"1.29.1": 0, "1.36.2": 43}),
    (
        "images of init containers score from 1.30 on",
        "image-init",
        image_locality,
        {"1.29.1": 0, "1.31.14": 21},
    ),
    (
        "a sidecar beside its containers scores from 1.32 on",
        "sidecar-score",
        least_allocated,
        {"1.29.1": 74, "1.33.13": 49},
    ),
]


@pytest.mark.parametrize("version", versions("smallest"))
@pytest.mark.parametrize(("sentence", "name", "look", "since"), DIFFERENCES, ids=[d[0] for d in DIFFERENCES])
def test_each_version_is_followed(
    sentence: str, name: str, look: Callable[[Json], object], since: dict[str, object], version: str
) -> None:
    del sentence
    (one,) = (r for r in recorded("smallest", version) if r.case["id"] == name)
    ours = replay(one.case, version)
    known = versions("smallest")
    expected = [since[v] for v in known[: known.index(version) + 1] if v in since][-1]
    assert look(one.verdict["incoming"][0]) == expected
    assert look(ours["incoming"][0]) == expected
    assert differences(one.verdict, ours) == []
