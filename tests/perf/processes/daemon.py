"""What `rebalancer run` does, step by step as told on standard input: a process of its own.

`python -m tests.perf.processes.daemon KUBECONFIG` answers each line with what it took, as JSON:

    sync        until the watch cache is ready
    cycle       one cycle without evictions, as the daemon makes them
    seen N      until the cache has version N of the pods
    rest        nothing, for a second: what the process costs at rest
"""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from pathlib import Path

import msgspec

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.outcome import Observers
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.live.assembly import LastPlan, Surroundings
from rebalancer.runtime.live.configured import live_options, memory_of
from rebalancer.runtime.live.once import run_once
from rebalancer.runtime.live.places import places_of
from rebalancer.runtime.observers.log import LogObserver
from rebalancer.runtime.observers.neighbours import NeighbourWatch
from rebalancer.settings import load_settings


class Daemon:
    """The parts of the daemon that work."""

    def __init__(self, kubeconfig: str) -> None:
        self._connection = Connection(ClusterOptions(kubeconfig=kubeconfig))
        self._clock = SystemClock(threading.Event())
        settings = load_settings(None, flags={})
        places = places_of(settings, self._connection, wait=threading.Event().wait)
        self._live = live_options(settings, self._connection, places)
        memory = memory_of(settings, self._connection, places, self._clock, attended=False)
        self._cache = WatchCache(self._connection).start()
        self._around = Surroundings(memory=memory, cache=self._cache, last_plan=LastPlan())
        observer = Observers([LogObserver()])
        self._observers = [observer, NeighbourWatch(observer)]
        self._number = 0

    def do(self, command: str) -> dict[str, object]:
        """What the command came to, beside what it took."""
        word, _, argument = command.partition(" ")
        if word == "sync":
            while not self._cache.wait_ready(1.0):
                pass
        elif word == "cycle":
            self._number += 1
            report = run_once(
                self._connection,
                self._live,
                clock=self._clock,
                observers=self._observers,
                number=self._number,
                around=self._around,
            )
            return {"end": report.end.value, "evictions": len(report.last.moves) if report.last else 0}
        elif word == "seen":
            while self._version() < int(argument):
                time.sleep(0.005)
        elif word == "rest":
            time.sleep(1.0)
        else:
            raise ValueError(command)
        return {}

    def _version(self) -> int:
        return next(int(s.version or 0) for s in self._cache.status() if s.kind == "Pod")


def memory() -> tuple[float, float]:
    """MiB now, and at the highest so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    now = next(line for line in lines if line.startswith("VmRSS:"))
    return int(now.split()[1]) / 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Until standard input ends."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    daemon = Daemon(sys.argv[1])
    began, used = time.perf_counter(), time.process_time()
    for line in sys.stdin:
        if line.strip() != "sync":
            began, used = time.perf_counter(), time.process_time()
        result = daemon.do(line.strip())
        now, peak = memory()
        took = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - used}
        print(msgspec.json.encode({**result, **took, "memory": now, "peak": peak}).decode(), flush=True)


if __name__ == "__main__":
    main()
