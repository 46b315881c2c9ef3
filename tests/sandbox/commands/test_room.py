"""`rebalancer room`: the advice, its effect in the embedded cluster, and what --apply sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.errors import UserError
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.patch.capacity_buffers import MANAGER
from rebalancer.model.snapshot import KindRead
from rebalancer.planner import PlanOptions, plan
from rebalancer.report.room.buffers import to_buffers
from rebalancer.runtime.commands.room import apply_buffers, left_over, missing_room, why_kept
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


def written(manager: str, operation: str = "Apply", **more: str) -> Json:
    """An entry of managedFields."""
    return {"manager": manager, "operation": operation, **more}


def there(obj: Json, name: str, *by: str, namespace: str = "default", **labels: str) -> Json:
    """An object like this one, which this command or somebody else has applied."""
    metadata = {
        **obj["metadata"],
        "name": name,
        "namespace": namespace,
        "labels": {**obj["metadata"]["labels"], **labels},
        "managedFields": [written(m) for m in by or (MANAGER,)],
    }
    return {**obj, "metadata": metadata}


def kept_of(server: ApiServer) -> set[str]:
    """kind/namespace/name of what is in the cluster."""
    return {
        f"{o['kind'][0]}/{o['metadata']['namespace']}/{o['metadata']['name']}"
        for kind in ("CapacityBuffer", "PodTemplate")
        for o in server.store.list(kind)
    }


def nowhere(_: str) -> bool:
    """No namespace is outside the scope."""
    return False


def removing(c: Connection, *asked_for: Json, namespaces: Collection[str] = ()) -> Iterator[str]:
    """`left_over` where nothing keeps them."""
    return left_over(c, asked_for, namespaces=namespaces, outside=nowhere, kept="", remove=True)


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
            lines = list(left_over(c, [buffer, template], namespaces=["default"], outside=nowhere, **more))  # type: ignore[arg-type]
            assert {say.format(name) for name in BOTH_OF} < set(lines)
            assert kept_of(server) == before
        lines = list(removing(c, buffer, template, namespaces=["default"]))
        assert sorted(lines) == [
            *(
                f"not asked for any more, but somebody else manages it, too, so it stays: CapacityBuffer/{n}"
                for n in ("default/from-git", "default/shared")
            ),
            *(f"removed, as it is not needed any more: {name}" for name in BOTH_OF),
        ]
        assert before - kept_of(server) == {"C/default/rebalancer-room-2", "P/default/rebalancer-room-2"}
        list(removing(c))
        assert kept_of(server) == {"C/default/from-git", "C/default/mine", "C/default/shared"}
        assert asked(server) <= granted()


@pytest.mark.usefixtures("buffers")
def test_without_the_right_to_list_them_only_apply_says_so() -> None:
    with ApiServer([]) as server, connected(server) as c:
        server.faults.add(Reply(403), resource="capacitybuffers")
        assert list(left_over(c, [], namespaces=(), outside=nowhere, kept="", remove=False)) == []
        (line,) = removing(c)
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


@pytest.mark.usefixtures("buffers")
def test_what_others_have_written_to_or_own_stays_and_its_template_with_it() -> None:
    buffer, template = advised()
    ours, theirs = written(MANAGER), {"ownerReferences": [{"kind": "App", "name": "x", "uid": "y"}]}
    status = written("cluster-autoscaler", "Update", subresource="status")
    metadata: dict[str, Json] = {
        "nobody-said": {"managedFields": []},
        "edited": {"managedFields": [ours, written("kubectl-edit", "Update")]},
        "client-side": {"managedFields": [ours, written("kubectl-client-side-apply", "Update")]},
        "only-status": {"managedFields": [status]},
        "owned": theirs,
    }
    things = [there(template, name) for name in (*metadata, "ours")]
    for name, more in {
        **metadata,
        "ours": {"managedFields": [ours, written(MANAGER, "Update"), status]},
    }.items():
        made = there(buffer, name)
        things.append({**made, "metadata": {**made["metadata"], **more}})
    with ApiServer(things) as server, connected(server) as c:
        lines = list(removing(c))
        assert kept_of(server) == {f"{kind}/default/{name}" for kind in "CP" for name in metadata}
    assert sum("somebody else manages it" in line for line in lines) == 2 * len(metadata)


def _no_budget(listed: list[Json]) -> list[Json]:
    status = {"disruptionsAllowed": 0, "currentHealthy": 9, "desiredHealthy": 9, "expectedPods": 9}
    return [*listed, {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {}}, "status": {**status, "observedGeneration": 1},
    }]  # fmt: skip


def _scaling_up(listed: list[Json]) -> list[Json]:
    for o in listed:
        if o["kind"] in ("ReplicaSet", "Deployment"):
            o["spec"]["replicas"] += 1
    return listed


def _not_to_be_evicted(listed: list[Json]) -> list[Json]:
    for o in listed:
        if o["kind"] == "Pod":
            o["metadata"].setdefault("annotations", {})["rebalancer.io/evict"] = "false"
    return listed


def _as_it_is(listed: list[Json]) -> list[Json]:
    return listed


@pytest.mark.usefixtures("buffers")
@pytest.mark.parametrize(
    ("change", "config", "named"),
    [
        pytest.param(_no_budget, "{}", True, id="a budget has no room for now"),
        pytest.param(_scaling_up, "{}", True, id="a workload is being scaled up"),
        pytest.param(_not_to_be_evicted, "{}", True, id="pods are not to be evicted"),
        pytest.param(_as_it_is, "policy: {minPodAge: 10000h}", True, id="pods are too young"),
        pytest.param(_as_it_is, "scope: {namespaces: {exclude: [default]}}", False, id="out of scope"),
        pytest.param(_as_it_is, "scope: {namespaces: {include: [other]}}", False, id="not in scope"),
    ],
)
def test_while_an_excess_stays_for_whatever_reason_they_are_kept(
    change: Callable[[list[Json]], list[Json]], config: str, named: bool, tmp_path: Path
) -> None:
    left = [there(o, "rebalancer-room-7") for o in advised()]
    settings = tmp_path / "settings.yaml"
    settings.write_text(config + "\n")
    with ApiServer([*change(deepcopy(list(scenario("one_slot")))), *left]) as server:
        options = ["--config", str(settings), "--kubeconfig", str(server.kubeconfig(tmp_path / "config"))]
        for more in ((), ("--apply",)):
            done = CliRunner().invoke(app, ["room", *more, *options])
            assert done.exit_code == 0, done.output
            assert len(kept_of(server)) == 2
            assert done.stderr.count("an excess of 3 stays, which may want its room") == 2 * named
            assert "emove" not in done.stderr
            assert named or "rebalancer-room" not in done.stderr


@pytest.mark.usefixtures("buffers")
def test_outside_the_scope_they_are_neither_named_nor_removed() -> None:
    with ApiServer([there(o, "rebalancer-room-1") for o in advised()]) as server, connected(server) as c:
        for remove in (False, True):
            assert not list(
                left_over(c, [], namespaces=(), outside=lambda n: n == "default", kept="", remove=remove)
            )
        assert len(kept_of(server)) == 2


def test_pending_pods_and_what_could_not_be_read_keep_them() -> None:
    snapshot = decoded(
        objects(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 1, "b-0": 1}))
    )
    assert why_kept(snapshot, plan(snapshot)) == ""
    waiting = replace(snapshot, pods=tuple(replace(p, node_name="", phase="Pending") for p in snapshot.pods))
    assert why_kept(waiting, plan(snapshot)) == "2 pods Pending may want its room"
    odd = replace(snapshot, reads=(KindRead(kind="Pod", objects=2, unreadable=1),))
    assert why_kept(odd, plan(snapshot)) == "not everything could be read: Pod"
