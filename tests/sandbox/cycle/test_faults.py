"""A cycle over a bad line: whatever fails, nothing is evicted twice or untold, and the end is known."""

from __future__ import annotations

import pytest

from rebalancer.errors import UserError
from rebalancer.outcome import End
from tests.support.build import objects, pdb
from tests.support.runs.one_cycle import SKEWED, Run
from tests.support.sandbox import ApiServer, Cut, Garbage, Reply
from tests.support.servers.hands import Hands

THINGS = (*SKEWED, pdb("web", {"app": "web"}, max_unavailable=1))


def bad_line(server: ApiServer, share: float, *verbs: str) -> None:
    """Six kinds of fault at random, each with this share, on evictions and on requests of these verbs."""
    for action in (
        Cut("after"),
        Cut("before"),
        Cut("body", body_bytes=20),
        Reply(500),
        Reply(503),
        Garbage(),
    ):
        server.faults.add(action, subresource="eviction", probability=share)
        for verb in verbs:
            server.faults.add(action, verb=verb, probability=share)


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_line_slows_a_cycle_down_and_does_not_spoil_it(seed: int) -> None:
    with ApiServer(objects(*THINGS), seed=seed) as server:
        hands = Hands(server, seed=seed)
        bad_line(server, 0.03, "get", "list")
        try:
            run = Run(server, hands=hands)
        except UserError:
            assert hands.made == 0  # the cluster could not even be read
            return
        # Each pod that went was replaced once: what the report counts is what happened.
        assert run.report.evicted == hands.made
        assert hands.broken_budgets == []
        if run.report.end is End.COMPLETE:
            assert run.zones() == [2, 2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_a_very_bad_line_ends_the_cycle_with_the_truth(seed: int) -> None:
    with ApiServer(objects(*THINGS), seed=seed) as server:
        hands = Hands(server, seed=seed)
        try:
            bad_line(server, 0.1, "get")
            run = Run(server, hands=hands)
        except UserError:
            assert hands.made == 0
            return
        unknown = sum(o.eviction is not None and o.eviction.result == "unknown" for o in run.report.outcomes)
        assert run.report.evicted <= hands.made <= run.report.evicted + unknown
        assert hands.broken_budgets == []
