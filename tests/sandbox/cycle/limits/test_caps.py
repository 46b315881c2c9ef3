"""Caps that span cycles: the ledger counts, and only time makes it forget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.kube.config_maps import Ledgers
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.history.ledger import MOST_BYTES, Fate, Ledger, Opening
from rebalancer.policy.history.ledger_json import encode
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.configured import LiveOptions
from tests.support.build import deployment, node, nodes, objects, replica_set, workload
from tests.support.processes.command import call
from tests.support.runs.machine import PLACE, Machine
from tests.support.runs.one_cycle import EXECUTE, Run, elsewhere
from tests.support.sandbox import Reply
from tests.support.servers.api import QUICK, FakeTime, connected


def capped(**caps: Any) -> LiveOptions:
    return LiveOptions(execute=True, backoff=QUICK, planning=PlanOptions(policy=PolicyOptions(**caps)))


SPANNING = [
    ("of a day", capped(max_per_owner_per_day=Limit(percent=50)), 86_400.0, 3),
    ("of an hour", capped(max_total_per_hour=Limit(number=2)), 3600.0, 2),
]


@pytest.mark.parametrize(("options", "span", "most"), [c[1:] for c in SPANNING], ids=[c[0] for c in SPANNING])
def test_a_cap_holds_over_cycles_processes_and_changes_until_its_time_is_over(
    options: LiveOptions, span: float, most: int
) -> None:
    """Six pods in one zone of three: four evictions are planned."""
    with Machine() as m:
        first = m.cycle(options=options)
        began = m.time.at
        assert (first.report.end, first.report.evicted) == (End.CAPPED, most)
        made = objects(node("new-0").zone("a"))[0]
        made["metadata"].pop("resourceVersion", None)
        m.server.store.create(made)
        again = m.cycle(options=options)
        assert (again.report.end, again.report.evicted) == (End.CAPPED, 0)
        assert again.report.reason is not None
        assert again.report.reason.code is ReasonCode.CAP
        assert again.report.message.startswith("waits until ")
        until = again.report.reason.numbers["until"]
        assert [p.waits is not None for p in again.story.plans[-1].moves] == [True] * (4 - most)
        m.time.at = until
        first_more = m.cycle(options=options).report.evicted
        assert first_more, "no later than it said"
        m.time.at = began + span + 1
        last = m.cycle(options=options)
        assert (last.report.end, last.report.evicted) == (End.COMPLETE, 4 - most - first_more)


def release_of_a_rollout(number: int) -> list[Any]:
    """Each has a ReplicaSet of its own, which leaves what the former one has left."""
    made = [*nodes(a=1, b=1), *objects(replica_set(f"web-{number}").spread("zone", 1).placed({"a-0": 4}))]
    top = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "u"}
    for one in made:
        if isinstance(one, dict) and one["kind"] == "ReplicaSet":
            one["metadata"]["ownerReferences"] = [{**top, "controller": True}]
    return made


def test_a_cap_of_an_owner_holds_over_the_releases_of_an_argo_rollout() -> None:
    options = capped(max_per_owner_per_day=Limit(number=2))
    with Machine(release_of_a_rollout(0)) as m:
        assert m.cycle(options=options).report.evicted == 2
        ledger, at = m.ledger(), m.time.at
    with Machine(release_of_a_rollout(1)) as m:
        m.keep(ledger)
        m.time.at = at + 60
        run = m.cycle(options=options)
    assert (run.report.end, run.report.evicted) == (End.CAPPED, 0)


def test_a_report_says_what_goes_later_and_what_lifts_the_cap(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "ledger: {namespace: default}\npolicy: {minPodAge: 0s}\n"
        "evictions: {maxPerOwnerPerDay: 50%, stabilization: 0s, coolDown: 0s}\n"
    )
    with Machine() as m:

        def said(command: str, *more: str) -> str:
            done = call(m.server, tmp_path, command, "--config", str(config), *more)
            return " ".join(f"{done.stdout} {done.stderr}".split())

        before = said("report", "--summary")
        assert "after 4 evictions (1 of them later) it takes 33%" in before
        assert "1 of 4 evictions goes later: waits until " in before
        assert m.cycle(options=SPANNING[0][1]).report.evicted == 3
        after = said("report", "--summary")
        dry = said("once")
    for text in (after, dry):
        assert "1 of 1 eviction goes later: waits until " in text
        assert "the cap of 50% evictions per owner and day (ReplicaSet/default/web) is reached" in text
        assert "REBALANCER_EVICTIONS__MAX_PER_OWNER_PER_DAY=none rebalancer once --execute" in text
    assert "`once --execute` would evict nothing now" in after
    assert "--execute does it" not in dry


def test_a_cap_leaves_the_plan_whole() -> None:
    with Machine() as m:
        run = m.cycle(options=capped(max_total=Limit(number=1)))
    first = run.story.plans[0]
    assert (len(first.moves), len(first.allowed), run.report.evicted) == (4, 1, 1)
    assert first.residual_excess == 0


def skewed(owners: int) -> tuple[Any, ...]:
    """Each of them has two moves to make, which all are of one wave."""
    each = (deployment(f"w{i:02}").spread("zone", 1).placed({"a-0": 3}) for i in range(owners))
    return (*nodes(a=1, b=1, c=1), *each)


def sent(run: Run) -> list[float]:
    return [o.at for o in run.story.outcomes if o.evicted]


@pytest.mark.parametrize("most", [1, 3], ids=["one a cycle", "several that are written down at once"])
def test_the_pace_goes_on_from_the_last_eviction_of_another_process(most: int) -> None:
    slow = replace(capped(max_total=Limit(number=most)), limits=CycleLimits(per_second=0.01))
    with Machine(skewed(4)) as m:
        times = [at for _ in range(2) for at in sent(m.cycle(options=slow))]
    assert [b - a >= 100 for a, b in pairwise(times)] == [True] * (2 * most - 1)


def test_a_cap_counts_an_eviction_from_when_it_was_sent_and_writes_no_more_for_that() -> None:
    """A whole wave is written down at once. Half of it is sent minutes later, as replacements take long."""
    hourly = replace(
        capped(max_total_per_hour=Limit(number=12)),
        limits=CycleLimits(per_second=1.0),
        settle=SettleLimits(ready=600.0, pending=60.0, poll=10.0),
    )
    with Machine(skewed(12), ready_after=30, seconds=10.0) as m:
        began = m.time.at
        first = sent(m.cycle(options=hourly))
        assert (len(first), len({at // 60 for at in first})) == (12, 2)
        assert [e.at for e in m.ledger().entries] == first
        assert m.ledger().serial < 12
        m.time.at, m.hands.ready_after = began + 3600.0, 1
        times = first + sent(m.cycle(options=hourly))
    assert max(sum(t <= u < t + 3600 for u in times) for t in times) == 12


def test_a_stop_while_the_ledger_is_written_for_longer_than_the_pace_leaves() -> None:
    def slow(memory: Memory) -> None:
        save = memory.save

        def saved() -> None:
            save()
            if any(e.fate is Fate.DONE for e in memory.ledger.entries) and not time.stop:
                time.at, time.stop = time.at + 1.5, True

        memory.save = saved  # type: ignore[method-assign]

    with Machine(skewed(8)) as m:
        time = FakeTime(at=m.time.at)
        run = m.cycle(options=replace(EXECUTE, limits=CycleLimits(per_second=1.0)), time=time, begun=slow)
        assert run.report.end is End.STOPPED
        assert {e.fate for e in m.ledger().entries} <= {Fate.DONE, Fate.UNSEEN}, "and none that was not sent"


@pytest.mark.parametrize("ahead", [3000.0, 7200.0, 2 * 86_400.0])
def test_a_clock_that_was_ahead_lifts_no_cap(ahead: float) -> None:
    two_an_hour = capped(max_total_per_hour=Limit(number=2))
    with Machine() as m:
        right = m.time.at
        m.time.at = right + ahead
        assert m.cycle(options=two_an_hour).report.evicted == 2
        m.time.at = right + 120
        assert m.cycle(options=two_an_hour).report.evicted == 0
        m.time.at = right + 120 + 3700
        assert m.cycle(options=two_an_hour).report.evicted == 2


def test_an_owner_does_not_rest_for_longer_because_a_clock_was_ahead() -> None:
    with Machine() as m:
        right = m.time.at
        m.time.at = right + 365 * 86_400
        rules = HistoryRules(cool_down=600.0)
        assert m.cycle(rules, capped(max_total=Limit(number=1))).report.evicted == 1
        m.time.at = right
        assert m.cycle(rules).report.evicted == 0
        m.time.at = right + 700
        assert m.cycle(rules).report.evicted == 3


WEB = (*nodes(a=1, b=1, c=1), deployment("web").spread("zone", 1).placed({"a-0": 6}))
ONE = capped(max_total=Limit(number=1))
BOUND = {
    "a cap of a day": (capped(max_per_owner_per_day=Limit(number=1)), HistoryRules(), ReasonCode.CAP),
    "a cool-down": (ONE, HistoryRules(cool_down=600.0), ReasonCode.COOL_DOWN),
}


@contextmanager
def not_listed(m: Machine) -> Iterator[None]:
    """Deployments can be read one by one, and neither listed nor watched."""
    faults = [m.server.faults.add(Reply(403), verb=v, resource="deployments") for v in ("list", "watch")]
    yield
    for fault in faults:
        m.server.faults.remove(fault)


def left_alone(run: Run) -> set[ReasonCode]:
    """Why, by the last plan."""
    plan = run.story.plans[-1]
    return {b.reason.code for b in plan.blocked} | {p.waits.code for p in plan.moves if p.waits}


@pytest.mark.parametrize(("options", "rules", "code"), BOUND.values(), ids=BOUND)
@pytest.mark.parametrize("listed", [True, False])
def test_an_owner_is_the_same_whether_its_deployment_may_be_listed_or_not(
    options: LiveOptions, rules: HistoryRules, code: ReasonCode, listed: bool
) -> None:
    """Rights are taken away, or given, from one process to the next."""
    with Machine(WEB) as m:
        for now in (listed, not listed):
            with nullcontext() if now else not_listed(m):
                run = m.cycle(rules, options)
        assert [e.owner for e in m.ledger().entries] == ["Deployment/default/web"]
    assert run.report.evicted == 0
    assert left_alone(run) == {code}


def test_a_move_that_did_not_help_is_not_made_again_because_its_deployment_may_not_be_listed() -> None:
    with Machine(WEB, choose=elsewhere("a-0")) as m:
        assert m.cycle(options=ONE).report.evicted == 1
        with not_listed(m):
            run = m.cycle(options=ONE)
    assert run.report.evicted == 0
    assert left_alone(run) == {ReasonCode.DID_NOT_HELP}


RACK = "example.com/rack"
TAINTS = [f"node.kubernetes.io/{what}:NoSchedule" for what in ("not-ready", "unreachable", "unschedulable")]
TAINTS += [f"ToBeDeletedByClusterAutoscaler=17642448{n:02}:NoSchedule" for n in range(12)]


def test_domains_with_a_long_history_push_no_evictions_out_of_the_ledger() -> None:
    """Many racks, each of which was shut in many ways within a day."""
    racks = [
        node(f"r-{i}").label(RACK, f"hall-17-row-4-rack-{i:04}").taint("for", "others") for i in range(600)
    ]
    spread = workload("racks").spread(RACK, 1).replicas(0)
    capped_once = capped(max_per_owner=Limit(number=1))
    with Machine(
        (*nodes(a=1, b=1, c=1), *racks, spread, workload("web").spread("zone", 1).placed({"a-0": 6}))
    ) as m:
        now = m.time.at
        shut = {taints: Opening(now - 90_000.0, now - 80_000.0 + n) for n, taints in enumerate(TAINTS)}
        before = Ledger(
            openings={f"{RACK}=hall-17-row-4-rack-{i:04}": shut for i in range(600)}, looked=now - 10.0
        )
        assert len(encode(before)) > MOST_BYTES
        with connected(m.server) as c:
            Ledgers(c, PLACE, writer="p0", wait=m.time.wait).save(before)
        first = m.cycle(HistoryRules(cool_down=3600.0), capped_once)
        assert (first.report.end, first.report.evicted) == (End.CAPPED, 1), first.report.message
        assert len(m.ledger().entries) == 1
        second = m.cycle(HistoryRules(cool_down=3600.0), capped_once)
        assert left_alone(second) == {ReasonCode.COOL_DOWN}
        assert second.report.evicted == 0
        assert m.ledger().openings, "the latest of them stay"


def test_what_a_cycle_did_is_not_forgotten_for_want_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine() as m:
        monkeypatch.setattr("rebalancer.policy.history.ledger_json.MOST_BYTES", 600)
        monkeypatch.setattr("rebalancer.kube.config_maps.MOST_BYTES", 600)
        run = m.cycle(options=capped(max_per_owner=Limit(number=3)))
        assert run.report.end is End.ABORTED
        assert "cannot be written down: ConfigMap default/rebalancer-ledger would have" in run.report.message
        assert run.evictions() == len(m.ledger().entries) < 3
        assert m.cycle(options=capped(max_per_owner=Limit(number=1))).report.evicted == 1, "the next goes on"


@pytest.mark.parametrize("how", ["stays", "loses its label", "is deleted"])
def test_a_cap_per_domain_counts_what_went_from_a_node_that_is_not_in_the_domain_any_more(how: str) -> None:
    """Rack r0 has a node in each of two zones, whose pods go for the sake of their zones."""
    things = [
        *(node(f"{zone}-0").zone(zone).label("rack", "r0").cpu(100) for zone in "ab"),
        *(node(f"c-{i}").zone("c").label("rack", f"r{1 + i}") for i in range(2)),
        *(deployment(f"w{zone}").spread("zone", 1).placed({f"{zone}-0": 2}) for zone in "ab"),
        deployment("racks").spread("rack", 3).placed({"c-0": 1}),
    ]
    rack = "topology.example/rack"
    with Machine(things) as machine:
        store = machine.server.store

        def change(_: float) -> None:
            sent = [a.name for a in machine.server.accesses if a.subresource == "eviction" and a.code == 201]
            left = f"{sent[0][1]}-0" if sent else None
            if how == "stays" or left is None or store.find("Node", left) is None:
                return
            if how == "loses its label":
                store.modify("Node", left, None, lambda n: n["metadata"]["labels"].pop(rack, None))
                return
            store.delete("Node", left)
            for p in store.list("Pod", where=lambda p: p["spec"].get("nodeName") == left):
                store.delete("Pod", p["metadata"]["name"], "default", grace=0)

        machine.time.during = change
        assert machine.cycle(options=capped(max_per_domain=Limit(number=1))).evictions() == 1
