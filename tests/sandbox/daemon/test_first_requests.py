"""A daemon whose first requests fail waits for what passes, and ends in a clear error where nothing does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.kube.connection import Backoff
from rebalancer.kube.errors import UnauthorizedError
from rebalancer.outcome import Observers
from rebalancer.runtime.daemon.service import Reloader, serve
from rebalancer.settings import load_settings
from tests.support.build import objects
from tests.support.processes.command import BIN, call, environment
from tests.support.processes.daemon_process import daemon, free_port, get
from tests.support.processes.forked import run
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer, Cut, Garbage, Gone, Reply
from tests.support.sandbox.faults import Action
from tests.support.servers.api import QUICK, connected
from tests.support.waiting import until

PASSING = [
    ("the connection is lost before the answer", Cut("before")),
    ("the answer breaks off", Cut("body", body_bytes=25)),
    ("the answer is garbage", Garbage()),
    ("the server asks for patience", Reply(429, headers={"Retry-After": "0"})),
    ("the server fails", Reply(500)),
    ("the server is being started", Reply(503)),
    ("the server refuses for a moment, with nothing to be said for it", Gone()),
]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


class Begun(threading.Thread):
    """A daemon that makes its first requests."""

    def __init__(self, server: ApiServer, patient: Backoff = QUICK) -> None:
        super().__init__()
        self.stop, self.port, self.error = threading.Event(), free_port(), ""
        self.server, self.patient, self.cycles = server, patient, list[object]()

    def run(self) -> None:
        flags = {"health": {"address": f"127.0.0.1:{self.port}"}, "schedule": {"interval": "1s"}}
        settings = load_settings(env={}, flags=flags)
        reloader = Reloader(settings, lambda: settings, file=None, observer=Observers())
        with connected(self.server) as connection:
            try:
                serve(
                    connection,
                    reloader,
                    stop=self.stop,
                    observers=[],
                    cycle=self.cycles.append,
                    patient=self.patient,
                )
            except UnauthorizedError as e:
                self.error = str(e)

    def end(self) -> None:
        """As SIGTERM."""
        self.stop.set()
        self.join(120)
        assert not self.is_alive()


@pytest.mark.parametrize(("sentence", "fault"), PASSING, ids=[s for s, _ in PASSING])
def test_it_begins_when_the_api_server_answers(
    server: ApiServer, caplog: pytest.LogCaptureFixture, sentence: str, fault: Action
) -> None:
    del sentence
    server.faults.add(fault, verb="list", resource="configmaps", times=2)
    d = Begun(server)
    with caplog.at_level(logging.WARNING):
        d.start()
        until(lambda: d.cycles)
        d.end()
    told = [r.message for r in caplog.records if "the daemon cannot begin, and tries again in" in r.message]
    assert len(told) == 2, "one line for each try"
    assert all(line.startswith("list configmaps: ") for line in told)


def test_it_is_not_ready_and_alive_as_long_as_nobody_answers_and_a_stop_ends_it(server: ApiServer) -> None:
    server.faults.add(Reply(503), resource="configmaps")
    d = Begun(server, Backoff(first=1000.0, cap=1000.0))
    d.start()
    until(lambda: "the daemon has not begun: list configmaps" in get(d.port, "/readyz")[1])
    assert get(d.port, "/readyz")[0] == 503
    assert get(d.port, "/healthz") == (200, "ok\n")
    d.end()
    assert d.cycles == []
    assert d.error == ""


def test_credentials_that_are_refused_for_good_are_an_error(server: ApiServer) -> None:
    fault = server.faults.add(Reply(401), resource="configmaps")
    d = Begun(server)
    d.start()
    d.join(120)
    assert "list configmaps" in d.error
    assert fault.hits == 3 * 2, "each try refreshes the credentials once"


def test_credentials_that_are_refused_for_a_moment_are_not(server: ApiServer) -> None:
    server.faults.add(Reply(401), resource="configmaps", times=4)
    d = Begun(server)
    d.start()
    until(lambda: d.cycles)
    d.end()


@pytest.mark.parametrize("after", [{}, {"Retry-After": "9999999999"}], ids=["", "asked for centuries"])
def test_as_a_process_it_says_what_is_wrong_and_what_to_do_and_a_signal_ends_it(
    server: ApiServer, tmp_path: Path, after: dict[str, str]
) -> None:
    server.faults.add(Reply(503, headers=after), resource="configmaps")
    with daemon(server, tmp_path) as d:
        until(lambda: "the daemon cannot begin, and tries again in" in d.said())
        assert d.end() == 0
        assert "Traceback" not in d.said()


def test_once_tries_again_too(server: ApiServer, tmp_path: Path) -> None:
    server.faults.add(Cut("body", body_bytes=25), verb="list", resource="configmaps", times=2)
    done = call(server, tmp_path, "once")
    assert done.returncode == 0, done.stderr


def test_once_says_at_once_that_a_name_does_not_resolve(server: ApiServer, tmp_path: Path) -> None:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    kubeconfig.write_text(kubeconfig.read_text().replace("127.0.0.1", "nobody.invalid"))
    done = run([str(BIN), "once", "--kubeconfig", str(kubeconfig)], env=environment())
    assert done.returncode == 1
    assert "the server's name does not resolve" in done.stderr
    assert done.stderr.count("\n") == 1
