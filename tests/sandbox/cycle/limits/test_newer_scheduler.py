"""A cluster one minor release ahead: evictions go on, two at a time at most, until a hundred decisions of its
scheduler were as predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.engine.branches import Touched
from rebalancer.engine.config import Witness
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End, Observer
from rebalancer.planner import PlanOptions
from rebalancer.policy.history.ledger import COVERED, ENOUGH, Agreed, Ledger, Shown, shown_key
from rebalancer.policy.history.ledger_json import encode
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.scheduler_decisions import Verdicts
from rebalancer.runtime.observers.neighbours import NeighbourWatch
from tests.support.build import nodes, snapshot, workload
from tests.support.runs.machine import Machine
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.servers.api import FakeTime

EIGHT = (
    *nodes(a=1, b=1),
    *(workload(f"w{i}").spread("zone", 1).placed({"a-0": 3, "b-0": 1}) for i in range(8)),
)
CANARY = HistoryRules(canary=2)


def most_flying(run: Run, after: int = 2) -> int:
    """The most replacements that were on their way at a time, once so many have landed."""
    flying, landed, most = 0, 0, 0
    for told in run.story.told:
        flying += (told == "evict evicted") - (told == "done")
        landed += told == "done"
        most = max(most, flying if landed >= after else 0)
    return most


def test_moves_are_carried_out_and_the_canary_lasts() -> None:
    with Machine(EIGHT, version="1.38.0") as m:
        run = m.cycle(CANARY)
        assert m.ledger().agreed == Agreed("1.38", 8)
    assert (run.report.end, run.report.evicted) == (End.COMPLETE, 8)
    assert not any(o.move.certain for o in run.report.outcomes)
    assert most_flying(run) == 2


def test_after_a_hundred_decisions_as_predicted_it_ends() -> None:
    with Machine(EIGHT, version="1.38.0") as m:
        m.keep(Ledger(agreed=Agreed("1.38", ENOUGH)))
        run = m.cycle(CANARY)
    assert run.report.evicted == 8
    assert most_flying(run) > 2


def test_what_another_release_did_counts_for_nothing() -> None:
    with Machine(EIGHT, version="1.38.0") as m:
        m.keep(Ledger(agreed=Agreed("1.36", ENOUGH)))
        run = m.cycle(CANARY)
    assert most_flying(run) == 2


def shown(version: str, *, wrong: str = "") -> Ledger:
    """As after enough decisions on everything that moves of `EIGHT` rest on; one branch is `wrong`."""
    state = ClusterState.of(snapshot(*EIGHT, server_version=version))
    here = Touched(Framework(state), state.snapshot.pods[0].template)
    branches = here.takes(np.array([1])) | {*here.kept_out()}
    found = {b: Shown(1.0, COVERED) for b in branches} | ({wrong: Shown(2.0, 0, "a/b: no")} if wrong else {})
    return Ledger(shown={shown_key(version, "default-scheduler", b): s for b, s in found.items()})


def test_no_number_of_decisions_as_predicted_makes_a_move_certain_on_a_version_that_is_not_known() -> None:
    with Machine(EIGHT, version="1.38.0") as m:
        m.keep(shown("1.38.0"))
        run = m.cycle(CANARY)
        assert m.ledger().shown == shown("1.38.0").shown
    assert run.report.evicted == 8
    assert not any(o.move.certain for o in run.report.outcomes)


PLAIN = (
    "NodeUnschedulable takes",
    "TaintToleration takes",
    "PodTopologySpread takes: In",
    "PodTopologySpread rejects: In",
    *(f"NodeResourcesFit takes, {r} {n}/8" for r in ("cpu", "memory", "pods") for n in range(1, 9)),
)
"""What the moves of `EIGHT` rest on."""


def proved(without: str = "") -> Ledger:
    """As after enough decisions of one scheduler that showed all of it, but for one thing."""
    keys = (shown_key("1.38.0", "default-scheduler", b, "holder") for b in PLAIN if b != without)
    return Ledger(shown={k: Shown(1.0, COVERED) for k in keys})


@pytest.mark.parametrize(
    ("without", "scheduler", "certain"),
    [
        ("", "holder", True),
        ("", "another", False),
        ("", "", False),
        ("PodTopologySpread rejects: In", "holder", False),
        ("PodTopologySpread takes: In", "holder", False),
        ("NodeResourcesFit takes, memory 1/8", "holder", False),
        ("NodeResourcesFit takes, memory 8/8", "holder", True),
    ],
    ids=["all is shown", "by another", "nobody knows whose", "no rejection", "no spread", "no room", "full"],
)
def test_what_the_schedulers_own_decisions_have_shown_makes_moves_certain(
    without: str, scheduler: str, certain: bool
) -> None:
    def begun(memory: Memory) -> None:
        memory.scheduler = lambda: scheduler

    with Machine(EIGHT, version="1.38.0") as m:
        m.keep(proved(without))
        run = m.cycle(CANARY, begun=begun)
    assert run.report.evicted == 8
    assert {o.move.certain for o in run.report.outcomes} == {certain}
    assert most_flying(run) == 2, "that is another question"


@pytest.mark.parametrize("what", ["a disagreement", "a miss", "another scheduler"])
def test_what_is_seen_in_the_middle_of_a_cycle_binds_the_next_eviction(what: str) -> None:
    """A disagreement binds likely moves as well."""
    name, told = ["holder"], list[Any]()
    one = replace(comparison(Result.AGREES), version="1.38.0", profile="default-scheduler")

    def begun(memory: Memory) -> None:
        memory.scheduler = lambda: name[0]
        told.append(memory.listen())

    def during(_: float) -> None:
        if sum(a.subresource == "eviction" for a in m.server.accesses) < 1:
            return
        if what == "a disagreement":
            told[0](replace(one, result=Result.DISAGREES, branches=("PodTopologySpread rejects: In",)))
        elif what == "a miss":
            told[0](replace(one, missed=("PodTopologySpread takes: In",)))
        else:
            name[0] = "another"

    with Machine(EIGHT, version="1.38.0") as m:
        m.keep(proved())
        m.time.during = during
        run = m.cycle(CANARY, begun=begun)
    certain = [o.move.certain for o in run.report.outcomes if o.status.value == "done"]
    if what == "a disagreement":
        assert certain == [True]
    else:
        assert certain == [True, *[False] * 7], "the next plan has them as likely"


@pytest.mark.parametrize("version", ["1.36.2", "1.38.0"])
def test_one_decision_that_was_not_as_predicted_stops_what_rests_on_it_on_every_version(version: str) -> None:
    with Machine(EIGHT, version=version) as m:
        m.keep(shown(version, wrong="PodTopologySpread rejects: In"))
        run = m.cycle(CANARY)
    assert run.report.evicted == 0
    assert {b.reason.code for b in run.story.plans[0].blocked} == {ReasonCode.NOT_CERTAIN}


def test_policy_may_refuse() -> None:
    refusing = replace(EXECUTE, planning=PlanOptions(newer_versions="refuse"))
    with Machine(EIGHT, version="1.38.0") as m:
        run = m.cycle(CANARY, refusing)
    assert run.report.evicted == 0
    assert {b.reason.code for b in run.story.plans[0].blocked} == {ReasonCode.NEWER_VERSION}


def comparison(result: Result, *, certain: bool = True) -> Comparison:
    return Comparison(namespace="default", pod="web", node="a-0", result=result, certain=certain)


def test_a_disagreement_begins_the_count_anew_and_doubtful_ones_do_not_count() -> None:
    verdicts = Verdicts()
    told = verdicts.listen()
    for result, certain in [
        (Result.AGREES, True), (Result.DISAGREES, True), (Result.AGREES, True), (Result.AGREES, False),
        (Result.UNCLEAR, True), (Result.OTHER_REASONS, True), (Result.AGREES, True),
    ]:  # fmt: skip
        told(comparison(result, certain=certain))
    verdicts.landed(agrees=True)  # is among those that are compared
    assert verdicts.counted(Agreed("1.38", 50)) == Agreed("1.38", 2)


def test_the_daemons_comparisons_end_the_canary_of_the_running_process() -> None:
    memory = Memory(FakeTime(), CANARY)
    memory.ledger = replace(memory.ledger, totals=replace(memory.ledger.totals, in_a_row=9))
    told = memory.listen()
    memory.begin()
    memory.looked(snapshot(*EIGHT, server_version="v1.38.0"))
    most: list[int | None] = [memory.most_in_flight]
    for _ in range(ENOUGH):
        told(comparison(Result.AGREES))
    most.append(memory.most_in_flight)
    told(comparison(Result.DISAGREES))
    most.append(memory.most_in_flight)
    assert most == [2, None, 2]


def test_of_pods_of_one_owner_one_a_minute_is_evidence() -> None:
    time = FakeTime()
    memory = Memory(time, CANARY)
    told = memory.listen()
    memory.begin()
    one = replace(comparison(Result.AGREES), version="v1.38.0", profile="p", branches=("NodePorts takes",))

    def agrees() -> int:
        memory.witness("v1.38.0")
        return memory.ledger.shown[shown_key("v1.38.0", "p", "NodePorts takes")].agrees

    memory.witness("v1.38.0")
    for _ in range(30):
        told(replace(one, owner="ReplicaSet/default/web"))
    told(replace(one, owner="ReplicaSet/default/api"))
    assert agrees() == 2
    told(replace(one, owner="ReplicaSet/default/web"))
    assert agrees() == 2
    time.at += 61.0
    agrees()
    told(replace(one, owner="ReplicaSet/default/web"))
    assert agrees() == 3


def test_decisions_are_counted_by_branch_and_a_disagreement_binds_until_enough_have_followed() -> None:
    memory = Memory(FakeTime(), CANARY)
    told = memory.listen()
    memory.begin()
    ports = {"version": "v1.38.0", "profile": "p", "branches": ("NodePorts takes",)}
    key, elsewhere = ("p", "NodePorts takes"), {**ports, "branches": ("NodePorts rejects",)}

    def tell(result: Result, number: int = 1) -> None:
        for _ in range(number):
            told(replace(comparison(result), message="no ports", **ports))

    tell(Result.AGREES, COVERED)
    assert memory.witness("v1.38.0") == Witness()
    assert memory.ledger.shown[shown_key("v1.38.0", *key)].agrees == COVERED
    tell(Result.UNCLEAR)
    tell(Result.DISAGREES)
    tell(Result.AGREES, COVERED - 1)
    for _ in range(COVERED):
        told(replace(comparison(Result.AGREES), **elsewhere))
    assert memory.witness("v1.38.1") == Witness(), "another version's decisions say nothing"
    found = memory.witness("v1.38.0")
    assert [*found.doubted] == [key], "what followed elsewhere does not count"
    assert "NodePorts takes" in found.doubted[key]
    assert "default/web: no ports" in found.doubted[key]
    memory.begin()
    tell(Result.AGREES)
    assert memory.witness("v1.38.0") == Witness()


def test_without_a_canary_there_is_none_for_a_newer_version_either() -> None:
    memory = Memory(FakeTime(), HistoryRules(canary=0))
    memory.begin()
    memory.looked(snapshot(*EIGHT, server_version="v1.38.0"))
    assert memory.most_in_flight is None


def test_an_older_ledger_and_one_with_the_count_are_both_read() -> None:
    from rebalancer.policy.history.ledger_json import decode

    assert decode(b'{"version":1}').agreed == Agreed()
    ledger = Ledger(agreed=Agreed("1.38", 7))
    assert decode(encode(ledger)).agreed == ledger.agreed


class _Notices(Observer):
    def __init__(self) -> None:
        self.codes: list[str] = []

    def on_notice(self, finding: Any) -> None:
        self.codes.append(finding.code)


def test_the_log_is_told_of_it_once() -> None:
    from rebalancer.findings import plan_with_findings

    notices = _Notices()
    watch = NeighbourWatch(notices)
    there = snapshot(*EIGHT, server_version="v1.38.0")
    for _ in range(3):
        watch.on_plan(there, plan_with_findings(there))
    assert notices.codes == ["newer-version"]


def test_on_a_version_older_than_all_known_rules_the_end_says_why_nothing_moves() -> None:
    with Machine(EIGHT, version="1.28.3") as m:
        run = m.cycle()
    assert run.report.evicted == 0
    assert run.report.message.endswith(
        "server version 1.28.3 is outside 1.29–1.37, whose rules are known, so that no move is certain"
    )
