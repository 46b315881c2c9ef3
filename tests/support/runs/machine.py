"""A cluster and the memory of who mends it, cycle after cycle, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rebalancer.kube.config_maps import KEY, Ledgers, Place
from rebalancer.policy.history.fingerprints import constraint_id
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.ledger_json import decode
from rebalancer.policy.history.stabilization import Followed, Onset
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions
from tests.support.build import objects
from tests.support.runs.one_cycle import EXECUTE, PATIENT, SKEWED, Run
from tests.support.sandbox import ApiServer
from tests.support.servers.api import QUICK, FakeTime, connected
from tests.support.servers.hands import Hands

Begun = Callable[[Memory], object]


def by_nodes(run: Run, ago: float = 0.0) -> Begun:
    """Watches have seen nodes make the violations of constraints of this run, so many seconds ago."""
    ids = [constraint_id(c.constraint) for plan in run.story.plans for c in plan.constraints]
    seen = Followed(onsets=dict.fromkeys(ids, Onset(ago, by_nodes=True)))
    return lambda memory: setattr(memory, "followed", lambda: seen)


PLACE = Place("default", "rebalancer-ledger")
BRAKE = Place("default", "rebalancer-brake")


class Machine:
    """A cluster, and rebalancers that come and go; time is theirs in common."""

    def __init__(self, things: Iterable[Any] = SKEWED, *, version: str = "1.36.2", **hands: Any) -> None:
        self.server = ApiServer(objects(*things), version=version)
        self.hands = Hands(self.server, **hands)
        self.time = FakeTime(at=2_000_000_000.0)
        self.number = 0

    def __enter__(self) -> Machine:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def cycle(
        self,
        rules: HistoryRules | None = None,
        options: LiveOptions = EXECUTE,
        *,
        time: FakeTime | None = None,
        begun: Begun = lambda _: None,
        **more: Any,
    ) -> Run:
        """One process that runs one cycle. It has taken the lease over from the one before. `begun`: called
        with its memory first."""
        self.number += 1
        term = self.number
        time = time or FakeTime(at=self.time.at)
        time.during, self.time.during = self.time.during, lambda _: None
        with connected(self.server, options=PATIENT) as c:
            memory = Memory(
                time,
                rules or HistoryRules(),
                store=Ledgers(c, PLACE, writer=f"p{self.number}", wait=time.wait, backoff=QUICK),
                writer=f"p{self.number}",
                term=lambda: term,
                **more,
            )
            begun(memory)
            run = Run(self.server, options, hands=self.hands, time=time, around=Surroundings(memory=memory))
        self.time.at = time.at
        return run

    def keep(self, ledger: Ledger) -> None:
        """Stores this ledger."""
        with connected(self.server, options=PATIENT) as c:
            Ledgers(c, PLACE, writer="p0", wait=self.time.wait, backoff=QUICK).save(ledger)

    def ledger(self) -> Ledger:
        """As it is stored."""
        return decode(self.server.store.get("ConfigMap", PLACE.name, PLACE.namespace)["data"][KEY])
