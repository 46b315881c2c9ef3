"""A zone that is out on purpose: what its opening could change waits, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.policy.history.waits import HistoryRules
from tests.support.build import NodeBuilder, node, nodes, workload
from tests.support.processes.command import call
from tests.support.runs.machine import BRAKE, Machine, by_nodes
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.servers.api import FakeTime

HOUR = 3600.0
RULES = HistoryRules(stabilization=180, out_wait=6 * HOUR)
LOOKS = replace(EXECUTE, max_time=0.0)
"""A cycle that looks and evicts nothing."""
BRAKED = replace(EXECUTE, brake=BRAKE)
WEB = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 4, "b-0": 1, "c-0": 1})
INSIDE = workload("in").spread("zone", 1).needs("topology.kubernetes.io/zone", "In", "a", "b")
THINGS = (*nodes(a=2, b=2, c=2), WEB, INSIDE.placed({"a-1": 3, "b-1": 1}))
ZONE_C = "topology.kubernetes.io/zone=c"


def cordon(m: Machine, *names: str) -> None:
    for name in names:
        m.server.store.modify(
            "Node", name, None, lambda n: n["spec"].update(node("x").cordoned().build()[0]["spec"])
        )


def taint(m: Machine, *names: str) -> None:
    taints = [{"key": "shift", "effect": "NoExecute"}]
    for name in names:
        m.server.store.modify("Node", name, None, lambda n: n["spec"].update(taints=taints))


def maintain(m: Machine, *names: str) -> None:
    said = {"type": "MaintenanceInProgress", "status": "True"}
    for name in names:
        m.server.store.modify(
            "Node", name, None, lambda n: n["status"]["conditions"].append(said), subresource="status"
        )


def opened(m: Machine, *names: str) -> None:
    for name in names:
        m.server.store.modify("Node", name, None, lambda n: n["spec"].update(unschedulable=False, taints=[]))


def moved(run: Run) -> set[str]:
    """The workloads of which pods went."""
    return {o.move.owner.metadata.name for o in run.report.outcomes if o.evicted}


@pytest.mark.parametrize("shut", [cordon, taint])
def test_what_an_out_zone_could_change_waits_for_six_hours_at_most(shut: Callable[..., None]) -> None:
    with Machine(THINGS) as m:
        m.cycle(RULES, LOOKS)
        m.time.at += 60
        shut(m, "c-0", "c-1")
        began = m.time.at
        first = m.cycle(RULES)
        assert (moved(first), first.report.end) == ({"in"}, End.WAITING)
        assert first.report.reason is not None
        assert first.report.reason.code is ReasonCode.DOMAIN_OUT
        assert f"{ZONE_C} is out: none of its nodes has been open since " in first.report.message
        [finding] = [f for f in first.story.plans[-1].findings if f.code == "domain-out"]
        assert (finding.object, "evictions.outWait" in finding.remedy) == (f"Domain/{ZONE_C}", True)
        m.time.at = began + 6 * HOUR - 60
        assert m.cycle(RULES).report.evicted == 0
        m.time.at = first.report.reason.numbers["until"]
        last = m.cycle(RULES)
        assert moved(last) == {"web"}, "from then on it counts as the normal state"
        assert not [f for f in last.story.plans[-1].findings if f.code == "domain-out"]


@pytest.mark.parametrize(
    ("shut", "asked"),
    [((0.0, 0.0), (0.0, 50 * HOUR)), ((-7 * HOUR, 7 * HOUR), (0.0, 0.0))],
    ids=["one is ahead when it is asked", "one was behind when it was shut"],
)
def test_of_two_clocks_that_disagree_the_later_end_counts(
    shut: tuple[float, float], asked: tuple[float, float]
) -> None:
    with Machine(THINGS) as m:
        right = m.time.at
        m.cycle(RULES, LOOKS)
        cordon(m, "c-0", "c-1")
        m.cycle(RULES, LOOKS, time=FakeTime(right + shut[0], shut[1]))
        run = m.cycle(RULES, time=FakeTime(right + 60 + asked[0], asked[1]))
    assert (moved(run), run.report.end) == ({"in"}, End.WAITING)


def test_a_zone_in_maintenance_is_named() -> None:
    with Machine(THINGS) as m:
        m.cycle(RULES, LOOKS)
        maintain(m, "c-0", "c-1")
        run = m.cycle(RULES)
    assert moved(run) == {"in"}
    [finding] = [f for f in run.story.plans[-1].findings if f.code == "domain-out"]
    assert finding.object == f"Domain/{ZONE_C}"


def test_its_opening_is_an_event_and_need_not_last() -> None:
    web = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 3, "b-0": 3})
    with Machine((*nodes(a=1, b=1, c=2), web)) as m:
        m.cycle(RULES, LOOKS)
        cordon(m, "c-0", "c-1")
        m.cycle(RULES)
        m.time.at += HOUR
        opened(m, "c-0")
        half = m.cycle(RULES)
        m.time.at += 30
        assert m.cycle(RULES).report.evicted == 0, "the next may still be about to be drained"
        opened(m, "c-1")
        m.time.at += 15
        whole = m.cycle(RULES, begun=by_nodes(half, 45))
    assert {b.reason.code for b in half.story.plans[-1].blocked} == {ReasonCode.STABILIZING}
    assert whole.report.evicted == 2


OTHERS: dict[str, tuple[Any, Callable[[Machine], None]]] = {
    "one of two nodes is cordoned": ([], lambda m: cordon(m, "c-0")),
    "a zone of one node is cordoned": ([node("d-0").zone("d")], lambda m: cordon(m, "d-0")),
    "a pool of its own taint is there": (
        [node(f"d-{i}").zone("d").taint("gpu") for i in range(2)], lambda _: None,
    ),
    "a zone was shut before anybody looked": (
        [node(f"d-{i}").zone("d").cordoned() for i in range(2)], lambda _: None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_nothing_waits_where(case: str) -> None:
    more: list[NodeBuilder]
    more, happens = OTHERS[case]
    with Machine((*THINGS, *more)) as m:
        m.cycle(RULES, LOOKS)
        happens(m)
        m.time.at += 60
        run = m.cycle(RULES)
    assert moved(run) == {"web", "in"}
    assert not [f for f in run.story.plans[-1].findings if f.code == "domain-out"]


def test_a_zone_that_is_cordoned_in_the_middle_of_a_cycle_stops_the_next_eviction() -> None:
    with Machine(
        (*nodes(a=1, b=1, c=2), workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 9}))
    ) as m:

        def shut(_: float) -> None:
            if any(a.subresource == "eviction" for a in m.server.accesses):
                cordon(m, "c-0", "c-1")

        m.time.during = shut
        run = m.cycle(RULES)
    assert 0 < run.report.evicted < 6
    assert run.report.end is End.WAITING


def test_pause_of_a_domain_does_the_same_by_hand(tmp_path: Path) -> None:
    reviewed = tmp_path / "plan.json"
    with Machine(THINGS) as m:
        call(m.server, tmp_path, "report", "-o", "json", "--output-file", str(reviewed))
        done = call(m.server, tmp_path, "pause", "--domain", "zone=c", "--reason", "shift", "-n", "default")
        assert done.returncode == 0, done.stderr
        assert (
            f"evictions by the rebalancer of namespace default that {ZONE_C} could change are paused"
            in done.stdout
        )
        run = m.cycle(RULES, BRAKED)
        assert (moved(run), run.report.end) == ({"in"}, End.WAITING)
        assert f"{ZONE_C} is out: rebalancer.io/pause-domain-" in run.report.message
        assert run.report.reason is not None
        assert "`rebalancer resume` with the same --domain ends it" in run.report.reason.remedy
        config = tmp_path / "config.yaml"
        config.write_text("ledger: {namespace: default}\nbrake: {namespace: default}\n")
        dry = call(m.server, tmp_path, "once", "--plan", str(reviewed), "--config", str(config)).stdout
        assert "would be evicted" not in dry
        assert f"{ZONE_C} is out" in dry
        report = " ".join(
            call(m.server, tmp_path, "report", "--summary", "--config", str(config)).stdout.split()
        )
        assert (
            f"`rebalancer run` leaves default/web alone: waits for `rebalancer resume`: {ZONE_C} is out"
            in report
        )
        assert "No eviction" not in report
        other = call(m.server, tmp_path, "resume", "-n", "default").stdout
        assert f"{ZONE_C} is still out: `rebalancer resume --domain {ZONE_C}` ends that" in other
        call(m.server, tmp_path, "resume", "--domain", "zone=c", "-n", "default")
        assert moved(m.cycle(RULES, BRAKED)) == {"web"}


def test_a_zone_that_is_out_stays_so_when_one_of_its_nodes_is_removed() -> None:
    web = workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 4, "b-0": 2})
    with Machine((*nodes(a=2, b=2, c=2), web)) as m:
        m.cycle(RULES, LOOKS)
        cordon(m, "c-0", "c-1")
        first = m.cycle(RULES)
        m.server.store.delete("Node", "c-0")
        m.time.at += 600
        second = m.cycle(RULES)
    for run in (first, second):
        assert moved(run) == set()
        assert f"{ZONE_C} is out" in run.report.message


def test_a_zone_of_several_nodes_is_out_for_who_can_use_only_one_of_them() -> None:
    pool = [node(f"{z}-9").zone(z).label("pool", "p") for z in "abc"]
    web = workload("web").spread("zone", 1, taints_policy="Honor").selects(pool="p")
    with Machine((*nodes(a=1, b=1, c=2), *pool, web.placed({"a-9": 4, "b-9": 2}))) as m:
        m.cycle(RULES, LOOKS)
        cordon(m, "c-0", "c-1", "c-9")
        assert moved(m.cycle(RULES)) == set()


def test_pause_of_a_domain_binds_within_one_eviction_and_ends_by_itself() -> None:
    with Machine(
        (*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1, taints_policy="Honor").placed({"a-0": 9}))
    ) as m:
        m.cycle(RULES, replace(LOOKS, brake=BRAKE))

        def pause(_: float) -> None:
            said = {"rebalancer.io/pause-domain-x": f"{ZONE_C} 2033-05-18T06:00:00Z drain"}
            m.server.store.modify(
                "ConfigMap", BRAKE.name, BRAKE.namespace, lambda o: o["metadata"].update(annotations=said)
            )

        m.time.during = pause
        run = m.cycle(RULES, BRAKED)
        assert run.report.evicted == 1
        assert run.report.message.startswith("waits until 06:00:00Z: ")
        m.time.at += 3 * HOUR
        assert m.cycle(RULES, BRAKED).report.evicted > 1


@pytest.mark.parametrize("said", [f"{ZONE_C} 9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59-12:00"])
def test_a_pause_that_ends_later_than_any_page_can_show_has_no_end(said: str) -> None:
    with Machine(THINGS) as m:
        m.cycle(RULES, replace(LOOKS, brake=BRAKE))

        def pause(_: float) -> None:
            key = "rebalancer.io/pause-domain-x" if said.startswith(ZONE_C) else "rebalancer.io/pause"
            m.server.store.modify(
                "ConfigMap",
                BRAKE.name,
                BRAKE.namespace,
                lambda o: o["metadata"].update(annotations={key: said}),
            )

        m.time.during = pause
        m.cycle(RULES, BRAKED)
        then = m.cycle(RULES, BRAKED)
        assert "web" not in moved(then)
        assert said in then.report.message
        assert "waits until" not in then.report.message


@pytest.mark.parametrize("slip", ["zone=C", "topologi.kubernetes.io/zone=c"])
def test_pause_of_a_domain_that_no_node_is_in_pauses_everything(slip: str, tmp_path: Path) -> None:
    with Machine(THINGS) as m:
        done = call(m.server, tmp_path, "pause", "--domain", slip, "-n", "default")
        assert done.returncode == 0, done.stderr
        run = m.cycle(RULES, BRAKED)
        assert run.report.evicted == 0
        assert "every domain is out" in run.report.message
        assert "and no node has been in" in run.report.message
