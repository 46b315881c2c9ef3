"""What a process remembers: intentions and their outcomes, the canary, the breaker; without a store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison
from rebalancer.engine.agreement import Result as Verdict
from rebalancer.kube.config_maps import Ledgers, Place
from rebalancer.model.node import Condition, Node
from rebalancer.model.reason import Finding, ReasonCode, Severity
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Eviction, Outcome, Result
from rebalancer.planner import plan
from rebalancer.planner.plan import Plan, PlanOptions
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.fingerprints import constraint_id
from rebalancer.policy.history.ledger import Fate, Ledger, owner_id
from rebalancer.policy.history.stabilization import Followed, Onset
from rebalancer.policy.history.waits import HistoryRules, end_of
from rebalancer.policy.options import Method, PolicyOptions
from rebalancer.runtime.commands.remembered import history_of
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.owners_that_wait import unsettled, young
from rebalancer.runtime.cycle.scheduler_decisions import Verdicts
from tests.support.build import NOW, OwnerBuilder, nodes, objects, snapshot, workload
from tests.support.sandbox import ApiServer
from tests.support.servers.api import FakeTime, connected
from tests.unit.runtime.cycle.made import WEB, evicted, left, move

PLAN = Plan(constraints=(), moves=(), blocked=())
UNKNOWN = Outcome(
    move=move(),
    status=Fate.FAILED,
    message="no answer",
    eviction=Eviction(result=Result.UNKNOWN, message="no answer", posts=1),
)


def remembering(time: FakeTime | None = None, rules: HistoryRules | None = None) -> Memory:
    return Memory(time or FakeTime(), rules or HistoryRules(), limits=CircuitLimits(pause=600.0))


def cycle(memory: Memory, *outcomes: Outcome, seen: Snapshot = WEB) -> None:
    """A cycle in which these pods were to be evicted."""
    memory.begin()
    memory.looked(seen)
    moves = [o.move for o in outcomes]
    memory.intend(seen, PLAN, moves, [["zone=a"]] * len(moves))
    memory.landed(outcomes)
    memory.settled()


def test_since_when_pods_cannot_be_replaced_is_remembered_until_they_can() -> None:
    def stuck(name: str) -> Finding:
        return Finding(Severity.ERROR, "cannot-be-replaced", f"Deployment/a/{name}", "no node")

    time = FakeTime()
    memory = remembering(time)
    other = Finding(Severity.WARNING, "no-pdb", "Deployment/a/web", "no budget")
    began = time.now()
    assert [f.since for f in memory.dated([stuck("web"), other])] == [None, None]
    time.at += 60
    assert [f.since for f in memory.dated([stuck("web"), stuck("db"), other])] == [began, None, None]
    assert memory.ledger.irreplaceable == {"Deployment/a/web": began, "Deployment/a/db": began + 60}
    memory.dated([], lambda namespace: namespace == "b")
    assert set(memory.ledger.irreplaceable) == {"Deployment/a/web", "Deployment/a/db"}
    memory.dated([stuck("db")])
    time.at += 60
    assert [f.since for f in memory.dated([stuck("web"), stuck("db")])] == [None, began + 60]


FATES: dict[str, tuple[Outcome, Fate | None]] = {
    "a replacement on a planned node is as predicted": (evicted(on="b-1"), Fate.DONE),
    "one on another node is elsewhere": (evicted(on="c-0"), Fate.ELSEWHERE),
    "one that is not Ready in time has failed": (evicted(ready=False), Fate.FAILED),
    "one that nobody waited for was not seen": (evicted(on=""), Fate.UNSEEN),
    "an eviction without an answer is unknown": (UNKNOWN, Fate.UNKNOWN),
    "what was not evicted is forgotten": (left("web-00000", ReasonCode.PDB_EXHAUSTED), None),
}


@pytest.mark.parametrize("case", FATES)
def test_what_the_ledger_says_of_an_outcome(case: str) -> None:
    outcome, fate = FATES[case]
    memory = remembering()
    cycle(memory, outcome)
    assert [e.fate for e in memory.ledger.entries] == ([fate] if fate else [])
    assert memory.ledger.totals.evictions == (fate is not None)


@pytest.mark.parametrize(
    ("replacement", "node", "said"),
    [
        ("a/web-n", "b-1", "a/web-n on b-1"),
        ("a/web-n", "", "a/web-n had no node"),
        ("", "", "its replacement was not seen"),
    ],
)
def test_history_says_how_it_went(replacement: str, node: str, said: str) -> None:
    memory = remembering()
    cycle(memory, replace(evicted(on=node, ready=False), replacement=replacement))
    assert [line.path.partition(": ")[2] for line in history_of(memory.ledger, ())] == [said]


def test_what_was_intended_and_not_sent_is_gone_when_nothing_is_in_flight() -> None:
    memory = remembering()
    memory.begin()
    memory.looked(WEB)
    memory.intend(WEB, PLAN, [move("web-00000"), move("web-00001")], [[], []])
    memory.landed([evicted("web-00000")])
    assert [e.fate for e in memory.ledger.entries] == [Fate.DONE, Fate.INTENDED]
    memory.settled()
    assert [e.pod for e in memory.ledger.entries] == ["web-00000"]


def test_what_an_earlier_process_left_open_is_settled_by_whether_the_pod_is_still_there() -> None:
    """Nobody knows when it was sent: it counts from the latest time at which it may have been."""
    time = FakeTime()
    killed = remembering(time)
    killed.begin()
    killed.looked(WEB)
    killed.intend(WEB, PLAN, [move("web-00000"), move("web-00001")], [[], []])
    time.at += 5000
    next_one = remembering(time)
    next_one.ledger = killed.ledger
    next_one.begin()
    next_one.looked(replace(WEB, pods=tuple(p for p in WEB.pods if p.name != "web-00000")))
    (entry,) = next_one.ledger.entries
    assert (entry.pod, entry.fate, entry.at) == ("web-00000", Fate.UNKNOWN, time.at)
    assert next_one.last_sent.at == time.at
    assert len(next_one.earlier().last_hour) == 1


def test_an_eviction_counts_from_when_it_was_sent_and_until_then_as_of_now() -> None:
    time = FakeTime()
    memory = remembering(time)
    memory.begin()
    memory.looked(WEB)
    moves = [move("web-00000"), move("web-00001")]
    memory.intend(WEB, PLAN, moves, [[], []])
    for m in moves[::-1]:
        time.at += 4000
        assert [at for at, _ in memory.earlier().last_hour] == [time.at] * 2
        memory.sent(m.pod.uid)
    memory.landed([evicted("web-00000"), evicted("web-00001")])
    assert [(e.pod, e.at) for e in memory.ledger.entries] == [
        ("web-00001", time.at - 4000),
        ("web-00000", time.at),
    ]


def test_what_is_released_counts_as_of_now_and_from_its_end_on() -> None:
    time = FakeTime()
    memory = remembering(time)
    memory.begin()
    memory.looked(WEB)
    memory.intend(WEB, PLAN, [replace(move(), method=Method.REPLACE_FIRST)], [[]])
    time.at = began = time.at + 60
    memory.sent(move().pod.uid)
    memory.landed([replace(evicted(), status=Fate.RELEASED)])
    time.at += 4000
    assert [(e.fate, e.at) for e in memory.ledger.entries] == [(Fate.RELEASED, began)]
    assert [at for at, _ in memory.earlier().last_hour] == [time.at]
    memory.landed([evicted()])
    assert [(e.fate, e.at) for e in memory.ledger.entries] == [(Fate.DONE, time.at)]


def test_evictions_of_the_cycle_of_the_hour_and_of_the_day_are_told_to_the_caps() -> None:
    time = FakeTime()
    memory = remembering(time)
    cycle(memory, evicted("web-00000"), evicted("db-00000"))
    earlier = memory.earlier()
    assert (len(earlier.this_cycle), len(earlier.last_hour)) == (2, 2)
    time.at += 3601
    memory.begin()
    later = memory.earlier()
    assert (len(later.this_cycle), later.last_hour) == (0, ())
    assert len(later.last_day[owner_id("ReplicaSet/default/web")]) == 1


# Outcomes so far, how many may be in flight then under a canary of three.
CANARY: dict[str, tuple[tuple[Outcome, ...], int | None]] = {
    "at first one": ((), 1),
    "after one as predicted, two": ((evicted("web-00000"),), 2),
    "after three in a row, as many as the plan has": (
        (evicted("web-00000"), evicted("web-00001"), evicted("web-00002")),
        None,
    ),
    "one that landed elsewhere begins the row anew": (
        (evicted("web-00000"), evicted("web-00001"), evicted("web-00002", on="c-0")),
        1,
    ),
    "one that was not seen is no news": ((evicted("web-00000"), evicted("web-00001", on="")), 2),
}


@pytest.mark.parametrize("case", CANARY)
def test_the_canary(case: str) -> None:
    outcomes, most = CANARY[case]
    memory = remembering(rules=HistoryRules(canary=3))
    for outcome in outcomes:
        cycle(memory, outcome)
    assert memory.most_in_flight == most


def test_the_breaker_opens_for_longer_each_time_and_closes_when_a_cycle_ends_well() -> None:
    time = FakeTime()
    memory = remembering(time)
    assert memory.circuit_open() is None
    for pause in (600, 1200):
        reason = memory.trip("two replacements failed")
        assert reason is not None
        assert reason.code is ReasonCode.CIRCUIT_OPEN
        time.at += pause - 1
        assert memory.circuit_open() is not None
        time.at += 1
        assert memory.circuit_open() is None
    memory.end(well=True)
    assert memory.ledger.circuit.trips == 0


def test_a_breaker_is_open_for_its_pause_although_the_clock_is_set_back() -> None:
    time = FakeTime()
    memory = remembering(time)
    memory.trip("two replacements failed")
    time.at -= 86_400
    assert memory.circuit_open() is not None
    time.at += 599
    memory.begin()
    reason = memory.circuit_open()
    assert reason is not None
    assert reason.message.count("its end lies 24.0 h ahead") == 1
    time.at += 1
    assert memory.circuit_open() is None


def test_a_clock_that_is_hours_behind_does_not_close_the_breaker_for_the_others() -> None:
    time = FakeTime()
    memory = remembering(time)
    memory.trip("two replacements failed")
    time.at -= 3 * 3600
    for _ in range(3):
        reason = memory.circuit_open()
        assert reason is not None
        assert reason.message.count("its end lies") == 1
        time.at -= 3600
    time.at += 6 * 3600 + 599
    reason = memory.circuit_open()
    assert reason is not None
    assert "its end lies" not in reason.message
    time.at += 1
    assert memory.circuit_open() is None


def test_a_breaker_of_clocks_that_differ_a_little_is_left_as_it_is() -> None:
    time = FakeTime()
    memory = remembering(time)
    memory.trip("two replacements failed")
    before = memory.ledger
    time.at -= 59
    assert memory.circuit_open() is not None
    assert memory.ledger == before


def test_without_limits_there_is_no_breaker() -> None:
    memory = Memory(FakeTime(), HistoryRules())
    assert memory.trip("anything") is None
    assert memory.circuit_open() is None


def web() -> OwnerBuilder:
    return workload("web").placed({"a-0": 3})


HARD, SOFT = web().spread("zone"), web().spread("zone", soft=True)
BOTH = web().spread("zone").spread("hostname", soft=True)
OLD, UNSEEN, SEEN = (9000, 9000, 9000), Ledger(), Ledger(looked=NOW - 1)
# Who is spread how, how many seconds ago its pods were made (None: unknown), the ledger, whether hard
# constraints have been violated for long, whether the owner waits.
VIOLATIONS: dict[str, tuple[OwnerBuilder, tuple[int | None, ...], Ledger, bool, bool]] = {
    "where nobody has looked it is as old as the youngest pod": (
        HARD,
        (9000, 9000, 181),
        UNSEEN,
        False,
        False,
    ),
    "which may be young": (HARD, (9000, 9000, 179), UNSEEN, False, True),
    "or of unknown age": (HARD, (9000, 9000, None), UNSEEN, False, True),
    "one that was not there when somebody looked is new": (HARD, OLD, SEEN, False, True),
    "one that was is not": (HARD, OLD, SEEN, True, False),
    "of a soft constraint too": (SOFT, OLD, SEEN, False, True),
    "a soft one beside a hard one that lasts holds nobody back": (BOTH, OLD, SEEN, True, False),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_an_owner_waits_while_its_violation_is_young(case: str) -> None:
    spread, ages, ledger, lasting, waits = VIOLATIONS[case]
    seen = snapshot(*nodes(a=2, b=1), spread)
    made = (NOW - age if age is not None else None for age in ages)
    pods = tuple(replace(pod, created=at) for pod, at in zip(seen.pods, made, strict=True))
    seen = replace(seen, pods=pods)
    planned = plan(seen, PlanOptions(soft="predicted"))
    hard = {constraint_id(c.constraint): 1.0 for c in planned.constraints if c.constraint.hard}
    ledger = replace(ledger, violated=hard if lasting else {})
    rules = HistoryRules(stabilization=180)
    _, found = young(seen, planned, ledger, rules, Followed(), now=NOW, latest=NOW)
    assert set(found) == ({"ReplicaSet/default/web"} if waits else set())


RESTARTED = dict.fromkeys(("a-0", "a-1"), 9000) | {"b-0": 30}
# For how long nodes are Ready, whether nodes made the violation, seconds for which its owner waits still.
CAME: dict[str, tuple[dict[str, int], bool, str, int]] = {
    "its zone came back": (RESTARTED, True, "a-0", 0),
    "its zone came back while pods went": (RESTARTED, False, "a-0", 170),
    "its zone was hardly away: a pod there is older": (RESTARTED, True, "b-0", 170),
    "its zone was there all the time": (RESTARTED | {"b-0": 9000}, True, "a-0", 170),
    "its zone is Ready for a moment": (RESTARTED | {"b-0": 1}, True, "a-0", 9),
}


@pytest.mark.parametrize("case", CAME)
def test_a_violation_that_came_with_a_domain_need_not_last(case: str) -> None:
    ready, by_nodes, fourth, waits = CAME[case]
    seen = snapshot(*nodes(a=2, b=1), workload("web").spread("zone").placed({"a-0": 3, "a-1": 2, fourth: 1}))
    seen = replace(
        seen,
        nodes=tuple(_ready_for(n, ready[n.name]) for n in seen.nodes),
        pods=tuple(replace(p, created=NOW - 9000) for p in seen.pods),
    )
    planned = plan(seen, PlanOptions())
    (i,) = (constraint_id(c.constraint) for c in planned.constraints)
    followed = Followed(300.0, {i: Onset(10, by_nodes=by_nodes)})
    rules, ledger = HistoryRules(stabilization=180), Ledger(looked=NOW - 60)
    _, found = young(seen, planned, ledger, rules, followed, now=NOW, latest=NOW)
    assert [end_of(r) - NOW for r in found.values()] == ([waits] if waits else [])


def test_who_looks_at_one_namespace_keeps_the_dates_of_others() -> None:
    """They share a ledger, and each is to see its own violations last."""
    seen = snapshot(*nodes(a=1, b=1), HARD)
    rules, ledger = HistoryRules(stabilization=180), Ledger(looked=NOW - 60, violated={"x": NOW - 90})
    for read, kept in ((frozenset[str](), {}), (frozenset({"default"}), {"x": NOW - 90})):
        part = replace(seen, read_namespaces=read)
        since, _ = young(part, plan(part), ledger, rules, Followed(), now=NOW, latest=NOW)
        (mine,) = since.keys() - {"x"}
        assert since == {mine: NOW} | kept
    apart = plan(seen, PlanOptions(policy=PolicyOptions(namespaces_exclude=("default",))))
    before = replace(ledger, violated={mine: NOW - 90, "x": NOW - 90})
    for cluster, dates in ((seen, {mine: NOW - 90}), (part, before.violated)):
        assert young(cluster, apart, before, rules, Followed(), now=NOW, latest=NOW)[0] == dates


def test_a_lasting_violation_of_another_workload_lifts_no_wait() -> None:
    """It counts the pods of both, and nothing mends it."""
    soft = workload("soft").labels(team="t").spread("zone", 1, soft=True).placed({"a-0": 3})
    hard = workload("hard").labels(team="t").spread("zone", 1, selector={"team": "t"}).placed({"a-0": 1})
    seen = snapshot(*nodes(a=1, b=1), soft, hard)
    planned = plan(seen, PlanOptions(soft="predicted", certainty="likely"))
    lasts = [constraint_id(c.constraint) for c in planned.constraints if c.constraint.hard]
    hard_ones = {i for i, c in enumerate(planned.constraints) if c.constraint.hard}
    planned = replace(planned, moves=tuple(m for m in planned.moves if hard_ones.isdisjoint(m.fixes)))
    ledger = Ledger(looked=NOW - 60, violated=dict.fromkeys(lasts, NOW - 9000))
    rules = HistoryRules(stabilization=180)
    _, found = young(seen, planned, ledger, rules, Followed(), now=NOW, latest=NOW)
    assert "ReplicaSet/default/soft" in found


def test_an_owner_of_a_kind_that_is_not_read_waits_as_others_do() -> None:
    seen = snapshot(*nodes(a=2, b=1), HARD)
    made = plan(seen)
    alone = replace(seen, workloads=())
    rules = HistoryRules(stabilization=180)
    _, found = young(alone, made, Ledger(looked=NOW - 60), rules, Followed(), now=NOW, latest=NOW)
    assert set(found) == {"ReplicaSet/default/web"}


# Since when the plan is made, how the violation began, whether the move waits.
BEGAN: dict[str, tuple[float, Onset | None, bool]] = {
    "it began before the plan": (5.0, Onset(6, by_nodes=False), False),
    "it began anew since": (5.0, Onset(4, by_nodes=False), True),
    "it has lasted since": (300.0, Onset(200, by_nodes=False), False),
    "nobody saw it begin": (5.0, None, False),
}


@pytest.mark.parametrize("case", BEGAN)
def test_no_pod_goes_for_a_violation_that_began_anew_since_the_plan(case: str) -> None:
    seconds, onset, waits = BEGAN[case]
    seen = snapshot(*nodes(a=2, b=1), HARD)
    made, time = plan(seen), FakeTime()
    memory = remembering(time, HistoryRules(stabilization=180))
    memory.waits(seen, made, {})
    time.at += seconds
    ids = [constraint_id(c.constraint) for c in made.constraints]
    memory.followed = lambda: Followed(900.0, dict.fromkeys(ids, onset) if onset is not None else {})
    assert (memory.began_anew(made.moves[0], made.constraints) is not None) is waits


def test_a_repair_that_is_undone_before_the_next_plan_is_one_that_was_made() -> None:
    """Beyond what it had left, all that comes is a return."""
    broken, mended = (
        snapshot(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": a, "b-0": 6 - a}))
        for a in (4, 3)
    )
    memory, made = remembering(), plan(broken)
    memory.begin()
    memory.looked(broken)
    memory.intend(broken, made, made.moves, [["zone=a"]] * len(made.moves))
    memory.landed([replace(evicted(), move=m) for m in made.moves])
    for seen, least in ((broken, 0), (mended, 0), (broken, 0)):
        memory.waits(seen, plan(seen), {})
        [entry] = memory.ledger.entries
        assert [*entry.left.values()] == [least]


def test_of_which_moment_the_dates_are_that_the_ledger_has() -> None:
    """A cycle may end long after its last plan, and what comes in between is not seen."""
    time = FakeTime(NOW)
    memory = remembering(time, HistoryRules(stabilization=180))
    seen = snapshot(*nodes(a=2, b=1), HARD)
    memory.begin()
    memory.looked(seen)
    memory.waits(seen, plan(seen), {})
    time.at += 60
    memory.end(well=True)
    assert memory.ledger.looked == NOW


# By what web is spread, nodes that take none of its pods, for how long others are Ready, how long it waits.
UNSETTLED: dict[str, tuple[str, tuple[str, ...], dict[str, int], int]] = {
    "a zone that it could land in is back": ("zone", (), {"c-0": 1}, 9),
    "one that is back has settled": ("zone", (), {"c-0": 10}, 0),
    "of a zone, one node is back": ("zone", (), {"b-0": 1}, 0),
    "of a zone, all nodes that it could use are back": ("zone", ("b-1",), {"b-0": 1}, 9),
    "one is back that takes none": ("zone", ("c-0",), {"c-0": 1}, 0),
    "of many nodes, one is back": ("hostname", (), {"b-0": 1}, 0),
    "the only node that it could land on is back": ("hostname", ("b-1", "c-0"), {"b-0": 1}, 9),
    "it spreads over zones, too, and one is back": ("both", (), {"c-0": 1}, 9),
}


@pytest.mark.parametrize("case", UNSETTLED)
def test_no_pod_moves_into_a_domain_that_has_not_settled(case: str) -> None:
    key, shut, back, waits = UNSETTLED[case]
    every = objects(*nodes(a=1, b=2, c=1))
    for o in every:
        o["spec"] |= (
            {"taints": [{"key": "x", "effect": "NoSchedule"}]} if o["metadata"]["name"] in shut else {}
        )
    web = workload("web").spread("hostname" if key == "both" else key)
    if key == "both":
        web = web.spread("zone", 9)
    seen = snapshot(every, web.placed({"a-0": 6}))
    seen = replace(seen, nodes=tuple(_ready_for(n, back.get(n.name, 9000)) for n in seen.nodes))
    rules = HistoryRules(stabilization=180)
    made = plan(seen, PlanOptions())
    found = unsettled(seen.nodes, made.moves, made.constraints, Ledger(), rules, now=NOW, latest=NOW)
    assert [end_of(r) - NOW for r in found.values()] == ([waits] if waits else [])


def _ready_for(node: Node, seconds: float) -> Node:
    ready = Condition(
        type="Ready", status="True", last_transition_time=datetime.fromtimestamp(NOW - seconds, UTC)
    )
    return replace(node, status=replace(node.status, conditions=(ready,)))


@pytest.mark.parametrize(("owner", "counted"), [("", 2), ("ReplicaSet/default/web", 1)])
def test_pods_of_one_owner_are_no_evidence_apart_for_a_minute(owner: str, counted: int) -> None:
    verdicts = Verdicts()
    told, branches = verdicts.listen(), ("NodeName",)
    decided = Comparison(
        namespace="default",
        pod="web",
        node="a-0",
        result=Verdict.AGREES,
        certain=True,
        branches=branches,
        owner=owner,
    )
    for now, expected in ((NOW, counted), (NOW + 1.0, counted), (NOW + 2.0, 0 if owner else 2)):
        told(decided)
        told(decided)
        assert sum(number for number, _ in verdicts.shown(now).values()) == expected


def test_an_installation_is_known_by_its_ledger_and_a_process_without_one_by_its_name() -> None:
    place = Place("ops", "ledger")
    with ApiServer() as server, connected(server) as c:
        store = Ledgers(c, place, writer="p", wait=FakeTime().wait)
        for known, there in ((store, str(place)), (None, "p")):
            assert Memory(FakeTime(), HistoryRules(), store=known, writer="p").installation == there


def test_an_outcome_is_of_its_own_cycle() -> None:
    memory = remembering()
    cycle(memory, UNKNOWN)
    cycle(memory, evicted())
    assert [e.fate for e in memory.ledger.entries] == [Fate.UNKNOWN, Fate.DONE]


def test_replace_first_is_off_from_a_doubt_on() -> None:
    memory = remembering()
    assert memory.no_release() is None
    memory.doubt_release("a Ready pod went")
    reason = memory.no_release()
    assert reason is not None
    assert (reason.code, reason.numbers) == (ReasonCode.RELEASE_OFF, {})
    assert "a Ready pod went" in reason.message
    assert "`rebalancer resume` turns it on again" in reason.remedy
