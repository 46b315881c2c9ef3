"""What it is about owners that keeps their pods where they are, over whole cycles."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome.cycle import End
from rebalancer.policy.history.resting_owners import HistoryRules
from tests.support.build import deployment, nodes, objects
from tests.support.runs.machine import Machine
from tests.support.runs.one_cycle import Run
from tests.support.sandbox import ApiServer
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime
from tests.support.servers.hands import Hands


def reasons(run: Run) -> set[ReasonCode]:
    """Why pods stay, by the last plan."""
    return {b.reason.code for b in run.story.plans[-1].blocked}


def later() -> FakeTime:
    """A clock by which pods that are made before a cycle are old."""
    return FakeTime(at=2e9)


class Watchful(Hands):
    """Takes down the lowest number of Ready pods."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.lowest = 1_000
        self._count()

    def step(self, seconds: float = 0.0) -> None:
        self._count()
        super().step(seconds)
        self._count()

    def _count(self) -> None:
        pods = (p for p in self.store.list("Pod") if "deletionTimestamp" not in p["metadata"])
        ready = sum(
            any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", ()))
            for p in pods
        )
        self.lowest = min(self.lowest, ready)


def rolling(things: Any, most: int | str) -> list[Json]:
    """Deployments that allow so many pods to be unavailable."""
    made = objects(things)
    for o in made:
        if o["kind"] == "Deployment":
            o["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": most, "maxSurge": 1}}
    return made


@pytest.mark.parametrize("most", [0, 1, "25%"])
def test_a_deployment_with_two_of_five_pods_broken_loses_no_ready_one(most: int | str) -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1, "c-0": 1}).unready(3, 4)
    with ApiServer(rolling((nodes(a=1, b=1, c=1), web), most)) as server:
        hands = Watchful(server)
        run = Run(server, hands=hands, time=later())
    assert run.evictions() == 0
    assert hands.lowest == 3
    assert reasons(run) == {ReasonCode.OWNER_DEGRADED}


def test_once_the_broken_pod_has_been_replaced_ready_ones_go() -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 4}).unready(0)
    with ApiServer(rolling((nodes(a=1, b=1), web), 1)) as server:
        hands = Watchful(server)
        run = Run(server, hands=hands, time=later())
        assert (run.report.end, run.report.evicted) == (End.COMPLETE, 2)
        assert run.zones() == [2, 2]
    assert [o.move.pod.ready for o in run.report.outcomes] == [False, True]
    assert hands.lowest == 3


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_what_kueue_manages_is_left_alone(kind: str) -> None:
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for o in made:
        if o["kind"] == kind:
            key = {"Deployment": "kueue.x-k8s.io/queue-name", "Pod": "kueue.x-k8s.io/managed"}[kind]
            o["metadata"].setdefault("labels", {})[key] = "true"
    with ApiServer(made) as server:
        run = Run(server, time=later())
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.ADMISSION_QUEUE}


class Queueing(Hands):
    """Beside them an admission webhook gates new pods, until they are let in."""

    let_in = False

    def _schedule(self, pod: Json) -> None:
        gates = {} if self.let_in else {"schedulingGates": [{"name": "example.com/admission"}]}

        def gate(o: Json) -> None:
            o["spec"].pop("schedulingGates", None)
            o["spec"].update(gates)

        self.store.modify("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], gate)
        if self.let_in:
            super()._schedule(pod)


def test_a_namespace_in_which_a_replacement_was_held_back_is_remembered() -> None:
    shop = [deployment(name).spread("zone", 1).placed({"a-0": 3}) for name in ("one", "two")]
    canary = HistoryRules(canary=5)
    with Machine((nodes(a=1, b=1), shop)) as m:
        m.hands = hands = Queueing(m.server)
        first = m.cycle(canary)
        assert first.report.evicted == 1
        (entry,) = m.ledger().entries
        assert entry.gates == ("example.com/admission",)
        assert ReasonCode.ADMISSION_QUEUE in reasons(m.cycle(canary)), "its pod says so"
        hands.let_in = True
        for _ in range(5):
            hands.step()
        second = m.cycle(canary)
        assert second.report.evicted == 0
        assert reasons(second) == {ReasonCode.ADMISSION_QUEUE}
        m.time.at += 8 * 86_400
        assert m.cycle(canary).report.evicted == 1
