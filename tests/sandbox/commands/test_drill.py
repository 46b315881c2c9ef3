"""The drill says what the embedded cluster's controllers and scheduler come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from tests.sandbox.drill import cluster, differs, outside
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.scheduler.plain import ZONE

FOLDER = Path(__file__).parents[2] / "scenarios"
LARGE = {"random_cluster"}


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - LARGE))
@pytest.mark.parametrize("zone", ["a", "b"])
def test_a_zone_of_a_scenario_fails(name: str, zone: str) -> None:
    assert not differs(scenario(name), ZONE, zone)


@pytest.mark.parametrize("number", range(6))
def test_a_zone_of_a_random_cluster_fails(number: int) -> None:
    listed, zone = cluster(number)
    assert not zone or not differs(listed, ZONE, zone)


@pytest.mark.parametrize("number", [0, 1, *range(3, 20), 83, 230, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_failure_in_any_order_is_in_the_range(number: int) -> None:
    listed, zone = cluster(number)
    assert not zone or not outside(listed, ZONE, zone, seed=number)


def test_simulate_fail_domain_says_the_same() -> None:
    file = str(FOLDER / "protected_pods.json.gz")
    done = CliRunner().invoke(app, ["simulate", "--fail-domain", "zone=b", "--snapshot", file, "-o", "json"])
    said = json.loads(done.stdout)
    simulated = said["changed"]["unplaced"]
    done = CliRunner().invoke(app, ["drill", "--domain", "zone", "--snapshot", file, "-o", "json"])
    drilled = json.loads(done.stdout)
    [failure] = [f for f in drilled["failures"] if f["value"] == "b"]
    assert failure["pending"] + drilled["waiting"] == simulated == 4
    assert (failure["leastPending"], failure["mostPending"]) == (3, 4)
    assert "2 nodes stopped answering, all at once (3–4 pods find no other node" in said["notes"][0]
