"""A zone that goes and comes back again and again, and nodes that are replaced: caution grows and ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.history.ledger import Entry, Fate, Ledger
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import node, nodes, objects, workload
from tests.support.build.owners import OwnerBuilder
from tests.support.processes.command import call
from tests.support.processes.daemon_process import evictions
from tests.support.runs.machine import Begun, Machine, by_nodes
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.servers.api import FakeTime

RULES = HistoryRules(stabilization=180, cool_down=180)
ATTENDED = HistoryRules(after_undone=())
UNCAPPED = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_per_owner_per_day=None)))
MINUTE = 60.0
ZONE = "topology.kubernetes.io/zone"
THINGS = (*nodes(a=2, b=2, c=2), workload("web").spread("zone", 1).placed({"a-0": 4, "b-0": 4, "c-0": 4}))


def goes(m: Machine, *names: str) -> None:
    """The nodes are deleted, and what ran there is made again elsewhere."""
    for name in names:
        m.server.store.delete("Node", name, None)
        for p in m.server.store.list("Pod"):
            if p["spec"].get("nodeName") == name:
                m.server.store.delete("Pod", p["metadata"]["name"], "default", grace=0)
    for _ in range(6):
        m.hands.step()


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def comes(m: Machine, *names: str) -> None:
    """Nodes join, Ready since now."""
    at = stamp(m.time.at)
    for name in names:
        made = objects(node(name).zone(name[0]))[0]
        del made["metadata"]["resourceVersion"]
        made["status"]["conditions"][0]["lastTransitionTime"] = at
        m.server.store.create(made)


def outage(m: Machine) -> Begun:
    """Zone c is away for eight minutes, which a cycle sees, and has been back for half a minute: what watches
    have seen of that."""
    goes(m, "c-0", "c-1")
    run = m.cycle(RULES)
    m.time.at += 8 * MINUTE
    comes(m, "c-0", "c-1")
    m.time.at += 30
    return by_nodes(run, 30)


def test_outages_that_no_cycle_saw_are_no_loop() -> None:
    with Machine(THINGS) as m:
        for _ in range(4):
            m.time.at += 5 * MINUTE
            goes(m, "c-0", "c-1")
            m.time.at += 3 * MINUTE
            comes(m, "c-0", "c-1")
            m.time.at += 30
            assert m.cycle(ATTENDED, UNCAPPED).report.evicted == 4


def test_after_two_outages_within_an_hour_the_third_is_mended_too_and_each_wait_says_its_end(
    tmp_path: Path,
) -> None:
    with Machine(THINGS) as m:
        m.cycle(RULES)
        m.time.at += 5 * MINUTE
        first = m.cycle(RULES, begun=outage(m))
        assert (first.report.evicted, first.zones()) == (4, [4, 4, 4])

        m.time.at += 10 * MINUTE
        began = m.time.at
        waits = m.cycle(RULES, begun=outage(m))
        assert (waits.report.end, waits.report.evicted) == (End.WAITING, 0)
        assert "moves from topology.kubernetes.io/zone=" in waits.report.message
        assert waits.report.reason is not None
        until = waits.report.reason.numbers["until"]
        assert began + 10 * MINUTE <= until <= began + 11 * MINUTE
        assert f"waits until {datetime.fromtimestamp(until, UTC):%H:%M:%SZ}: " in waits.report.message
        assert "no eviction helps" not in waits.report.message
        m.time.at = until
        seen = by_nodes(waits, until - began - 8 * MINUTE)
        assert m.cycle(RULES, begun=seen).zones() == [4, 4, 4], "no longer than it said"

        m.time.at += 10 * MINUTE
        began = m.time.at
        waits = m.cycle(RULES, begun=outage(m))
        assert waits.report.end is End.WAITING
        assert waits.report.reason is not None
        assert waits.report.reason.code is ReasonCode.NODES_REMOVED
        assert "undone 2 times" in waits.report.message
        assert "`rebalancer once --execute` does not wait" in waits.report.reason.remedy
        assert began + 30 * MINUTE <= waits.report.reason.numbers["until"] <= began + 31 * MINUTE
        config = tmp_path / "config.yaml"
        config.write_text("ledger: {namespace: default}\n")
        report = call(m.server, tmp_path, "report", "--summary", "--config", str(config)).stdout
        said = " ".join(report.split())
        assert "4 evictions in " in said, "what `once --execute` would do"
        assert "`rebalancer run` leaves default/web alone: waits until " in said
        assert "were undone " in said, "by this machine's clock all was just now"
        assert "and open, for 10 s (`rebalancer once --execute` does not wait" in said, "all with one end"
        planned = json.loads(call(m.server, tmp_path, "report", "-o", "json", "--config", str(config)).stdout)
        pod = f"default/{planned['evictions'][0]['pod']}"
        explained = call(m.server, tmp_path, "explain", pod, "--config", str(config)).stdout
        assert "`rebalancer run` does not yet: waits until " in " ".join(explained.split())
        someone = m.cycle(ATTENDED)
    assert (someone.report.evicted, someone.zones()) == (4, [4, 4, 4]), "who watches does not wait"


def test_a_zone_that_comes_back_in_mid_cycle_has_to_settle_before_it_is_used() -> None:
    web = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 9, "b-0": 1})
    away = node("c-0").zone("c").not_ready()

    def choose(_: object, able: list[str]) -> str | None:
        return "c-0" if "c-0" in able else next(iter(able), None)

    with Machine((*nodes(a=1, b=1), away, web), choose=choose) as m:
        time, back = FakeTime(at=m.time.at), list[float]()

        def comes(_: float) -> None:
            if not back and evictions(m.server):
                back.append(time.at)
                said = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(time.at)}
                m.server.store.modify(
                    "Node", "c-0", None, lambda n: n["status"].update(conditions=[said]), subresource="status"
                )
                m.server.store.modify("Node", "c-0", None, lambda n: n["spec"].update(taints=[]))

        m.time.during = comes
        first = m.cycle(HistoryRules(), time=time)
        assert len(back) == first.report.evicted == 1, "it came when the first pod had gone"
        assert "nodes of a domain that is back" in first.report.message
        m.time.at = back[0] + 10
        assert m.cycle(HistoryRules()).zones() == [4, 3, 3]


@pytest.mark.parametrize("surge", [True, False], ids=["by surge", "in place"])
def test_a_rolling_replacement_of_all_nodes_is_followed(surge: bool) -> None:
    """Every node is replaced by one of another name; each time a cycle sees it, and moves what it may."""
    with Machine(THINGS) as m:
        m.cycle(RULES)
        for old in ("a-0", "a-1", "b-0", "b-1", "c-0", "c-1"):
            m.time.at += 5 * MINUTE
            if surge:
                comes(m, f"{old}x")
            goes(m, old)
            m.cycle(RULES)
            m.time.at += 4 * MINUTE
            if not surge:
                comes(m, f"{old}x")
            m.time.at += MINUTE
            m.cycle(RULES)
        m.time.at += 5 * MINUTE
        last = m.cycle(RULES)
    assert last.zones() == [4, 4, 4]
    assert last.report.end is End.COMPLETE


# What happens to nodes within one cycle, which may take hours: from the first replacement in zone c on.


def shuts(m: Machine, shut: bool) -> None:
    """Cordons zone c, or opens it."""
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}] if shut else []
    for name in ("c-0", "c-1"):
        m.server.store.modify(
            "Node", name, None, lambda n: n["spec"].update(unschedulable=shut, taints=taints)
        )


def in_c(m: Machine) -> int:
    """How many pods run in zone c."""
    pods = m.server.store.list("Pod")
    return sum(
        p["spec"].get("nodeName", "").startswith("c-") and p["status"].get("phase") == "Running" for p in pods
    )


def once_evicted(m: Machine, happens: Callable[[], None]) -> tuple[FakeTime, list[float]]:
    """The clock of the next cycle, in which that happens once after the first eviction; and when it did."""
    time, at = FakeTime(at=m.time.at), list[float]()

    def during(_: float) -> None:
        if not at and evictions(m.server):
            at.append(time.at)
            happens()

    m.time.during = during
    return time, at


UNEVEN = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 8, "a-1": 8})
IN_PASSING = HistoryRules(settle=0)


def test_moves_onto_nodes_that_join_in_mid_cycle_count_as_undone_when_those_go() -> None:
    with Machine((*nodes(a=2, b=2), UNEVEN)) as m:
        time, _ = once_evicted(m, lambda: comes(m, "c-0", "c-1"))
        assert m.cycle(IN_PASSING, UNCAPPED, time=time).zones() == [6, 5, 5]
        m.time.at += 5 * MINUTE
        waits = m.cycle(HistoryRules(stabilization=0, settle=0, cool_down=0), UNCAPPED, begun=outage(m))
    assert waits.report.reason is not None
    assert (waits.report.evicted, waits.report.reason.code) == (0, ReasonCode.NODES_REMOVED)


@pytest.mark.parametrize(("name", "fate"), [("b-9", Fate.DONE), ("c-9", Fate.ELSEWHERE)])
def test_a_replacement_on_a_node_that_has_joined_meanwhile_helped_if_its_zone_was_to_be_filled(
    name: str, fate: Fate
) -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 2, "a-1": 2, "b-0": 1})
    with Machine((*nodes(a=2, b=1), web), choose=lambda _, able: name if name in able else able[0]) as m:
        time, _ = once_evicted(m, lambda: comes(m, name))
        run = m.cycle(HistoryRules(stabilization=0), UNCAPPED, time=time)
        assert [e.fate for e in m.ledger().entries][:1] == [fate]
    assert run.zones() == ([3, 2] if fate is Fate.DONE else [3, 1, 1])


def test_nodes_that_come_and_go_under_new_names_are_filled_ever_less_often() -> None:
    """Each half hour an autoscaler adds one for twelve minutes, to which a spread over nodes sends a pod."""
    web = workload("web").spread("hostname", 1, taints_policy="Honor").placed({f"a-{i}": 2 for i in range(8)})
    filled, rules = [], HistoryRules(stabilization=0, cool_down=180)
    with Machine((*nodes(a=8), web)) as m:
        for i in range(8):
            comes(m, f"c-{i}")
            m.time.at += 6 * MINUTE
            if m.cycle(rules, UNCAPPED).report.evicted:
                filled.append(30 * i)
            m.time.at += 6 * MINUTE
            goes(m, f"c-{i}")
            m.time.at += 3 * MINUTE
            m.cycle(rules, UNCAPPED)
            m.time.at += 15 * MINUTE
    assert filled == [0, 30, 90]


@pytest.mark.parametrize("churn", [0, 2])
def test_nodes_that_come_and_go_leave_the_repair_of_a_zone_alone(churn: int) -> None:
    web = workload("web").spread("zone", 1).spread("hostname", 1)
    rules = HistoryRules(stabilization=0, settle=0, cool_down=180)
    with Machine((*nodes(a=2, b=2, c=2), web.placed({f"{z}-{i}": 2 for z in "abc" for i in (0, 1)}))) as m:
        for i in range(churn):
            m.time.at += 22 * MINUTE
            comes(m, f"a-n{i}")
            m.time.at += 4 * MINUTE
            assert m.cycle(rules, UNCAPPED).report.evicted == 1
            goes(m, f"a-n{i}")
            m.time.at += 4 * MINUTE
            m.cycle(rules, UNCAPPED)
        goes(m, "c-0", "c-1")
        m.cycle(rules, UNCAPPED)
        m.time.at += 8 * MINUTE
        comes(m, "c-0", "c-1")
        m.time.at += MINUTE
        assert m.cycle(rules, UNCAPPED).zones() == [4, 4, 4]


def test_a_repair_of_many_cycles_whose_excess_stays_until_its_end_is_no_loop() -> None:
    """Five nodes come back empty, and a cap lets one pod a cycle go: the last one lowers the excess."""
    web = workload("web").spread("hostname", 1).placed({f"a-{i}": 3 for i in range(5)})
    one = replace(
        EXECUTE,
        planning=PlanOptions(policy=PolicyOptions(max_per_owner=Limit(number=1), max_per_owner_per_day=None)),
    )
    with Machine((*nodes(a=5, b=5), web)) as m:
        for _ in range(5):
            assert m.cycle(HistoryRules(stabilization=0, cool_down=180), one).report.evicted == 1
            m.time.at += 5 * MINUTE
        assert m.cycle(HistoryRules(stabilization=0), one).report.message == "every constraint in scope holds"


def test_a_zone_that_goes_and_comes_back_in_mid_cycle_is_not_filled_again_by_it() -> None:
    web = workload("web").spread("zone", 1).needs(ZONE, "In", "a", "c").placed({"a-0": 4, "a-1": 4})
    long = workload("long").spread("zone", 1).needs(ZONE, "In", "a", "b").placed({"a-0": 24, "a-1": 24})
    with Machine((*nodes(a=2, b=2, c=2), web, long)) as m:
        time, gone, back = FakeTime(at=m.time.at), list[float](), list[float]()

        def during(_: float) -> None:
            if not gone and in_c(m) == 4:
                gone.append(time.at)
                goes(m, "c-0", "c-1")
            elif gone and not back:
                back.append(time.at)
                comes(m, "c-0", "c-1")

        m.time.during = during
        run = m.cycle(IN_PASSING, UNCAPPED, time=time)
        assert back, "within the cycle"
        went = [e for e in m.ledger().entries if e.pod.startswith("web") and e.at >= back[0]]
        assert (len(went), in_c(m)) == (0, 0), "zone c is left alone"
    assert run.report.reason is not None
    assert run.report.reason.code is ReasonCode.NODES_REMOVED


def test_a_zone_that_is_lost_before_a_replacement_comes_says_nothing_against_the_move() -> None:
    """It waits for ten minutes, as after an outage, and not until `retryAfter`."""
    web = workload("web").spread("zone", 1).placed({"a-0": 4, "b-0": 4})
    now = HistoryRules(stabilization=0, settle=0, cool_down=0)
    with Machine((*nodes(a=2, b=2, c=2), web)) as m:
        time, lost = once_evicted(m, lambda: goes(m, "c-0", "c-1"))
        m.cycle(now, UNCAPPED, time=time)
        assert {e.fate for e in m.ledger().entries} == {Fate.ELSEWHERE}
        m.time.at = time.at + 5 * MINUTE
        comes(m, "c-0", "c-1")
        waits = m.cycle(now, UNCAPPED)
        assert waits.report.reason is not None
        assert (waits.report.evicted, waits.report.reason.code) == (0, ReasonCode.NODES_REMOVED)
        m.time.at = waits.report.reason.numbers["until"]
        assert m.time.at <= lost[0] + 16 * MINUTE
        assert max(m.cycle(now, UNCAPPED).zones()) == 3


def test_a_zone_that_is_opened_and_shut_in_mid_cycle_is_out() -> None:
    with Machine((*nodes(a=2, b=2, c=2), UNEVEN)) as m:
        shuts(m, shut=True)
        time, began = FakeTime(at=m.time.at), m.time.at

        def during(_: float) -> None:
            if evictions(m.server) and time.at > began + 5:
                shuts(m, shut=time.at > began + 8)

        m.time.during = during
        m.cycle(IN_PASSING, UNCAPPED, time=time)
        doors = m.ledger().openings[f"{ZONE}=c"].values()
    assert max(d.shut for d in doors) > began


def test_a_planned_node_that_is_shut_since_is_no_way_around_a_pair_of_domains_that_waits() -> None:
    web = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 6, "b-0": 1, "c-0": 1})
    with Machine((*nodes(a=1, b=1, c=2), web), choose=lambda _, able: able[0]) as m:
        at = m.time.at - 300
        undone = Entry(
            at=at, cycle="p0-1-1", namespace="default", pod="other-1", uid="u", node="a-0", predicted="c-1",
            owner="ReplicaSet/default/other", fate=Fate.DONE, landed="c-1", leaves=(f"{ZONE}=a",),
            into=(f"{ZONE}=c",), room=(10**9,), removed=at + 180, shrank=(at + 180,),
        )  # fmt: skip
        m.keep(Ledger(entries=(undone,)))

        def during(_: float) -> None:
            if evictions(m.server):
                cordoned = node("x").cordoned().build()[0]["spec"]
                m.server.store.modify("Node", "b-0", None, lambda n: n["spec"].update(cordoned))

        m.time.during = during
        run = m.cycle(RULES)
    assert run.report.evicted == 1, "b was open for the first"
    assert run.report.reason is not None
    assert run.report.reason.code is ReasonCode.NODES_REMOVED


def comes_back(pods: Sequence[int], *placed: OwnerBuilder) -> tuple[list[int], Run]:
    """How many pods each cycle evicts, the first and those after so many pods have gone back from b-0 to a-0;
    and the last cycle."""
    back = [False]

    def choose(_: object, able: list[str]) -> str | None:
        return "a-0" if back[0] else next(iter(able), None)

    with Machine((*nodes(a=1, b=1), *placed), choose=choose) as m:
        went = [m.cycle(IN_PASSING, UNCAPPED).report.evicted]
        for number in pods:
            m.time.at += 20 * MINUTE
            back[0] = True
            there = [p for p in m.server.store.list("Pod") if p["spec"]["nodeName"] == "b-0"]
            for p in there[:number]:
                m.server.store.delete("Pod", p["metadata"]["name"], "default", grace=0)
            for _ in range(4):
                m.hands.step()
            back[0] = False
            last = m.cycle(IN_PASSING, UNCAPPED)
            went.append(last.report.evicted)
    return went, last


def test_a_loop_of_one_owner_does_not_go_on_with_the_pods_of_others_that_the_constraint_counts() -> None:
    owners = [workload(w).labels(part="shop") for w in ("w0", "w1", "w2")]
    placed = [w.spread("zone", 1, selector={"part": "shop"}).placed({"a-0": 3, "b-0": 1}) for w in owners]
    went, last = comes_back((2, 2, 2, 2), *placed)
    assert [n > 0 for n in went] == [True, True, True, False, False]
    assert last.report.reason is not None
    assert last.report.reason.code is ReasonCode.EVICTION_LOOP


def test_a_violation_that_is_mended_and_comes_back_smaller_each_time_is_a_loop() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 11, "b-0": 5})
    went, last = comes_back((2, 1, 1), web)
    assert went == [3, 2, 1, 0]
    assert last.report.reason is not None
    assert last.report.reason.code is ReasonCode.EVICTION_LOOP
