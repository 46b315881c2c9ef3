"""Somebody undoes whatever the rebalancer does, for ever: with its memory it stops, and says who it is.

The planner and the memory are the real ones; the replacements land where they are predicted. The model
without memory (`model.py`) shows that there is no loop unless somebody else acts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Eviction, Fate, Outcome, Result
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan, domains_left
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import remembering
from tests.support.build import NOW, deployment, node, snapshot
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime
from tests.unit.policy.judged import patched

ROUND = 600.0
"""Seconds from one cycle to the next: 36 rounds are a quarter of a day."""
PODS = 4
EVICTED = Eviction(result=Result.EVICTED, message="evicted", posts=1)


class Town:
    """Four pods of a Deployment in two zones; others act between two cycles."""

    def __init__(self) -> None:
        self.zones = {"a-0": "a", "b-0": "b"}
        self.pods = {"a-0": PODS}
        self.revision, self.rolled = 1, 0
        self.more: list[Any] = []
        self.time = FakeTime(NOW)
        self.memory = Memory(self.time, HistoryRules())
        self.evicted: list[int] = []
        self.plan = Plan(constraints=(), moves=(), blocked=())

    def snapshot(self) -> Snapshot:
        """As it is now."""
        web = deployment("web").labels(app="web").spread("zone", 1)
        web.label_map({"revision": str(self.revision)}) if self.revision > 1 else None
        born = "2026-05-31T23:59:00Z" if self.rolled else "2026-01-01T00:00:00Z"
        made: list[Json] = patched(
            "ReplicaSet",
            {"metadata": {"creationTimestamp": born}},
            *(node(name).zone(zone) for name, zone in self.zones.items()),
            web.placed({n: count for n, count in self.pods.items() if count}),
            *self.more,
        )
        return snapshot(*made, now=self.time.at)

    def cycle(self) -> None:
        """One cycle, whose moves all go as predicted."""
        memory, seen = self.memory, self.snapshot()
        memory.begin()
        memory.looked(seen)
        # As by default: within a day no more than all of a workload's pods.
        self.plan = remembering(PlanOptions(policy=PolicyOptions()), memory)(seen)
        moves = self.plan.allowed
        leaves = domains_left(seen, self.plan)
        memory.intend(seen, self.plan, moves, [leaves(m) for m in moves])
        for m in moves:
            self.pods[m.pod.node_name] -= 1
            self.pods[m.predicted] = self.pods.get(m.predicted, 0) + 1
        memory.landed([
            Outcome(move=m, status=Fate.DONE, message="", eviction=EVICTED, node=m.predicted,
                    expected=True)
            for m in moves
        ])  # fmt: skip
        memory.settled()
        memory.end(well=True)
        self.evicted.append(len(moves))
        self.time.at += ROUND

    def back(self) -> None:
        """All pods are in the first zone again."""
        self.pods = {"a-0": sum(self.pods.values())}


def hpa(town: Town) -> None:
    """Down to one pod and up again; what comes up lands in the first zone, as the other is full then."""
    town.back()
    town.more = [
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web-hpa", "namespace": "default"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                     "minReplicas": 1, "maxReplicas": PODS + 1},
        }
    ]  # fmt: skip
    town.pods["a-0"] = PODS + (len(town.evicted) % 2)


def rollout(town: Town) -> None:
    """A new revision, which is placed while the old one still counts."""
    town.revision += 1
    town.rolled += 1
    town.back()


def consolidation(town: Town) -> None:
    """The node that was filled goes, which a cycle sees; later there is a new, empty one."""
    town.back()
    [filled] = [n for n, zone in town.zones.items() if zone == "b"]
    del town.zones[filled]
    town.cycle()
    town.zones[f"b-{len(town.evicted)}"] = "b"


def rival(town: Town) -> None:
    """Another one who evicts, of whom nothing is seen."""
    town.back()


def anybody(town: Town) -> None:
    """Now this one, now that one."""
    random.Random(len(town.evicted)).choice([hpa, rollout, consolidation, rival])(town)


CAP, LOOP, REMOVED = ReasonCode.CAP, ReasonCode.EVICTION_LOOP, ReasonCode.NODES_REMOVED
NAMES: dict[str, tuple[Callable[[Town], None], set[ReasonCode], str]] = {
    "an autoscaler of pods": (hpa, {CAP, LOOP}, "HorizontalPodAutoscaler web-hpa scales it"),
    "a rollout each time": (rollout, {CAP, LOOP}, "it was rolled out"),
    "an autoscaler of nodes": (consolidation, {CAP, REMOVED}, "an autoscaler"),
    "somebody else who evicts": (rival, {CAP, LOOP}, "something else"),
    "all of them": (anybody, {CAP, LOOP, REMOVED}, ""),
}  # fmt: skip


@pytest.mark.parametrize(("party", "codes", "named"), NAMES.values(), ids=NAMES)
def test_it_stops_within_the_day_and_names_who_undoes_its_work(
    party: Callable[[Town], None], codes: set[ReasonCode], named: str
) -> None:
    town = Town()
    for _ in range(36):
        town.cycle()
        party(town)
    town.cycle()
    assert town.evicted[0] == 2
    assert sum(town.evicted) <= PODS + 1, "no more than all of its pods in a day"
    assert not any(town.evicted[-20:]), "it is quiet although the other one goes on"
    waits = {m.waits.code for m in town.plan.moves if m.waits is not None}
    assert waits | {b.reason.code for b in town.plan.blocked} <= codes
    said = [f.message for f in town.plan.findings] + [b.reason.message for b in town.plan.blocked]
    assert any(named in text for text in said), said
