"""A snapshot of a file gives the plan that the file gave, as often as it is taken, redacted or not."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.manifests import read_snapshot
from rebalancer.manifests.writing import learn
from rebalancer.planner import plan
from tests.property.snapshots.test_redact import AsIs, told
from tests.support.clusters.random_clusters import random_cluster
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.scheduler.plain import Json

NOW = 1.8e9


def taken(source: Path, target: Path, *more: str) -> Path:
    done = CliRunner().invoke(app, ["snapshot", "--snapshot", str(source), "-o", str(target), *more])
    assert done.exit_code == 0, done.output
    return target


def check(objects: list[Json], folder: Path) -> None:
    dump = folder / "kubectl.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    first = read_snapshot([dump], now=NOW)
    wanted = plan(first)
    again = taken(taken(dump, folder / "once.json.gz"), folder / "twice.json")
    redacted = taken(again, folder / "redacted.json", "--redact")
    for file, naming in ((again, AsIs()), (redacted, learn(objects))):
        found = read_snapshot([file], now=NOW)
        assert (found.kinds, found.refused) == (first.kinds, first.refused)
        assert told(plan(found), AsIs()) == told(wanted, naming)


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"random_cluster"}))
def test_a_scenario_is_planned_alike_after_a_snapshot(name: str, tmp_path: Path) -> None:
    check(scenario(name), tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_a_random_cluster_is_planned_alike_after_a_snapshot(seed: int, tmp_path: Path) -> None:
    check(random_cluster(Random(seed), "small", pending=seed % 2 == 0), tmp_path)
