"""`pause -n` of a namespace that has no rebalancer: in an incident -n is mostly where the workloads are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebalancer.policy.annotations import PAUSE
from tests.sandbox.commands.test_pause import binding, brake, lease, said
from tests.support.build import objects
from tests.support.processes.command import call, moving
from tests.support.processes.daemon_process import evictions
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer
from tests.support.sandbox.authority import User

HERE = "default"
"""Where the workloads are."""
NAMESPACED = {
    "apiGroups": ["", "coordination.k8s.io"],
    "resources": ["configmaps", "leases"],
    "verbs": ["*"],
    "namespaces": [HERE],
}


def pauses(server: ApiServer) -> str | None:
    """What the namespace says of a pause."""
    meta = server.store.get("Namespace", HERE, None)["metadata"]
    value: str | None = (meta.get("annotations") or {}).get(PAUSE)
    return value


@pytest.mark.parametrize("sign", ["brake", "lease", "binding", "stray brake here"])
def test_what_is_paused_is_the_namespace_where_the_rebalancer_is_elsewhere(tmp_path: Path, sign: str) -> None:
    with ApiServer(
        [*objects(*SKEWED), *([binding("ops")] if sign == "binding" else [])], brake=False
    ) as server:
        brake(server, "ops", "rebalancer-brake")
        if sign in ("lease", "binding"):
            server.store.delete("ConfigMap", "rebalancer-brake", "ops")
        if sign == "stray brake here":
            brake(server, HERE, "rebalancer-brake")
        if sign in ("lease", "stray brake here"):
            lease(server, "ops", holder="d", lasts=3600)
        done = call(server, tmp_path, "pause", "-n", HERE, "--reason", "incident 4711")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(
            f"evictions in namespace {HERE} are paused until `rebalancer resume -n {HERE}`: "
        )
        assert pauses(server) == "incident 4711"
        if sign != "stray brake here":
            assert {m["metadata"]["namespace"] for m in server.store.list("ConfigMap")} <= {"ops"}
        over = call(server, tmp_path, "resume", "-n", HERE)
        assert (over.returncode, over.stderr) == (0, "")
        assert f"namespace {HERE} (it said: incident 4711)" in over.stdout
        assert pauses(server) is None


def test_nothing_goes_there_until_it_is_resumed(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        brake(server, "ops", "rebalancer-brake")
        assert call(server, tmp_path, "pause", "-n", HERE).returncode == 0
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 0
        assert call(server, tmp_path, "resume", "-n", HERE).returncode == 0
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4


def test_who_may_do_neither_is_told_both_commands_and_that_nothing_is_paused(tmp_path: Path) -> None:
    """A team sees its own namespace only, and may make a ConfigMap there, which nobody would read."""
    with ApiServer(
        objects(*SKEWED), brake=False, tokens={"t": User("team")}, rules={"team": [NAMESPACED]}
    ) as server:
        brake(server, "ops", "rebalancer-brake")
        done = call(server, tmp_path, "pause", "-n", HERE, token="t")
        assert (done.returncode, done.stdout) == (4, "")
        assert f"kubectl annotate namespace {HERE} rebalancer.io/pause=true" in done.stderr
        assert "`rebalancer pause` pauses everything" in done.stderr
        assert {m["metadata"]["namespace"] for m in server.store.list("ConfigMap")} == {"ops"}


@pytest.mark.parametrize("sign", ["brake", "binding", "left lease"])
def test_a_sign_that_nobody_leads_by_is_no_rebalancer_and_the_namespace_is_paused_with_it(
    tmp_path: Path, sign: str
) -> None:
    """An admin of the namespace sees that alone; what was left there is looked at by nobody."""
    names = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch", "update"]}
    all_seen = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    rules = {"team": [all_seen] if sign == "binding" else [NAMESPACED, names]}
    things = [*objects(*SKEWED), *([binding(HERE)] if sign == "binding" else [])]
    with ApiServer(things, brake=False, tokens={"t": User("team")}, rules=rules) as server:
        brake(server, "ops", "rebalancer-brake")
        lease(server, "ops", holder="d", lasts=3600)
        brake(server, HERE, "rebalancer-brake")
        if sign == "left lease":
            lease(server, HERE, holder="laptop", age=90000, lasts=1)
        done = call(server, tmp_path, "pause", "-n", HERE, token="t")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"evictions in namespace {HERE} are paused" in done.stdout
        assert "what was sent before may evict for 30 s more" in done.stdout
        assert pauses(server) == said(server) == "true"
        over = call(server, tmp_path, "resume", "-n", HERE, token="t")
        assert (over.returncode, over.stderr) == (0, "")
        assert pauses(server) is said(server) is None


def test_resuming_all_leaves_the_pause_of_a_namespace_that_has_a_mere_brake_and_says_so(
    tmp_path: Path,
) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        brake(server, "ops", "rebalancer-brake")
        assert call(server, tmp_path, "pause", "-n", HERE).returncode == 0
        over = call(server, tmp_path, "resume")
        assert (over.returncode, pauses(server), said(server)) == (4, "true", None)
        assert f"namespace {HERE} pauses, too; `rebalancer resume -n {HERE}` ends it" in over.stderr


@pytest.mark.parametrize("more", [(), ("--domain", "zone=b")], ids=["a lease that runs out", "a domain"])
def test_nobody_there_has_shown_that_it_saw_the_pause(tmp_path: Path, more: tuple[str, ...]) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        brake(server, "ops", "rebalancer-brake")
        if not more:
            lease(server, HERE, holder="laptop", lasts=1)
        done = call(server, tmp_path, "pause", "-n", HERE, *more)
        assert done.returncode == 4
        assert f"nobody in namespace {HERE} has shown that it saw the pause" in done.stderr
        assert done.stdout.startswith("the brake is set until ")
        assert pauses(server) is None


def test_a_pause_of_the_namespace_of_the_rebalancer_holds_it_and_is_lifted_with_the_others(
    tmp_path: Path,
) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        brake(server, "ops", "rebalancer-brake")
        pause = {"annotations": {PAUSE: "incident"}}
        server.store.modify("Namespace", "ops", None, lambda o: o["metadata"].update(pause))
        held = call(server, tmp_path, "once", "--execute")
        assert evictions(server) == 0
        assert "namespace ops is paused: rebalancer.io/pause=incident" in held.stdout
        over = call(server, tmp_path, "resume")
        assert (over.returncode, over.stderr) == (0, "")
        assert over.stdout == "the pause is over: namespace ops (it said: incident)\n"
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4


@pytest.mark.parametrize("more", [("--undo",), ("--domain", "zone=b")])
def test_what_a_namespace_cannot_be_told_is_a_wrong_use(tmp_path: Path, more: tuple[str, ...]) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        brake(server, "ops", "rebalancer-brake")
        done = call(server, tmp_path, "pause", "-n", HERE, *more)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"no rebalancer is in namespace {HERE}" in done.stderr
        assert pauses(server) is None
