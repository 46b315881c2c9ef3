"""The engine agrees with real schedulers: on all clusters of the newest, on a share of the older ones."""

from __future__ import annotations

import pytest

from tests.conformance.agreement import BUILT, OTHERWISE
from tests.conformance.compare import differences
from tests.conformance.recordings import recorded, sets, versions
from tests.conformance.replay import NEWEST, replay
from tests.conformance.share import drawn

ASKED = [(set_, version) for set_ in sets() for version in versions(set_)]
COUNTS = {"families": 1140, "first": 950, "more": 762, "next": 12, "smallest": 8}


def test_every_set_was_asked_of_every_version() -> None:
    released = ["1.29.1", "1.31.14", "1.33.13", "1.34.9", "1.35.6", NEWEST]
    assert {s: versions(s) for s in sets()} == {
        "families": [*released, *BUILT],
        "first": [NEWEST],
        "more": [*released, *BUILT],
        "next": [NEWEST, *BUILT],
        "smallest": released,
    }


@pytest.mark.parametrize(("set_", "version"), ASKED)
def test_the_engine_agrees_with_kube_scheduler(set_: str, version: str) -> None:
    wrong, there = [], 0
    for one in recorded(set_, version):
        there += 1
        whole = version == NEWEST or set_ == "next"
        if one.case["id"] in OTHERWISE.get((set_, version), {}) or not (whole or drawn(one)):
            continue
        wrong += differences(one.verdict, replay(one.case, version))
    assert wrong == []
    assert there == COUNTS[set_]
