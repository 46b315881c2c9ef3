"""A month on the engine: what happens, and what each variant makes of it."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.month import Event, Kind, Lived, Variant, World, events, measure, play
from rebalancer.planner import PlanOptions, plan
from rebalancer.report.simulated import build_month, month_table, to_html
from tests.support.build import decoded, node, snapshot, workload
from tests.support.clusters.ordinary import ordinary

month: Any = import_module("rebalancer.month")
FILE = str(Path(__file__).parents[2] / "scenarios" / "scale_down.json.gz")


@cache
def lived(variant: Variant, seed: int = 1) -> Lived:
    return again(variant, seed)


def again(variant: Variant, seed: int = 1) -> Lived:
    return play(decoded(ordinary(3)), PlanOptions(), variant, days=4, draw=Random(seed).random)


def test_a_month_is_the_same_for_every_variant_and_every_time() -> None:
    one, other = lived(Variant.NOTHING), lived(Variant.BOTH)
    assert one.events == other.events
    assert one == again(Variant.NOTHING)
    assert one != lived(Variant.NOTHING, seed=2)
    assert (one.evictions, len(one.losses)) == (0, 4)


def test_evictions_mend_and_prevention_needs_fewer() -> None:
    nothing, evicting, preventing, both = map(lived, Variant)
    assert 0 < evicting.excess_hours < nothing.excess_hours
    assert preventing.excess_hours < nothing.excess_hours
    assert preventing.evictions == nothing.evictions == 0
    assert both.evictions < evicting.evictions


def test_beside_prevention_no_eviction_follows_a_scale_in_or_a_rollout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A month of 25 workloads at the usual rates: what is evicted follows replaced nodes and outages, and is
    what the lower bound asks; 97 of 100 hours of excess are gone."""
    cluster = decoded(ordinary(25, 101))
    worsened, asked = set[str](), [0]
    happens, cycle = month._happens, month._cycle

    def happened(world: World, event: Event) -> None:
        before = measure(world).excess
        happens(world, event)
        if measure(world).excess > before:
            worsened.add(event.kind)

    def cycled(world: World, options: PlanOptions) -> int:
        asked[0] += plan(world.snapshot(), options).lower_bound
        return int(cycle(world, options))

    def lived_through(variant: Variant) -> Lived:
        return play(cluster, PlanOptions(), variant, days=30, draw=Random(101).random)

    nothing = lived_through(Variant.NOTHING)
    monkeypatch.setattr(month, "_happens", happened)
    monkeypatch.setattr(month, "_cycle", cycled)
    both = lived_through(Variant.BOTH)
    assert worsened <= {Kind.REPLACE, Kind.OUTAGE}
    assert 0 < both.evictions <= asked[0]
    assert both.excess_hours <= 0.03 * nothing.excess_hours


def test_an_outage_comes_with_its_return() -> None:
    found = events(Random(3).random, 24.0 * 300, [], [], ["a", "b"])
    kinds = [e.kind for e in found]
    assert kinds.count(Kind.OUTAGE) - kinds.count(Kind.RETURN) in (0, 1)
    assert found == sorted(found)


def world(*, prevented: bool = False) -> World:
    machines = [node(f"{z}-0").zone(z) for z in "abc"]
    web = workload("web").spread("zone").placed({"a-0": 2, "b-0": 2, "c-0": 2})
    return World(snapshot(machines, web), None, prevented=prevented)


def spread(of: World) -> list[int]:
    counts = dict.fromkeys("abc", 0)
    for pod in of.pods.values():
        if pod.node_name:
            counts[pod.node_name[0]] += 1
    return list(counts.values())


def test_a_steered_scale_in_stays_in_balance() -> None:
    steered = world(prevented=True)
    for share in (0.84, 0.67, 0.5):
        steered.scale("ReplicaSet/default/web", share)
        assert measure(steered).excess == 0
    assert spread(steered) == [1, 1, 1]


def test_an_outage_moves_pods_and_the_zone_comes_back_empty() -> None:
    lost = world()
    lost.fail("a")
    lost.retry()
    assert spread(lost)[0] == 0
    lost.back("a")
    lost.retry()
    assert sum(spread(lost)) == 6
    assert plan(lost.snapshot()).excess == measure(lost).excess


def test_a_node_is_replaced_by_an_empty_one() -> None:
    replaced = world()
    replaced.replace_node("b-0")
    replaced.retry()
    assert sorted(replaced.nodes) == ["a-0", "b-0", "c-0"]
    assert sum(spread(replaced)) == 6


def test_a_rollout_replaces_all_pods() -> None:
    for prevented in (False, True):
        rolled = world(prevented=prevented)
        before = set(rolled.pods)
        rolled.roll_out("ReplicaSet/default/web")
        assert not before & set(rolled.pods)
        assert sum(spread(rolled)) == 6
    assert spread(rolled) == [2, 2, 2]


def test_the_command() -> None:
    done = CliRunner().invoke(
        app, ["simulate", "--snapshot", FILE, "--days", "1", "--seed", "7", "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert [v["variant"] for v in shown["variants"]] == ["nothing", "evictions", "prevention", "both"]
    wrong = CliRunner().invoke(app, ["simulate", "--snapshot", FILE, "--days", "2", "--drain", "a-0"])
    assert wrong.exit_code == 2


def test_the_formats() -> None:
    made = build_month([lived(v) for v in Variant], source="here", seed=1, days=4)
    assert "WITHOUT AN EVICTION" in month_table(made)
    page = to_html(made)
    assert page.count('<path class="both"') == 2
    assert "<script" not in page
