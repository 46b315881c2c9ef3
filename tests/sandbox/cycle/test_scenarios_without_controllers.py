"""Every broken cluster, rebalanced over HTTP: the fewest evictions, budgets kept, and nothing left to do."""

from __future__ import annotations

import pytest

from rebalancer.outcome import End, Fate
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.runs.one_cycle import Run
from tests.support.sandbox import ApiServer
from tests.support.scheduler.plain import node_of
from tests.support.servers.hands import Hands

QUICK = sorted(set(SCENARIOS) - {"random_cluster"})
"""The other takes minutes with controllers moved by hand."""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", QUICK)
def test_a_broken_cluster_is_mended_as_predicted(name: str, seed: int) -> None:
    with ApiServer(scenario(name)) as server:
        hands = Hands(server, seed=seed)
        run = Run(server, hands=hands)
        assert run.report.end is End.COMPLETE
        assert run.report.evicted == run.evictions() == SCENARIOS[name].evictions
        assert run.report.last is not None
        assert run.report.last.residual_excess == SCENARIOS[name].residual
        assert {o.status for o in run.report.outcomes} <= {Fate.DONE}
        assert all(o.expected for o in run.report.outcomes)
        assert all(node_of(p) for p in server.store.list("Pod"))
        assert hands.broken_budgets == []
        again = Run(server, hands=hands)
        assert (again.report.end, again.report.evicted) == (End.COMPLETE, 0)
