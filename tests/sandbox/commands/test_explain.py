"""What `rebalancer explain` says of a pod is what then happens to it on a live cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.sandbox.objects import condition
from tests.support.build import pod
from tests.support.clusters.scenarios import scenario
from tests.support.sandbox import ApiServer, Cluster
from tests.support.scheduler.plain import Json


def explained(server: ApiServer, folder: Path, name: str) -> Json:
    config = server.kubeconfig(folder / "config")
    done = CliRunner().invoke(app, ["explain", name, "-o", "json", "--kubeconfig", str(config)])
    assert done.exit_code == 0, done.output
    found: Json = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_a_waiting_pod_goes_to_one_of_the_winners(seed: int, tmp_path: Path) -> None:
    things = [*scenario("zone_outage"), *pod("svc7-new").labels(app="svc7").spread("zone", 1).build()]
    with ApiServer(things) as server:
        found = explained(server, tmp_path, "svc7-new")
    assert 1 < len(found["winners"]) < found["nodes"]
    with Cluster(things, seed=seed) as cluster:
        cluster.settle()
        placed = cluster.store.get("Pod", "svc7-new", "default")
    assert placed["spec"]["nodeName"] in found["winners"]


def test_a_pod_that_fits_nowhere_is_told_in_the_schedulers_words(tmp_path: Path) -> None:
    things = [*scenario("zone_outage"), *pod("huge").requests(cpu="64").build()]
    with Cluster(things) as cluster:
        cluster.settle()
        told = condition(cluster.store.get("Pod", "huge", "default"), "PodScheduled") or {}
        found = explained(cluster.server, tmp_path, "huge")
    assert found["message"] == found["recorded"] == told["message"]
