"""`rebalancer room`: the advice, its effect in the embedded cluster, and what --apply sends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.errors import UserError
from rebalancer.planner import PlanOptions, plan
from rebalancer.report.room.buffers import to_buffers
from rebalancer.runtime.commands.room import apply_buffers, missing_room
from tests.support.build import decoded
from tests.support.clusters.scenarios import scenario
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.api import connected

ROOT = Path(__file__).parents[3]
FILE = str(ROOT / "tests" / "scenarios" / "one_slot.json.gz")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--snapshot", FILE])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_node_that_it_names_mends_it_in_the_embedded_cluster() -> None:
    room = json.loads(run("room", "-o", "json"))
    assert (room["nodes"], room["least"], room["left"]) == (1, 0, 0)
    command = run("room").splitlines()[-1].partition("rebalancer ")[2].split()
    simulated = json.loads(run(*command, "-o", "json"))
    assert simulated["after"]["excess"] == 0


def test_every_format_of_the_report_has_it() -> None:
    sentence = run("room").splitlines()[0]
    assert sentence in " ".join(run("report").split())
    assert json.loads(run("report", "-o", "json"))["room"]["nodes"] == 1
    assert "Room that is missing" in run("report", "-o", "markdown")
    assert sentence in run("report", "-o", "html")


def test_where_buffers_are_not_known_nothing_is_created() -> None:
    snapshot = decoded(scenario("one_slot"))
    room = missing_room(snapshot, PlanOptions(), plan(snapshot), asked=True)
    assert room is not None
    objects, _ = to_buffers(room)
    with ApiServer([]) as server, connected(server) as connection:
        with pytest.raises(UserError, match=r"the cluster has no capacitybuffers.autoscaling.x-k8s.io"):
            list(apply_buffers(connection, objects))
        assert [a.verb for a in server.accesses] == ["patch"]
        server.faults.add(Reply(200), path="capacitybuffers|podtemplates")
        assert [line.split("/")[0] for line in apply_buffers(connection, objects)] == [
            "applied: CapacityBuffer",
            "applied: PodTemplate",
        ]
        asked = {(a.verb, a.group, a.resource) for a in server.accesses}
    role = yaml.safe_load((ROOT / "deploy" / "prevention" / "room-role.yaml").read_text())
    granted = {(v, g, r) for rule in role["rules"] for v in rule["verbs"] for g in rule["apiGroups"]
               for r in rule["resources"]}  # fmt: skip
    assert asked <= granted
