"""`run`: cycles at intervals, one at a time, and an end that leaves nothing half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rebalancer.outcome import Observer
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.daemon.schedule import Daemon, stop_on_signals
from rebalancer.runtime.live.once import run_once
from tests.support.build import objects
from tests.support.runs.one_cycle import DRY, SKEWED
from tests.support.sandbox import ApiServer
from tests.support.servers.api import connected


class Errors(Observer):
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)


def test_the_first_cycle_starts_at_once_and_others_follow() -> None:
    stop, numbers = threading.Event(), list[int]()

    def cycle(number: int) -> None:
        numbers.append(number)
        if number == 3:
            stop.set()

    began = time.monotonic()
    Daemon(cycle, interval=0.05, stop=stop, observer=Observer()).run()
    assert numbers == [1, 2, 3]
    assert time.monotonic() - began < 60


def test_two_cycles_are_never_at_work_together_and_missed_ones_are_dropped() -> None:
    stop, at_work, most, numbers = threading.Event(), threading.Lock(), [0], list[int]()

    def cycle(number: int) -> None:
        most[0] = max(most[0], 2 if not at_work.acquire(blocking=False) else 1)
        numbers.append(number)
        time.sleep(0.12)
        at_work.release()
        if number == 3:
            stop.set()

    Daemon(cycle, interval=0.02, stop=stop, observer=Observer()).run()
    assert most == [1]
    assert numbers == [1, 2, 3]


def test_an_error_ends_the_cycle_and_not_the_daemon() -> None:
    stop, observer = threading.Event(), Errors()

    def cycle(number: int) -> None:
        if number == 2:
            stop.set()
            return
        raise ValueError("no")

    Daemon(cycle, interval=0.02, stop=stop, observer=observer).run()
    assert [str(e) for e in observer.errors] == ["no"]


def test_a_signal_waits_for_the_cycle_at_work() -> None:
    stop, ended = threading.Event(), threading.Event()

    def cycle(_: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        stop.wait(5)
        time.sleep(0.1)
        ended.set()

    with stop_on_signals(stop):
        Daemon(cycle, interval=60, stop=stop, observer=Observer()).run()
    assert ended.is_set()


AS_PROCESS_1 = """
import os, signal, threading, time
from rebalancer.runtime.daemon.schedule import stop_on_signals
stop = threading.Event()
with stop_on_signals(stop):
    assert os.getpid() == 1
    os.kill(1, signal.SIGTERM)
    assert stop.wait(30)
    os.kill(1, signal.SIGTERM)
    time.sleep(1)
"""


def test_a_second_signal_ends_process_1_of_a_container_too() -> None:
    """The kernel keeps every signal from it for which it has no handler."""
    alone = ["unshare", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    command = [*alone, sys.executable, "-c", AS_PROCESS_1]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


ALWAYS_AT_THE_LOCK = """
import os, sys, threading
from rebalancer.runtime.daemon.schedule import stop_on_signals
for _ in sys.stdin:  # one process for each line: importing takes longest
    if (child := os.fork()) == 0:
        stop = threading.Event()
        with stop_on_signals(stop):
            print(os.getpid(), flush=True)
            while not stop.wait(0):
                pass
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


def test_a_signal_stops_a_process_that_is_just_looking_at_the_stop() -> None:
    """A handler that asks for a lock that the thread below it holds waits for ever."""
    command = [sys.executable, "-c", ALWAYS_AT_THE_LOCK]
    ends = list[str]()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forking:
        assert forking.stdin is not None
        assert forking.stdout is not None
        for _ in range(10):
            forking.stdin.write("another\n")
            forking.stdin.flush()
            process = int(forking.stdout.readline())
            os.kill(process, signal.SIGTERM)
            kill = threading.Timer(20, os.kill, (process, signal.SIGKILL))
            kill.start()
            ends.append(forking.stdout.readline())
            kill.cancel()
        forking.stdin.close()
    assert ends == ["ended 0\n"] * 10


def test_signal_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(threading.Event()):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_signals_do_what_is_asked_for_and_do_not_stop() -> None:
    stop, reloaded = threading.Event(), threading.Event()
    with stop_on_signals(stop, also={signal.SIGHUP: reloaded.set}):
        os.kill(os.getpid(), signal.SIGHUP)
        assert reloaded.wait(30)
    assert not stop.is_set()


def test_a_dry_daemon_plans_again_and_again_and_sends_nothing() -> None:
    stop = threading.Event()
    clock = SystemClock(stop)
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:

        def cycle(number: int) -> None:
            run_once(c, DRY, clock=clock, number=number)
            if number == 2:
                stop.set()

        Daemon(cycle, interval=0.05, stop=stop, observer=Observer()).run()
        assert not any(a.verb not in ("get", "list") for a in server.accesses)
