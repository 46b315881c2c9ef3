"""One cycle over an embedded API server, and everything that was told of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, Eviction, Observer, Outcome, Proposal
from rebalancer.planner.plan import Move, Plan
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.live.once import run_once
from tests.support.build import nodes, objects, workload
from tests.support.sandbox import ApiServer
from tests.support.servers.api import QUICK, FakeTime, connected
from tests.support.servers.hands import Choose, Hands
from tests.support.servers.watching import in_step

EXECUTE = LiveOptions(execute=True, backoff=QUICK, settle=SettleLimits(ready=60, pending=20))


DRY = LiveOptions(backoff=QUICK)
PATIENT = ClusterOptions(connect_timeout=30.0, read_timeout=30.0)
"""For a machine with other things to do: its server may be slow."""


SKEWED = (*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 6}))


class Story(Observer):
    """Everything that was told, in order. `after_plan`: called with the number of each plan."""

    def __init__(self, after_plan: Callable[[int], object] = lambda _: None) -> None:
        self._after_plan = after_plan
        self.told: list[str] = []
        self.plans: list[Plan] = []
        self.outcomes: list[Outcome] = []
        self.rejected: dict[str, ReasonCode] = {}
        self.proposals: list[Proposal] = []

    def on_cycle(self, number: int) -> None:
        self.told.append(f"cycle {number}")

    def on_snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        self.told.append("snapshot")

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        self.told.append(f"plan {len(plan.moves)}")
        self.plans.append(plan)
        self._after_plan(len(self.plans))

    def on_proposal(self, proposal: Proposal) -> None:
        self.proposals.append(proposal)

    def on_rejected(self, namespace: str, pod: str, reason: Any) -> None:
        self.rejected[f"{namespace}/{pod}"] = reason.code

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:  # noqa: ARG002
        self.told.append(f"wave {wave}")

    def on_eviction(self, move: Move, eviction: Eviction) -> None:  # noqa: ARG002
        self.told.append(f"evict {eviction.result.value}")

    def on_outcome(self, outcome: Outcome) -> None:
        self.told.append(outcome.status.value)
        self.outcomes.append(outcome)

    def on_report(self, report: CycleReport) -> None:
        self.told.append(f"end {report.end.value}")


class Run:
    """A server with hands, and what a cycle over it did."""

    def __init__(
        self,
        server: ApiServer,
        options: LiveOptions = EXECUTE,
        *,
        hands: Hands | None = None,
        time: FakeTime | None = None,
        after_plan: Callable[[int], object] = lambda _: None,
        patience: float = 30.0,
        **more: Any,
    ) -> None:
        """`patience`: seconds to wait for the watch; short where a test keeps it from coming."""
        self.hands = hands or Hands(server)
        self.time = time or FakeTime()
        before = self.time.during

        def during(seconds: float) -> None:
            before(seconds)
            self.hands.step(seconds)

        self.time.during = during
        self.story = Story(after_plan)
        with (
            connected(server, options=PATIENT) as c,
            in_time(c, server, options, self.time, more.pop("around", None), patience) as around,
        ):
            self.report = run_once(c, options, clock=self.time, observers=[self.story], around=around, **more)
        self.server = server

    def zones(self, app: str = "web") -> list[int]:
        """Running pods per zone, in order of the zones' names."""
        zone = {
            n["metadata"]["name"]: n["metadata"]["labels"]["topology.kubernetes.io/zone"]
            for n in self.server.store.list("Node")
        }
        count: Counter[str] = Counter(dict.fromkeys(zone.values(), 0))
        for p in self.server.store.list("Pod"):
            if p["metadata"]["labels"].get("app") == app and "deletionTimestamp" not in p["metadata"]:
                assert p["spec"].get("nodeName"), f"{p['metadata']['name']} is Pending"
                count[zone[p["spec"]["nodeName"]]] += 1
        return [count[z] for z in sorted(count)]

    def evictions(self) -> int:
        """Eviction requests that the server answered with 201."""
        return sum(1 for a in self.server.accesses if a.subresource == "eviction" and a.code == 201)


def once(things: Iterable[Any], options: LiveOptions = EXECUTE, **more: Any) -> Run:
    with ApiServer(objects(*things)) as server:
        return Run(server, options, **more)


def elsewhere(to: str) -> Choose:
    """A scheduler that does not do what it should."""
    return lambda _pod, _nodes: to


def cycle(
    server: ApiServer, options: LiveOptions, listen: Iterable[Observer], hands: Hands | None = None
) -> CycleReport:
    """One cycle whose time passes at once."""
    time = FakeTime()
    time.during = (hands or Hands(server)).step
    with connected(server, options=PATIENT) as c, in_time(c, server, options, time) as around:
        return run_once(c, options, clock=time, observers=listen, around=around)


@contextmanager
def in_time(
    connection: Connection,
    server: ApiServer,
    options: LiveOptions,
    time: FakeTime,
    around: Surroundings | None = None,
    patience: float = 30.0,
) -> Iterator[Surroundings]:
    """A watch cache that is up to date whenever a wait is over: time that does not pass must not outrun it.

    Where there is none to be had, or none is needed, `run_once` sees to itself.
    """
    around = around or Surroundings()
    if around.cache is not None or not options.execute:
        yield around
        return
    cache = WatchCache(connection).start()
    before, behind = time.during, list[bool]()
    try:
        if not cache.wait_ready(patience):
            yield around
            return

        def during(seconds: float) -> None:
            before(seconds)
            # Where a test has broken the watch, waiting for it once is enough.
            if not behind and not in_step(cache, server, patience):
                behind.append(True)

        time.during = during
        yield msgspec.structs.replace(around, cache=cache)
    finally:
        # The next cycle by this clock does not wait for this one's cache.
        time.during = before
        cache.stop()
