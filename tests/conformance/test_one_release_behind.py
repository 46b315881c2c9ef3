"""What it costs to go by the rules of one release ago, as on a cluster newer than the last known release."""

from __future__ import annotations

from rebalancer.engine.version import LAST
from tests.conformance.agreement import BUILT
from tests.conformance.recordings import recorded, versions
from tests.conformance.replay import NEWEST, replay
from tests.conformance.share import drawn

BEFORE = "1.35.6"


def test_the_newest_scheduler_decides_as_the_rules_of_one_release_ago_say() -> None:
    asked, other = 0, []
    for one in recorded("families", NEWEST):
        if not drawn(one):
            continue
        found = replay(one.case, BEFORE)["incoming"]
        for theirs, ours in zip(one.verdict["incoming"], found, strict=True):
            for node, said in theirs["filter"].items():
                asked += 1
                if (said is None) != (ours["filter"].get(node) is None):
                    other.append((one.case["id"], theirs["pod"], node))
    assert asked > 1000
    assert other == []


def test_the_last_known_release_was_recorded() -> None:
    """Who raises `LAST` has recorded what that scheduler answers (docs/scheduler.md)."""
    assert ".".join(map(str, LAST)) in {v.rpartition(".")[0] for v in versions()}
    released = [v for v in versions() if v not in BUILT]
    assert released[-2:] == [BEFORE, NEWEST]
