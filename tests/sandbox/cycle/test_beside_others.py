"""Beside a descheduler nothing is evicted; where an autoscaler removes what was filled, that is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner import PlanOptions
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import NOW, deployment, node, node_claim, nodes, objects, pdb, pod, workload
from tests.support.runs.machine import Machine
from tests.support.runs.one_cycle import EXECUTE, SKEWED, Run
from tests.support.sandbox import ApiServer, evict, is_ready
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.servers.api import FakeTime

ALONE = replace(EXECUTE, beside_descheduler=False)
DESCHEDULER = pod("d-1").labels(app="descheduler").on("b-0")


@pytest.mark.parametrize(
    ("things", "options", "evicted"),
    [
        ((*SKEWED, DESCHEDULER), ALONE, 0),
        ((*SKEWED, DESCHEDULER), EXECUTE, 4),
        (SKEWED, ALONE, 4),
        ((*SKEWED, pod("d-1").labels(app="descheduler").on("b-0").phase("Failed")), ALONE, 4),
    ],
    ids=["it runs", "it runs, and policy evicts beside it", "there is none", "it has ended"],
)
def test_a_descheduler(things: Any, options: Any, evicted: int) -> None:
    with Machine(things) as m:
        run = m.cycle(options=options)
    assert run.report.evicted == evicted
    if not evicted:
        assert run.report.reason is not None
        assert (run.report.end, run.report.reason.code) == (End.HELD, ReasonCode.DESCHEDULER)
        assert "a descheduler runs in this cluster (default/d-1)" in run.report.message
        assert run.story.plans[0].moves, "the plan itself is made"


def test_a_descheduler_that_starts_in_the_middle_stops_the_next_eviction() -> None:
    with Machine((*SKEWED, pdb("web", {"app": "web"}, max_unavailable=1))) as m:

        def start(_: float) -> None:
            asked = any(a.subresource == "eviction" for a in m.server.accesses)
            if asked and m.server.store.find("Pod", "d-1", "default") is None:
                made = objects(DESCHEDULER)[0]
                m.server.store.create({**made, "metadata": {"name": "d-1", "labels": {"app": "descheduler"}}})

        m.time.during = start
        run = m.cycle(options=ALONE)
    assert run.report.evicted == 1
    assert run.report.reason is not None
    assert (run.report.end, run.report.reason.code) == (End.HELD, ReasonCode.DESCHEDULER)


def test_a_node_that_drifts_in_the_middle_gets_no_replacement_any_more() -> None:
    things = (*nodes(a=1, b=2), workload("web").spread("zone", 1).placed({"a-0": 8}))
    with served(*ADD_ONS), Machine((*things, node_claim("c", "b-1", age=86_400))) as m:
        m.time.at = NOW

        def drift(_: float) -> None:
            if any(a.subresource == "eviction" for a in m.server.accesses):
                drifted = objects(node_claim("c", "b-1", age=86_400, drifted=-2))[0]["status"]
                m.server.store.modify("NodeClaim", "c", None, _with(drifted))

        m.time.during = drift
        run = m.cycle()
    assert 0 < run.report.evicted < 4
    assert {b.reason.code for b in run.story.plans[-1].blocked} == {ReasonCode.NODE_EXPIRING}


def _with(status: dict[str, Any]) -> Any:
    return lambda o: o["status"].update(status)


def consolidate(m: Machine, rules: HistoryRules, gone: str, new: str) -> None:
    """An autoscaler removes a node, whose pods come up on a-0 again, and adds an empty one 700 s later."""
    for p in m.server.store.list("Pod"):
        if p["spec"].get("nodeName") == gone:
            kept = {k: v for k, v in p["metadata"].items() if k in ("labels", "ownerReferences", "namespace")}
            m.server.store.delete("Pod", p["metadata"]["name"], "default", grace=0)
            again = {**kept, "name": f"{p['metadata']['name']}-{new}"}
            m.server.store.create({**p, "metadata": again, "spec": {**p["spec"], "nodeName": "a-0"}})
            m.server.store.modify("Pod", again["name"], "default", _with(p["status"]), subresource="status")
    m.server.store.delete("Node", gone, None)
    m.cycle(rules)
    m.time.at += 700
    made = node(new).zone("b").build()[0]
    m.server.store.create({**made, "metadata": {"name": new, "labels": made["metadata"]["labels"]}})


def test_an_autoscaler_that_undoes_every_move_is_left_to_itself_for_longer_and_longer_and_named() -> None:
    rules = HistoryRules()
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    evicted = []
    with Machine(things) as m:
        for round_ in range(3):
            run = m.cycle(rules)
            evicted.append(run.report.evicted)
            if round_ < 2:
                consolidate(m, rules, f"b-{round_}", f"b-{round_ + 1}")
        last = run.story.plans[-1]
        assert evicted == [2, 2, 0], "undone once, ten minutes are waited; undone twice, half an hour"
        assert run.report.end is End.WAITING
        assert {b.reason.code for b in last.blocked} == {ReasonCode.NODES_REMOVED}
        [finding] = [f for f in last.findings if f.code == "autoscaler-undoes-moves"]
        assert "4 of 4 moves of this week were undone, at 2 times: nodes" in finding.message
        m.time.at += 86_400  # the cap of a day
        assert m.cycle(rules).report.evicted == 2, "not for ever"


MOST, PODS = 3, 24


class Rival:
    """Another controller that evicts pods of the same Deployment meanwhile, and takes down who has
    evicted what: how many are away whenever pods of ours have gone, and on which node each pod was."""

    def __init__(self, server: ApiServer, times: int) -> None:
        self.server, self.left, self.turns = server, times, 0
        self.theirs: list[str] = []
        self.ours = 0
        self.away: list[int] = []
        self.nodes: dict[str, str] = {}

    def step(self, _: float) -> None:
        """Looks, and evicts in every other step."""
        pods = self.server.store.list("Pod")
        ready = [p for p in pods if is_ready(p) and "deletionTimestamp" not in p["metadata"]]
        self.nodes |= {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in pods}
        evicted = sum(a.subresource == "eviction" and a.code == 201 for a in self.server.accesses)
        if evicted > self.ours:
            self.away.append(PODS - len(ready))
            self.ours = evicted
        self.turns += 1
        if self.turns % 2 == 0 and self.left:
            self.left -= 1
            name = ready[self.turns % len(ready)]["metadata"]["name"]
            self.theirs.append(name)
            evict(self.server.store, "default", name, {"metadata": {"name": name}})


def test_beside_another_that_evicts_no_more_are_away_and_each_is_told_by_whom() -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": PODS})
    made = objects(nodes(a=1, b=1, c=1), web)
    for o in made:
        if o["kind"] == "Deployment":
            o["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": MOST, "maxSurge": 1}}
    policy = PolicyOptions(in_flight_per_owner=Limit(number=MOST))
    with ApiServer(made) as server:
        rival, time = Rival(server, 5), FakeTime(at=2e9)
        time.during = rival.step
        run = Run(server, replace(EXECUTE, planning=PlanOptions(policy=policy)), time=time)
        rival.step(0.0)
    assert run.report.evicted == rival.ours > 0
    assert max(rival.away) <= MOST, "theirs count as ours do"
    mine = [o for o in run.report.outcomes if o.evicted]
    assert not {o.move.pod.name for o in mine}.intersection(rival.theirs)
    landed = [o for o in mine if o.replacement]
    assert len({o.replacement for o in landed}) == len(landed), "no pod stands for two moves"
    assert all(o.node == rival.nodes[o.replacement.partition("/")[2]] for o in landed)
    assert len(rival.theirs) == 5, "it was busy all the time"
    assert run.zones() == [8, 8, 8]
