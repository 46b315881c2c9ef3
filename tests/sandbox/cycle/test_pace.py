"""How long it takes under the ready-made profiles until a cluster is in balance, in the test's own time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.outcome import End
from rebalancer.planner import plan
from rebalancer.planner.pace import Throttle, pace
from rebalancer.policy.history.ledger import Ledger, Totals
from rebalancer.runtime.live.configured import live_options, memory_rules
from rebalancer.runtime.live.places import Places
from rebalancer.settings import load_settings, plan_options
from tests.support.build import decoded, deployment, node, objects, pdb
from tests.support.clusters.scenarios import scenario
from tests.support.runs.machine import BRAKE, PLACE, Machine
from tests.support.runs.one_cycle import Run
from tests.support.servers.api import QUICK, connected

CONFIG = Path(__file__).parents[3] / "config"
READY = 30
"""Seconds that a replacement needs to become Ready."""
STEP = 5.0
"""Seconds between two acts of the controllers."""
KNOWN = Ledger(totals=Totals(evictions=5, as_predicted=5, in_a_row=5))
"""Of a cluster in which enough evictions have gone as predicted."""
ZONE_IS_BACK = (
    *(node(f"{zone}-{i}").zone(zone).cpu(100) for zone in "abc" for i in range(3)),
    deployment("web")
    .spread("zone", 1)
    .placed({"a-0": 17, "a-1": 17, "a-2": 16, "b-0": 17, "b-1": 17, "b-2": 16}),
    pdb("web", {"app": "web"}, max_unavailable="25%"),
)
"""100 pods, 50, 50 and none: 33 moves."""


def mended(profile: str, things: Iterable[Any]) -> tuple[Run, float]:
    """A cycle of the daemon with the settings of a profile, and the seconds from the first eviction on."""
    settings = load_settings(CONFIG / f"{profile}.yaml", env={})
    hands: dict[str, Any] = {"ready_after": int(READY / STEP), "ends_after": 1, "seconds": STEP}
    with Machine(things, **hands) as m, connected(m.server) as c:
        m.keep(KNOWN)
        places = Places(brake=BRAKE, ledger=PLACE, lease=BRAKE)
        options = replace(live_options(settings, c, places), brake=None, backoff=QUICK)
        run = m.cycle(memory_rules(settings, attended=False), options)
    gone = [o for o in run.report.outcomes if o.evicted]
    return run, max(o.at + o.seconds for o in gone) - min(o.at for o in gone)


def estimate(profile: str, run: Run, things: Iterable[Any]) -> int:
    """Seconds, as the report says before."""
    per_second = load_settings(CONFIG / f"{profile}.yaml", env={}).evictions.per_second
    return pace(run.story.plans[0], decoded(objects(*things)), Throttle(per_second or None)).seconds


@pytest.mark.parametrize(("profile", "waves", "minutes"), [("standard", 3, 5), ("careful", 7, 30)])
def test_33_moves_of_one_deployment_after_its_zone_came_back(profile: str, waves: int, minutes: int) -> None:
    run, seconds = mended(profile, ZONE_IS_BACK)
    assert run.report.end is End.COMPLETE
    assert (run.report.evicted, run.report.plans) == (33, 2)
    assert sorted(run.zones()) == [33, 33, 34]
    assert run.hands.broken_budgets == []
    assert max(m.wave for m in run.story.plans[0].moves) <= waves
    assert seconds < minutes * 60
    assert 0.5 <= seconds / estimate(profile, run, ZONE_IS_BACK) <= 2


@pytest.mark.parametrize(
    ("name", "evictions", "waves", "minutes"),
    [
        ("zone_outage", (27, 27), 3, 2.25),
        # Some of its moves depend on where others land: what they come to is planned anew.
        pytest.param("random_cluster", (107, 112), 6, 8, marks=pytest.mark.nightly),
    ],
)
def test_whole_clusters_are_carried_out_under_standard(
    name: str, evictions: tuple[int, int], waves: int, minutes: float
) -> None:
    things = scenario(name)
    run, seconds = mended("standard", things)
    first, last = run.story.plans[0], run.story.plans[-1]
    pending = [p for p in run.server.store.list("Pod") if not p["spec"].get("nodeName")]
    expected = estimate("standard", run, things)
    print(f"{name}: {run.report.evicted} evictions, {seconds:.0f} s, {expected} s expected")
    assert (run.report.end, last.excess, pending) == (End.COMPLETE, first.residual_excess, [])
    assert evictions[0] <= run.report.evicted <= evictions[1]
    assert max(m.wave for m in first.moves) <= min(waves, first.waves_bound + 1)
    assert run.hands.broken_budgets == []
    assert seconds < minutes * 60
    assert 0.5 <= seconds / expected <= 3


@pytest.mark.parametrize(("name", "moves", "waves"), [("random_cluster", 107, None)])
def test_waves_of_whole_clusters_under_standard(name: str, moves: int, waves: int | None) -> None:
    """`waves`: at most so many; None: one more than budgets, shares and likely moves demand."""
    options = plan_options(load_settings(CONFIG / "standard.yaml", env={}))
    found = plan(decoded(scenario(name)), options)
    assert len(found.allowed) == moves
    assert max(m.wave for m in found.allowed) <= (waves or found.waves_bound + 1)
