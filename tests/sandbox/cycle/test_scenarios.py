"""Every broken cluster with its controllers, scheduler and kubelets, mended over HTTP by `once --execute`.

With -m nightly, REBALANCER_SEEDS=20 runs each with twenty seeds of the scheduler's ties and of the pods'
starting times, but for the first.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.outcome import CycleReport, End
from rebalancer.planner.plan import Plan
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.live.once import run_once
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.sandbox import Cluster
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State, total_excess
from tests.support.servers.budget_watch import BudgetWatch
from tests.support.servers.hands import everything

SEEDS = int(os.environ.get("REBALANCER_SEEDS", "2"))
SMALL = sorted(set(SCENARIOS) - {"random_cluster"})
GRACE = 0.15
"""Stands for some seconds: longer than a replacement takes to be placed, shorter than to be Ready, or not."""
STUCK = {"rollout_in_progress": ("Deployment",)}
"""Whose controller is away: a rollout that goes on would mend the cluster itself."""
LUCK = {"w028": 1, "w030": 1}
"""By workload of random_cluster: evictions that its likely moves may cost beyond the plan. Its zones have
maxSkew 2, so that the filter leaves replacements several zones. From the zone that the plan does not predict,
one more pod has to move later."""
UNSURE = {"w004": 1}
"""By workload: excess that may stay, because no sequence of evictions surely reaches the end
(docs/planning.md)."""
LIMITS = SettleLimits(ready=30.0, pending=3.0, poll=0.02)


def starting_times(seed: int) -> Callable[[Json], float]:
    """Replacements become Ready in any order, before or after their victims are gone."""
    rng = random.Random(seed)
    return lambda _: rng.uniform(0.01, 2 * GRACE)


def rebalance(cluster: Cluster, folder: Path) -> CycleReport:
    connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(folder / "config"))))
    try:
        return run_once(connection, LiveOptions(execute=True, settle=LIMITS), clock=SystemClock())
    finally:
        connection.close()


def evictions(cluster: Cluster) -> int:
    return sum(a.subresource == "eviction" and a.code == 201 for a in cluster.server.accesses)


def counts(plan: Plan, *, after: bool) -> list[tuple[str, str, list[int]]]:
    """The pods per domain of each constraint, whichever domain has which number.

    A maxSkew above 1 leaves the scheduler a choice, then only their sum is known before.
    """
    found = []
    for result in plan.constraints:
        numbers = sorted((result.after if after else result.domains).values())
        one = result.constraint.max_skew == 1
        selector, key = str(result.constraint.selector), result.constraint.topology_key
        found.append((selector, key, numbers if one else [sum(numbers)]))
    return sorted(found)


def check_each_workload(report: CycleReport) -> int:
    """Each workload gave as many pods as planned, more or fewer only as luck allows; the excess it left."""
    assert report.first is not None
    assert report.last is not None
    planned = Counter(m.owner.name for m in report.first.moves)
    gave = Counter(o.move.owner.name for o in report.outcomes if o.evicted)
    likely = {m.owner.name for m in report.first.moves if not m.certain}
    assert likely <= LUCK.keys() | UNSURE.keys()
    assert gave.keys() == planned.keys()
    unlucky = 0
    for owner, number in planned.items():
        left = left_by(owner, report.last) - left_by(owner, report.first, after=True)
        assert 0 <= left <= UNSURE.get(owner, 0), owner
        # Where excess is left, so are the moves that would have mended it, and those that prepare for them.
        least = left_by(owner, report.first) - left if left else number
        assert least <= gave[owner] <= number - left + LUCK.get(owner, 0), owner
        unlucky += left
    return unlucky


def left_by(owner: str, plan: Plan, *, after: bool = False) -> int:
    """The excess of the constraints that select a workload's pods."""
    mine = (c for c in plan.constraints if any(w.endswith(f"/{owner}") for w in c.workloads))
    return sum(c.residual_excess if after else c.excess for c in mine)


def check(name: str, seed: int, folder: Path) -> None:
    expected = SCENARIOS[name]
    options: dict[str, Any] = {
        "ready_after": starting_times(seed),
        "grace": GRACE,
        "without": STUCK.get(name, ()),
    }
    with Cluster(scenario(name), seed=seed, **options) as cluster:
        cluster.settle()
        watch = BudgetWatch(cluster.store)
        report = rebalance(cluster, folder)
        cluster.settle()
        assert (report.end, report.failed) == (End.COMPLETE, 0), report.message
        assert evictions(cluster) == report.evicted
        assert all(o.expected for o in report.outcomes), "a replacement landed where the plan has it not"
        assert report.first is not None
        assert report.last is not None
        assert len(report.first.moves) == expected.evictions
        assert report.first.residual_excess == expected.residual
        unlucky = check_each_workload(report)
        assert report.last.excess == expected.residual + unlucky
        if report.last.excess == expected.residual:
            assert counts(report.last, after=False) == counts(report.first, after=True)
        objects = everything(cluster.store)
        assert total_excess(State.of(objects)) == report.last.excess, "the plain judge counts otherwise"
        assert [
            p["metadata"]["name"] for p in cluster.store.list("Pod") if not p["spec"].get("nodeName")
        ] == []
        assert len(cluster.store.list("Pod")) == sum(o["kind"] == "Pod" for o in scenario(name))
        assert watch.broken == []
        assert watch.checked == report.evicted
        again = rebalance(cluster, folder)
        assert (again.end, again.evicted, evictions(cluster)) == (End.COMPLETE, 0, report.evicted)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, SEEDS))]
)
@pytest.mark.parametrize("name", SMALL)
def test_a_broken_cluster_is_mended_as_predicted(name: str, seed: int, tmp_path: Path) -> None:
    check(name, seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(max(SEEDS // 10, 1)))
def test_so_is_a_large_one(seed: int, tmp_path: Path) -> None:
    check("random_cluster", seed, tmp_path)
