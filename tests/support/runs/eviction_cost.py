"""What an eviction asks of the API server, from the plan to the last replacement."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.kube.config_maps import Ledgers
from rebalancer.outcome import End
from rebalancer.planner import PlanOptions
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from tests.support.build import node, objects, pdb, workload
from tests.support.runs.machine import BRAKE, PLACE
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.sandbox import ApiServer
from tests.support.servers.api import QUICK, FakeTime, connected
from tests.support.servers.hands import Hands

EVICTIONS = 9
ONE_AT_A_TIME = PlanOptions(policy=PolicyOptions(in_flight_per_owner=Limit(number=1)))
"""Then each is written down by itself."""


class Cost(Struct, frozen=True):
    """Of all evictions of a plan, and of the look after them: requests by verb and resource, and the bytes
    of their answers. Watches, lists of one object before them, lists of kinds that are not served, those of
    kinds that are read as a whole, the brake's namespace and the scheduler's lease are left out: they are
    asked as time goes by.
    """

    requests: Counter[str]
    size: int


def cost(pods: int, ready_after: int = 2) -> Cost:
    """What nine evictions cost with an owner of about so many pods, Ready after so many seconds.

    With everything that a daemon does: brake, pauses of namespaces, ledger, events. The pods of zone b are on
    nodes that are full, so that those that come are on one node, whatever the number.
    """
    full = {f"b-{i}": 5 for i in range(1, (pods // 2) // 5 + 1)}
    there = {"a-0": sum(full.values()) + 2 * EVICTIONS, **full}
    wide = [node(f"{zone}-0").zone(zone).cpu(1000).pods(2000) for zone in "ab"]
    wide += [node(name).zone("b").cpu(1000).pods(5) for name in full]
    web = workload("web").spread("zone", 1).placed(there)
    budget = pdb("web", {"app": "web"}, max_unavailable=3)
    with ApiServer(objects(*wide, web, budget)) as server, connected(server) as c:
        time, marks = FakeTime(), list[int]()
        ledger = Ledgers(c, PLACE, writer="p", wait=time.wait, backoff=QUICK)
        run = Run(
            server,
            replace(EXECUTE, brake=BRAKE, events="all", planning=ONE_AT_A_TIME),
            hands=Hands(server, ready_after=ready_after),
            time=time,
            around=Surroundings(memory=Memory(time, HistoryRules(), store=ledger, writer="p")),
            after_plan=lambda _: marks.append(len(server.accesses)),
        )
        assert (run.report.end, run.report.evicted) == (End.COMPLETE, EVICTIONS)
        asked = [
            a
            for a in server.accesses[marks[0] : marks[1]]
            if a.verb != "watch" and a.limit != 1 and a.resource != "leases" and a.path != "/version"
            if (a.resource, a.name) != ("namespaces", BRAKE.namespace)
            if not (a.verb == "list" and (a.code == 404 or a.resource in ("namespaces", "priorityclasses")))
        ]
    found = Counter(f"{a.verb} {a.resource}/{a.subresource}".rstrip("/") for a in asked)
    return Cost(found, sum(a.size for a in asked))
