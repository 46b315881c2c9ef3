"""`rebalancer once` and `run` as a person types them, against the embedded API server."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.build import objects
from tests.support.processes.command import BIN, call, environment, moving
from tests.support.processes.daemon_process import BRISK, evictions, free_port
from tests.support.processes.forked import Program, run
from tests.support.runs.one_cycle import SKEWED, elsewhere
from tests.support.sandbox import ApiServer, Reply
from tests.support.waiting import until


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


def posts(server: ApiServer) -> int:
    return sum(1 for a in server.accesses if a.verb == "create")


def test_once_without_execute_changes_nothing_and_says_how(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "once")
    assert done.returncode == 0, done.stderr
    assert "nothing was evicted; --execute does it" in done.stdout
    assert posts(server) == 0


def test_dry_run_wins_over_execute_and_configuration(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("evictions: {enabled: true}\n")
    done = call(server, tmp_path, "once", "--execute", "--dry-run", "--config", str(tmp_path / "config.yaml"))
    assert done.returncode == 0, done.stderr
    assert posts(server) == 0


def test_once_execute_balances_and_a_second_run_finds_nothing(server: ApiServer, tmp_path: Path) -> None:
    with moving(server):
        first = call(server, tmp_path, "once", "--execute")
        second = call(server, tmp_path, "once", "--execute")
    assert first.returncode == 0, first.stderr
    assert "complete: every constraint in scope holds" in first.stdout
    assert first.stdout.count("  evicted: ") == 4
    assert second.stdout == "complete: every constraint in scope holds\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_standard_streams_that_were_closed_are_no_bug(closed: str, server: ApiServer, tmp_path: Path) -> None:
    """As some supervisors start it."""
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", str(BIN), "once", "--execute"]
    command += ["--kubeconfig", str(kubeconfig)]
    with moving(server):
        done = subprocess.run(command, stderr=subprocess.PIPE, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert evictions(server) == 4


def test_a_reviewed_plan_is_carried_out(server: ApiServer, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = call(server, tmp_path, "report", "-o", "json", "--output-file", str(plan))
    assert made.returncode == 0, made.stderr
    wanted = {e["pod"] for e in json.loads(plan.read_text())["evictions"]}
    with moving(server):
        done = call(server, tmp_path, "once", "--execute", "--plan", str(plan))
    assert done.returncode == 0, done.stderr
    evicted = {a.name for a in server.accesses if a.subresource == "eviction"}
    assert evicted == wanted


def test_missing_rights_are_exit_code_4_with_the_rule(server: ApiServer, tmp_path: Path) -> None:
    server.faults.add(Reply(403), subresource="eviction")
    done = call(server, tmp_path, "once", "--execute")
    assert done.returncode == 4
    assert '{apiGroups: [""], resources: ["pods/eviction"], verbs: ["create"]}' in done.stdout


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_evictions_remain_is_130_and_says_what_was_done(
    server: ApiServer, tmp_path: Path, signal_: signal.Signals
) -> None:
    command = [str(BIN), "once", "--execute", "--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
    with (
        moving(server),
        Program(command, stdout=subprocess.PIPE, env=environment()) as process,
    ):
        until(lambda: any(a.subresource == "eviction" for a in server.accesses))
        process.send_signal(signal_)
        said, _ = process.communicate(timeout=120)
    assert "stopped: a stop was asked for" in said
    done = sum(a.subresource == "eviction" for a in server.accesses)
    assert 0 < done < 4
    assert f"evicted {done} pod{'s' * (done > 1)}, 0 failed" in said
    assert process.returncode == 130


def test_an_interrupt_before_the_cluster_is_read_is_130(server: ApiServer, tmp_path: Path) -> None:
    asked = server.faults.add(Reply(503), resource="pods")
    command = [str(BIN), "once", "--execute", "--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
    with Program(command, stdout=subprocess.PIPE, env=environment()) as process:
        until(lambda: asked.hits)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.startswith("stopped: a stop was asked for\nevicted 0 pods")


def test_a_mere_misprediction_is_no_error(server: ApiServer, tmp_path: Path) -> None:
    """The replacement runs, but where the plan did not expect it: the cycle ends, and a Job does not fail."""
    with moving(server, choose=elsewhere("a-0")):
        done = call(server, tmp_path, "once", "--execute")
    assert "its replacement went to a-0" in done.stdout, done.stdout
    assert done.returncode == 0, done.stderr


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with ApiServer() as server:
        path = server.kubeconfig(tmp_path / "kubeconfig")
    command = [str(BIN), "once", "--kubeconfig", str(path)]
    done = run(command, env=environment())
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "connection refused" in done.stderr


def test_run_works_until_a_signal_and_ends_well(server: ApiServer, tmp_path: Path) -> None:
    path = server.kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "config.yaml").write_text("evictions: {canary: 0, stabilization: 0s, perSecond: 0}\n")
    command = [str(BIN), "run", "--execute", "--kubeconfig", str(path)]
    command += ["--config", str(tmp_path / "config.yaml")]
    with (
        moving(server),
        Program(command, stderr=subprocess.PIPE, env=environment()) as daemon,
    ):
        until = time.monotonic() + 40
        while time.monotonic() < until and sum(a.subresource == "eviction" for a in server.accesses) < 4:
            time.sleep(0.1)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.stderr is not None
        said = daemon.stderr.read()
        assert daemon.wait(120) == 0, said
    assert "cycle over" in said
    assert "Traceback" not in said
    assert sum(a.subresource == "eviction" for a in server.accesses) == 4


@pytest.mark.parametrize(
    "command", [("once", "--execute", "--yes"), ("run", "--execute")], ids=["once", "run"]
)
def test_a_terminal_that_is_closed_stops_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The kernel sends SIGHUP then, and nobody is left to see what goes on."""
    with ApiServer(objects(*SKEWED)) as server, moving(server):
        (tmp_path / "slow.yaml").write_text(BRISK.replace("perSecond: 0", "perSecond: 0.1"))
        config = [
            "--config",
            str(tmp_path / "slow.yaml"),
            "--kubeconfig",
            str(server.kubeconfig(tmp_path / "k")),
        ]
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)

        def one_gone() -> int:
            with suppress(BlockingIOError):
                os.read(ours, 65536)
            return evictions(server) == 1

        fds = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        with Program([str(BIN), *command, *config], **fds, env=environment()) as process:
            until(one_gone)
            os.close(ours)
            for _ in range(2):  # the kernel's, and the shell's
                process.send_signal(signal.SIGHUP)
            ended = process.wait(timeout=240)
        os.close(theirs)
        assert ended in (0, 130, 120), "120: Python's own, as it cannot write its last line any more"
        assert evictions(server) == 1
        assert [x["spec"].get("holderIdentity", "") for x in server.store.list("Lease")] in ([], [""])


TELLING = """
import sys

told = open(sys.argv.pop(1), "a", buffering=1)

def tell(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        print(*args[1][:2], file=told)
    elif event in ("socket.getaddrinfo", "socket.sendto"):
        print(*args[:2], file=told)

sys.addaudithook(tell)
from rebalancer.cli import main

main()
"""
"""Runs the command line, and writes down whom it connects to."""


@pytest.mark.parametrize("command", ["once", "run"])
def test_where_no_receiver_is_named_it_speaks_to_the_api_server_and_to_nobody_else(
    command: str, server: ApiServer, tmp_path: Path
) -> None:
    told, config = tmp_path / "told", tmp_path / "config.yaml"
    config.write_text(f'{BRISK}\nhealth: {{address: "127.0.0.1:{free_port()}"}}\n')
    arguments: list[str | Path] = [
        command,
        "--execute",
        "--config",
        config,
        "--kubeconfig",
        server.kubeconfig(tmp_path / "k"),
    ]
    env = {k: v for k, v in environment().items() if not k.startswith("OTEL_")}
    whole: list[str | Path] = [sys.executable, "-c", TELLING, told, *arguments]
    with moving(server), subprocess.Popen(whole, stdout=subprocess.PIPE, env=env, text=True) as process:
        until(lambda: evictions(server) == 4)
        if command == "run":
            process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    address = server.url.removeprefix("http://").replace(":", " ")
    assert set(told.read_text().splitlines()) == {address}
