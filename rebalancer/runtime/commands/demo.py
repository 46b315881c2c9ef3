"""The daemon on the embedded cluster, until nothing is left to do."""

from __future__ import annotations

import logging
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.outcome import CycleReport, End, Observer, Observers
from rebalancer.runtime.commands.remembered import HistoryLine, history_of
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.daemon.schedule import Daemon
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions, memory_of
from rebalancer.runtime.live.once import run_once
from rebalancer.runtime.live.places import places_to_act
from rebalancer.sandbox import Cluster
from rebalancer.sandbox.cluster import after_outage
from rebalancer.settings import load_settings, plan_options

GRACE = 1.5
READY_AFTER = (1.5, 4.0)
"""Seconds from a pod's place to Ready, at random in between: a real cluster takes tens of seconds."""
INTERVAL = 2.0
_LIMITS = SettleLimits(ready=30.0, pending=10.0, serving=2.0, poll=0.1)


class DemoResult(Struct, frozen=True, eq=False):
    """All cycles in order. `converged`: the last one found nothing to do, and no pod is left Pending.
    `history`: what the ledger tells, oldest first."""

    cycles: tuple[CycleReport, ...]
    pending: tuple[str, ...]
    converged: bool
    interrupted: bool
    history: tuple[HistoryLine, ...] = ()

    @property
    def evicted(self) -> int:
        """Pods evicted in all."""
        return sum(c.evicted for c in self.cycles)


@contextmanager
def demo_cluster(seed: int) -> Iterator[tuple[Cluster, Path]]:
    """The cluster after the outage, running, and a kubeconfig for it that kubectl takes too."""
    rng = random.Random(seed)
    cluster = Cluster(after_outage(), seed=seed, ready_after=lambda _: rng.uniform(*READY_AFTER), grace=GRACE)
    with tempfile.TemporaryDirectory(prefix="rebalancer-demo-") as folder, cluster:
        cluster.settle()
        yield cluster, cluster.kubeconfig(Path(folder) / "kubeconfig")


def run_demo(
    cluster: Cluster,
    kubeconfig: Path,
    *,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
    timeout: float = 55.0,
) -> DemoResult:
    """Runs the daemon as `rebalancer run --execute` does; returns when a cycle has found nothing to do, when
    one has failed, when `stop` is set, or after `timeout` seconds. Brake, ledger and events are there."""
    connection = Connection(ClusterOptions(kubeconfig=str(kubeconfig)))
    clock = SystemClock(stop)
    settings = load_settings(env={}, flags={"evictions": {"enabled": True, "method": "auto"}})
    places = places_to_act(settings, connection, wait=clock.wait)
    # Somebody watches, so nothing has to wait; what is evicted is written down as ever.
    memory = memory_of(settings, connection, places, clock, attended=True)
    live = LiveOptions(
        execute=True, settle=_LIMITS, brake=places.brake, events="all", planning=plan_options(settings)
    )
    cycles: list[CycleReport] = []
    end = threading.Event()
    given_up = threading.Timer(timeout, _both(end.set, stop.set))
    given_up.daemon = True

    def cycle(number: int) -> None:
        try:
            report = run_once(
                connection, live, clock=clock, observers=observers, number=number, around=around
            )
        except Exception:
            # A daemon would try again; here no network is to blame.
            end.set()
            stop.set()
            raise
        cycles.append(report)
        if report.end is End.COMPLETE and not report.evicted:
            end.set()
            stop.set()

    # That a cycle takes longer than the interval is no news here.
    logging.getLogger("apscheduler.scheduler").setLevel(logging.ERROR)
    cache = WatchCache(connection).start()
    around = Surroundings(cache=cache, memory=memory)
    try:
        cache.wait_ready(timeout)
        given_up.start()
        Daemon(cycle, interval=INTERVAL, stop=stop, observer=Observers(observers)).run()
    finally:
        given_up.cancel()
        memory.leave()
        cache.stop()
        connection.close()
    pending = tuple(
        f"{p['metadata']['namespace']}/{p['metadata']['name']}"
        for p in cluster.store.list("Pod", where=lambda p: not p["spec"].get("nodeName"))
    )
    last = cycles[-1] if cycles else None
    done = last is not None and last.end is End.COMPLETE and not last.evicted
    history = tuple(history_of(memory.ledger, ()))
    return DemoResult(tuple(cycles), pending, done and not pending, not end.is_set(), history)


def _both(*calls: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run
