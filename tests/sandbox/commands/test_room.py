"""`rebalancer room`: the advice, its effect in the embedded cluster, and what --apply sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.errors import UserError
from rebalancer.kube.patch.capacity_buffers import MANAGER
from rebalancer.planner import PlanOptions, plan
from rebalancer.report.room.buffers import to_buffers
from rebalancer.runtime.commands.room import apply_buffers, left_over, missing_room
from tests.support.build import decoded, nodes, objects, workload
from tests.support.clusters.scenarios import scenario
from tests.support.sandbox import ApiServer, Reply
from tests.support.sandbox.custom import CAPACITY_BUFFERS, served
from tests.support.scheduler.plain import Json
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


def advised() -> list[Json]:
    """The buffer and the template that are asked for."""
    snapshot = decoded(scenario("one_slot"))
    room = missing_room(snapshot, PlanOptions(), plan(snapshot), asked=True)
    assert room is not None
    return to_buffers(room)[0]


def granted() -> set[tuple[str, str, str]]:
    role = yaml.safe_load((ROOT / "deploy" / "prevention" / "room-role.yaml").read_text())
    return {(v, g, r) for rule in role["rules"] for v in rule["verbs"] for g in rule["apiGroups"]
            for r in rule["resources"]}  # fmt: skip


def asked(server: ApiServer) -> set[tuple[str, str, str]]:
    return {(a.verb, a.group, a.resource) for a in server.accesses}


def test_where_buffers_are_not_known_nothing_is_created() -> None:
    with ApiServer([]) as server, connected(server) as connection:
        with pytest.raises(UserError, match=r"the cluster has no capacitybuffers.autoscaling.x-k8s.io"):
            list(apply_buffers(connection, advised()))
        assert [a.verb for a in server.accesses] == ["patch"]
        server.faults.add(Reply(200), path="capacitybuffers|podtemplates")
        assert [line.split("/")[0] for line in apply_buffers(connection, advised())] == [
            "applied: CapacityBuffer",
            "applied: PodTemplate",
        ]
        assert asked(server) <= granted()


# -- what is not needed any more


@pytest.fixture
def buffers() -> Iterator[None]:
    with served(CAPACITY_BUFFERS):
        yield


def there(obj: Json, name: str, *by: str, namespace: str = "default", **labels: str) -> Json:
    """An object like this one, which this command or somebody else has applied."""
    metadata = {
        **obj["metadata"],
        "name": name,
        "namespace": namespace,
        "labels": {**obj["metadata"]["labels"], **labels},
        "managedFields": [{"manager": m, "operation": "Apply"} for m in by or (MANAGER,)],
    }
    return {**obj, "metadata": metadata}


def kept_of(server: ApiServer) -> set[str]:
    """kind/namespace/name of what is in the cluster."""
    return {
        f"{o['kind'][0]}/{o['metadata']['namespace']}/{o['metadata']['name']}"
        for kind in ("CapacityBuffer", "PodTemplate")
        for o in server.store.list(kind)
    }


BOTH_OF = ("CapacityBuffer/default/rebalancer-room-2", "PodTemplate/default/rebalancer-room-2")


@pytest.mark.usefixtures("buffers")
def test_what_it_applied_and_is_not_needed_any_more_is_removed_and_nothing_else() -> None:
    buffer, template = advised()
    things = [
        *(there(o, name) for o in (buffer, template) for name in ("rebalancer-room-1", "rebalancer-room-2")),
        there(buffer, "from-git", "argocd"),
        there(buffer, "shared", MANAGER, "argocd"),
        there(buffer, "mine", **{"app.kubernetes.io/managed-by": "me"}),
        there(buffer, "rebalancer-room-1", namespace="elsewhere"),
    ]
    with ApiServer(things) as server, connected(server) as c:
        before = kept_of(server)
        for more, say in (
            ({"kept": "", "remove": False}, "not needed any more: {}; --apply removes it"),
            ({"kept": "why", "remove": True}, "not asked for any more, but kept: {}: why"),
        ):
            lines = list(left_over(c, [buffer, template], namespaces=["default"], **more))  # type: ignore[arg-type]
            assert {say.format(name) for name in BOTH_OF} < set(lines)
            assert kept_of(server) == before
        lines = list(left_over(c, [buffer, template], namespaces=["default"], kept="", remove=True))
        assert sorted(lines) == [
            *(
                f"not asked for any more, and applied by somebody else, so it stays: CapacityBuffer/{n}"
                for n in ("default/from-git", "default/shared")
            ),
            *(f"removed, as it is not needed any more: {name}" for name in BOTH_OF),
        ]
        assert before - kept_of(server) == {"C/default/rebalancer-room-2", "P/default/rebalancer-room-2"}
        list(left_over(c, [], namespaces=(), kept="", remove=True))
        assert kept_of(server) == {"C/default/from-git", "C/default/mine", "C/default/shared"}
        assert asked(server) <= granted()


@pytest.mark.usefixtures("buffers")
def test_without_the_right_to_list_them_only_apply_says_so() -> None:
    with ApiServer([]) as server, connected(server) as c:
        server.faults.add(Reply(403), resource="capacitybuffers")
        assert list(left_over(c, [], namespaces=(), kept="", remove=False)) == []
        (line,) = left_over(c, [], namespaces=(), kept="", remove=True)
    assert "is not known" in line
    assert "capacitybuffers" in line


@pytest.mark.usefixtures("buffers")
def test_the_command_names_them_and_with_apply_removes_them(tmp_path: Path) -> None:
    """Once the plan has been carried out: while it has evictions, the room is to be used."""
    left = [there(o, "rebalancer-room-1") for o in advised()]
    for placed, stay in (({"a-0": 3, "b-0": 1}, True), ({"a-0": 2, "b-0": 2}, False)):
        web = workload("web").spread("zone", 1).placed(placed)
        with ApiServer([*objects(*nodes(a=1, b=1), web), *left]) as server:
            config = str(server.kubeconfig(tmp_path / "config"))
            said = CliRunner().invoke(app, ["room", "--kubeconfig", config])
            assert said.exit_code == 0, said.output
            assert len(kept_of(server)) == 2
            done = CliRunner().invoke(app, ["room", "--apply", "--kubeconfig", config])
            assert done.exit_code == 0, done.output
            assert len(kept_of(server)) == (2 if stay else 0)
        if stay:
            assert done.stderr.count("the plan has 1 eviction that may use its room") == 2
        else:
            assert said.stderr.count("--apply removes it") == done.stderr.count("removed, as") == 2
