"""What a cycle remembers, and what may stop it: ledger, canary, stabilization, windows, pauses, breaker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from rebalancer.kube.config_maps import KEY, LedgerError, Ledgers
from rebalancer.kube.reading import read_snapshot
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome import End
from rebalancer.planner import PlanOptions
from rebalancer.policy.annotations import BEING_EVICTED, PAUSE
from rebalancer.policy.caps import Window, parse_cron
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.ledger import Circuit, Claim, Entry, Fate, Ledger
from rebalancer.policy.history.ledger_json import encode
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.commands.remembered import remembered
from rebalancer.runtime.commands.source import Source
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions, circuit_limits
from rebalancer.settings import Settings, load_settings
from tests.support.build import node, nodes, objects, pdb, workload
from tests.support.runs.machine import BRAKE, PLACE, Machine
from tests.support.runs.one_cycle import EXECUTE, PATIENT, SKEWED, Run, elsewhere
from tests.support.sandbox import ApiServer, Cut, Reply, Store
from tests.support.servers.api import QUICK, FakeTime, connected

ZONE = ZoneInfo("UTC")

ONE = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_total=Limit(number=1))))
"""One eviction a cycle."""
YEAR = 365 * 86_400.0


def test_evictions_are_written_down_with_what_was_predicted_and_what_happened() -> None:
    with Machine() as m:
        run = m.cycle()
        ledger = m.ledger()
    assert run.report.end is End.COMPLETE
    assert len(ledger.entries) == run.report.evicted == 4
    assert {e.fate for e in ledger.entries} == {Fate.DONE}
    for entry, outcome in zip(ledger.entries, run.report.outcomes, strict=True):
        assert (entry.node, entry.landed) == ("a-0", outcome.node)
        assert entry.leaves == ("topology.kubernetes.io/zone=a",)
        assert entry.owner == "ReplicaSet/default/web"
    assert ledger.totals.in_a_row == 4


def test_what_is_intended_is_written_before_the_first_eviction() -> None:
    with Machine() as m:
        m.cycle()
        log = [(a.verb, a.resource, a.subresource) for a in m.server.accesses]
    assert log.index(("create", "configmaps", "")) < log.index(("create", "pods", "eviction"))


def test_what_was_intended_and_not_written_is_not_written_later_either() -> None:
    """Somebody else writes the ledger right before: nothing is evicted, the other account is not touched."""
    with Machine() as m:
        m.cycle(options=ONE)
        before = m.ledger().entries
        assert len(before) == 1

        m.time.at += 60
        with connected(m.server) as c:
            time = FakeTime(at=m.time.at)
            ledgers = Ledgers(c, PLACE, writer="p2", wait=time.wait, backoff=QUICK)
            load = ledgers.load

            def load_and_lose() -> Ledger:
                found = load()
                m.server.store.modify(
                    "ConfigMap", PLACE.name, PLACE.namespace, lambda o: o["data"].update(other="writes")
                )
                return found

            ledgers.load = load_and_lose  # type: ignore[method-assign]
            memory = Memory(
                time, HistoryRules(), store=ledgers, writer="p2", limits=CircuitLimits(), term=lambda: 2
            )
            run = Run(m.server, hands=m.hands, time=time, around=Surroundings(memory=memory))
        after = m.ledger().entries
    assert run.report.end is End.ABORTED
    assert "written by somebody else" in run.report.message
    assert run.report.evicted == 0
    assert after == before


def test_a_ledger_that_cannot_be_written_means_no_eviction() -> None:
    with Machine() as m:
        m.server.faults.add(Reply(403), verb="create", resource="configmaps")
        run = m.cycle()
    assert run.report.end is End.ABORTED
    assert run.evictions() == 0
    assert "nothing is evicted, as it cannot be written down" in run.report.message
    assert 'resources: ["configmaps"]' in run.report.message


def test_a_ledger_that_cannot_be_read_is_an_error_for_who_evicts() -> None:
    with Machine() as m:
        m.server.faults.add(Reply(403), verb="get", resource="configmaps")
        with pytest.raises(Exception, match="get configmaps"):
            m.cycle()
        dry = m.cycle(options=LiveOptions(backoff=QUICK), read_only=True)
    assert dry.report.end is End.RECORDED


def test_a_dry_run_reads_the_ledger_and_leaves_it_alone() -> None:
    with Machine() as m:
        m.cycle(HistoryRules(stabilization=60), LiveOptions(backoff=QUICK), read_only=True)
        assert [c["metadata"]["name"] for c in m.server.store.list("ConfigMap")] == ["rebalancer-brake"]


def test_a_lost_answer_to_a_write_is_cleared_up() -> None:
    with Machine() as m:
        m.server.faults.add(Cut("after"), resource="configmaps", verb="create", times=1)
        m.server.faults.add(Cut("after"), resource="configmaps", verb="update", times=2)
        run = m.cycle()
    assert run.report.end is End.COMPLETE


def failure(code: int, message: str) -> Reply:
    """A Status of the API server."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError"}
    return Reply(code, {**status, "message": message, "code": code})


IN_DOUBT: dict[str, tuple[Cut | Reply, bool]] = {
    "a connection that was cut": (Cut("before"), True),
    "an etcd that did not answer": (failure(500, "etcdserver: request timed out"), True),
    "one that names a pod called after a webhook": (failure(500, 'pods "my-webhook-0": etcd: timeout'), True),
    "a time that was over": (failure(504, "request did not complete within the allotted timeout"), True),
    "a page of a proxy": (Reply(502, b"<html>bad gateway</html>"), True),
    "a webhook that failed": (failure(500, 'failed calling webhook "a.example.com": EOF'), False),
    "a webhook that denied by an error of its own": (
        failure(500, 'admission webhook "a.example.com" denied the request: no database'),
        False,
    ),
    "several budgets": (failure(500, "This pod has more than one PodDisruptionBudget"), False),
}


@pytest.mark.parametrize("case", IN_DOUBT)
def test_a_request_that_may_be_carried_out_late_stays_in_the_ledger_although_its_pod_is_there(
    case: str,
) -> None:
    """Then caps and cool-downs have to know of it."""
    fault, in_doubt = IN_DOUBT[case]
    with Machine() as m:
        m.server.faults.add(fault, subresource="eviction")
        assert m.cycle().report.evicted == 0
        entries = m.ledger().entries
        alive = {p["metadata"]["uid"] for p in m.server.store.list("Pod")}
    assert {e.fate for e in entries} == ({Fate.UNKNOWN} if in_doubt else set())
    assert {e.uid for e in entries} <= alive


def budget_is_charged(store: Store) -> None:
    store.modify(
        "PodDisruptionBudget",
        "web",
        "default",
        lambda o: o["status"].update(disruptionsAllowed=0),
        subresource="status",
    )


@pytest.mark.parametrize("next_answer", ["none, as its budget is charged", "wait"])
def test_an_eviction_that_an_etcd_carries_out_seconds_after_its_error_is_in_the_ledger(
    next_answer: str,
) -> None:
    """Whether its pod is found to end in a further try of the same request, or in a later one."""
    things = [*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 7, "b-0": 1})]
    charged = next_answer != "wait"
    rules, seconds = HistoryRules(cool_down=3600), [0.0]
    with Machine([*things, pdb("web", {"app": "web"}, max_unavailable=1)] if charged else things) as m:
        m.hands.budgets_every = 10**6
        m.server.faults.add(failure(500, "etcdserver: request timed out"), subresource="eviction", times=1)
        if not charged:
            m.server.faults.add(Reply(429, headers={"Retry-After": "4"}), subresource="eviction", times=1)

        def commit(passed: float) -> None:
            asked = [a.name for a in m.server.accesses if a.subresource == "eviction"]
            if asked and seconds[0] < 4:
                if charged and not seconds[0]:
                    budget_is_charged(m.server.store)
                seconds[0] += passed
                if seconds[0] >= 4:
                    m.server.store.delete("Pod", asked[0], "default", grace=30)

        m.time.during = commit
        m.cycle(rules, ONE)
        entries = m.ledger().entries
        m.time.at += 60
        second = m.cycle(rules, ONE)
    assert [(e.pod, e.fate in (Fate.UNKNOWN, Fate.DONE)) for e in entries] == [("web-00000", True)]
    assert second.report.evicted == 0


def test_a_second_rebalancer_is_noticed_before_the_next_eviction() -> None:
    with Machine() as m:

        def other(_: float) -> None:
            found = m.server.store.find("ConfigMap", PLACE.name, PLACE.namespace)
            if found is not None:
                m.server.store.modify(
                    "ConfigMap",
                    PLACE.name,
                    PLACE.namespace,
                    lambda o: o["metadata"].setdefault("labels", {}).update(x=str(_)),
                )

        m.time.during = other
        run = m.cycle()
    # The first wave was written before the other came; its outcome is merged, the next wave is fine again.
    assert run.report.end in (End.COMPLETE, End.ABORTED)
    assert run.report.evicted == run.evictions()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({KEY: '{"version": 2}'}, "written by a newer rebalancer"),
        ({"other": "thing"}, "is not a ledger"),
    ],
)
def test_a_config_map_that_is_not_ours_is_left_alone(data: dict[str, str], says: str) -> None:
    with Machine() as m:
        foreign = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PLACE.name, "namespace": "default"},
        }
        m.server.store.create({**foreign, "data": data})
        with pytest.raises(LedgerError, match=says):
            m.cycle()
        assert m.server.store.get("ConfigMap", PLACE.name, "default")["data"] == data


def test_the_canary_lets_one_fly_then_two_until_five_have_gone_as_predicted() -> None:
    eight = (workload(f"w{i}").spread("zone", 1).placed({"a-0": 3, "b-0": 1}) for i in range(8))
    with Machine((*nodes(a=1, b=1), *eight)) as m:
        run = m.cycle(HistoryRules(canary=5))
        assert m.ledger().totals.in_a_row == 8
    assert (run.report.end, run.report.evicted, run.report.plans) == (End.COMPLETE, 8, 2)
    flying, landed, most = 0, 0, dict[int, int]()
    for told in run.story.told:
        flying += (told == "evict evicted") - (told == "done")
        landed += told == "done"
        most[landed] = max(most.get(landed, 0), flying)
    assert most[0] == 1
    assert max(most[n] for n in range(1, 5)) == 2
    assert most[5] > 2


def test_an_owner_rests_after_a_cycle_and_then_goes_on() -> None:
    with Machine() as m:
        rules = HistoryRules(cool_down=300)
        first, second = m.cycle(rules, ONE), m.cycle(rules, ONE)
        m.time.at += 300
        third = m.cycle(rules, ONE)
    assert [r.report.evicted for r in (first, second, third)] == [1, 0, 1]
    blocked = second.story.plans[0].blocked
    assert {b.reason.code for b in blocked} == {ReasonCode.COOL_DOWN}


def rezone(store: Store) -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    store.modify("Node", "b-0", None, lambda o: o["metadata"]["labels"].update(zone))


def roll_out(store: Store) -> None:
    new = {"tier": "front"}
    store.modify(
        "ReplicaSet", "web", "default", lambda o: o["spec"]["template"]["metadata"]["labels"].update(new)
    )
    seen = {"observedGeneration": 9}
    store.modify("ReplicaSet", "web", "default", lambda o: o["status"].update(seen), subresource="status")
    for pod in store.list("Pod"):
        store.modify("Pod", pod["metadata"]["name"], "default", lambda o: o["metadata"]["labels"].update(new))


@pytest.mark.parametrize("change", [rezone, roll_out])
def test_a_replacement_that_went_astray_is_not_tried_again_until_something_changed(
    change: Callable[[Store], None],
) -> None:
    with Machine(choose=elsewhere("a-0")) as m:
        first, second = m.cycle(), m.cycle()
        assert first.report.evicted == 1
        assert second.report.evicted == 0
        assert {b.reason.code for b in second.story.plans[0].blocked} == {ReasonCode.DID_NOT_HELP}
        m.hands.choose = lambda _, left: left[-1] if left else None
        change(m.server.store)
        third = m.cycle()
    assert third.report.evicted > 0


@pytest.mark.parametrize("digest", ["0123456789abcdef", "another:0123456789abcdef"])
def test_who_was_not_helped_waits_on_although_another_version_wrote_of_it(digest: str) -> None:
    """Nobody can tell whether anything has changed since: so it waits until its time is over."""
    with Machine(choose=elsewhere("a-0")) as m:
        assert m.cycle().report.evicted == 1
        ledger = m.ledger()
        other = encode(replace(ledger, entries=tuple(replace(e, cluster=digest) for e in ledger.entries)))
        m.server.store.modify(
            "ConfigMap", PLACE.name, PLACE.namespace, lambda o: o["data"].update({KEY: other.decode()})
        )
        m.hands.choose = lambda _, left: left[-1] if left else None
        next_version = m.cycle()
        assert next_version.report.evicted == 0
        blocked = next_version.story.plans[0].blocked
        assert {b.reason.code for b in blocked} == {ReasonCode.DID_NOT_HELP}
        m.time.at += HistoryRules().retry_after
        assert m.cycle().report.evicted > 0


def test_a_replacement_that_became_ready_late_has_helped_after_all() -> None:
    """The registry was down, and is back."""
    with Machine() as m:
        m.hands.ready_after = 10**9
        failed = m.cycle()
        assert [o.status for o in failed.report.outcomes] == [Fate.FAILED]
        m.time.at += 1200
        assert m.cycle().report.evicted == 0
        m.hands.ready_after = 2
        for _ in range(4):
            m.hands.step()
        last = m.cycle()
        fates = [e.fate for e in m.ledger().entries]
    assert last.zones() == [2, 2, 2]
    assert fates == [Fate.DONE] * 4


@pytest.mark.parametrize("joins", [False, True], ids=["a quiet cluster", "an ordinary node joins each time"])
def test_an_owner_whose_pods_keep_coming_back_is_left_alone(joins: bool) -> None:
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}))
    with Machine(things) as m:
        evicted = []
        for number in range(4):
            if joins:
                made = objects(node(f"a-{number + 1}").zone("a"))[0]
                made["metadata"].pop("resourceVersion", None)
                m.server.store.create(made)
            run = m.cycle(HistoryRules(max_returns=2))
            evicted.append(run.report.evicted)
            last = run
            # Something moves one of them back.
            back = next(p for p in m.server.store.list("Pod") if p["spec"]["nodeName"] == "b-0")
            m.server.store.delete("Pod", back["metadata"]["name"], "default", grace=0)
            usual, m.hands.choose = m.hands.choose, elsewhere("a-0")
            for _ in range(4):
                m.hands.step()
            m.hands.choose = usual
            m.time.at += 600
    assert evicted == [1, 1, 1, 0]
    reasons = {b.reason.code for b in last.story.plans[0].blocked}
    assert reasons == {ReasonCode.EVICTION_LOOP}


def test_a_violation_has_to_last_across_processes() -> None:
    with Machine() as m:
        rules = HistoryRules(stabilization=180)
        # Nobody has looked before: the pods are old enough.
        assert m.cycle(rules).report.evicted == 4
        m.server.store.modify("ReplicaSet", "web", "default", lambda o: o["spec"].update(replicas=9))
        usual, m.hands.choose = m.hands.choose, elsewhere("a-0")
        for _ in range(4):
            m.hands.step()
        m.hands.choose = usual
        young = m.cycle(rules)
        m.time.at += 100
        still = m.cycle(rules)
        m.time.at += 100
        old = m.cycle(rules)
    assert [r.report.evicted > 0 for r in (young, still, old)] == [False, False, True]
    codes = {b.reason.code for b in young.story.plans[-1].blocked}
    assert codes == {ReasonCode.STABILIZING}


def test_who_cannot_be_helped_by_evictions_waits_for_nothing() -> None:
    db, web = (workload(name).spread("zone", 1).placed({"a-0": 3}) for name in ("db", "web"))
    things = (node("a-0").zone("a"), node("b-0").zone("b").room(cpu="2"), db.requests(cpu="3"), web)
    with Machine(things) as m:
        m.keep(Ledger(looked=m.time.at - 300))
        run = m.cycle(HistoryRules(stabilization=180))
    found = {b.pod.template.labels["app"]: b.reason.code for b in run.story.plans[-1].blocked}
    assert found == {"db": ReasonCode.NO_FEASIBLE_NODE, "web": ReasonCode.STABILIZING}


def test_a_zone_that_came_back_is_used_once_its_nodes_have_settled() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 3})
    with Machine((*nodes(a=1, b=1), web)) as m:
        rules = HistoryRules(stabilization=180, settle=10)
        m.cycle(rules)
        for zone in "cd":
            back = objects(node(f"{zone}-0").zone(zone))[0]
            del back["metadata"]["resourceVersion"]
            at = datetime.fromtimestamp(m.time.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            back["status"]["conditions"][0]["lastTransitionTime"] = at
            m.server.store.create(back)
            m.time.at += 6
        soon = m.cycle(rules)
        assert soon.report.reason is not None
        m.time.at = soon.report.reason.numbers["until"]
        settled = m.cycle(rules)
    assert (soon.report.evicted, settled.report.evicted) == (0, 2)
    assert {b.reason.code for b in soon.story.plans[-1].blocked} == {ReasonCode.STABILIZING}


def test_a_zone_that_is_uncordoned_is_used_when_the_violation_has_lasted_from_its_beginning_on() -> None:
    """People uncordon one node after the other: the next may still be about to be drained."""
    web = workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 3})
    with Machine((*nodes(a=1, b=1), node("c-0").zone("c").cordoned(), web)) as m:
        rules = HistoryRules(stabilization=180, settle=10)
        m.keep(Ledger(looked=m.time.at - 300))
        shut = m.cycle(rules)
        m.server.store.modify("Node", "c-0", None, lambda n: n["spec"].update(unschedulable=False, taints=[]))
        m.time.at += 60
        soon = m.cycle(rules)
        m.time.at += 120
        later = m.cycle(rules)
    assert {b.reason.code for b in shut.story.plans[-1].blocked} == {ReasonCode.NO_FEASIBLE_NODE}
    assert {b.reason.code for b in soon.story.plans[-1].blocked} == {ReasonCode.STABILIZING}
    assert [r.report.evicted for r in (shut, soon, later)] == [0, 0, 2]


def test_an_eviction_that_was_cut_off_is_settled_by_the_next_process() -> None:
    with Machine() as m:
        m.cycle()
        kept = m.ledger()
        alive = m.server.store.list("Pod")[0]["metadata"]["uid"]
        gone = replace(kept.entries[0], fate=Fate.INTENDED, uid="gone", cycle="x")
        lives = replace(kept.entries[0], fate=Fate.INTENDED, uid=alive, cycle="x")
        with connected(m.server) as c:
            store = Ledgers(c, PLACE, writer="dead", wait=m.time.wait)
            store.load()
            store.save(replace(kept, entries=(gone, lives)))
        m.cycle(HistoryRules(stabilization=1))
        first = m.ledger().entries
        # A process that has just begun does not know since when that may be on its way.
        m.time.at += 3600 + 3601
        m.cycle(HistoryRules(stabilization=1))
        (entry,) = m.ledger().entries
    assert {(e.uid, e.fate) for e in first} == {("gone", Fate.UNKNOWN), (alive, Fate.INTENDED)}
    assert (entry.uid, entry.fate) == ("gone", Fate.UNKNOWN)


LEFT: dict[str, tuple[dict[str, str], dict[str, Claim], tuple[float, ...]]] = {
    "its request is over": ({}, {}, (179, 2)),
    "its controller has had the time to move it": ({BEING_EVICTED: ""}, {}, (1379, 2)),
    "the process is at work no more, and its request is over": (
        {}, {"dead": Claim(until=FakeTime().at + 500)}, (501, 179, 2),
    ),
    "its lease is another's now": ({}, {"dead": Claim(until=FakeTime().at + 500, term=1)}, (179, 2)),
}  # fmt: skip


@pytest.mark.parametrize(("annotations", "claims", "waits"), LEFT.values(), ids=LEFT)
def test_what_another_process_sent_counts_for_caps_until(
    annotations: dict[str, str], claims: dict[str, Claim], waits: tuple[float, ...]
) -> None:
    time = FakeTime()
    capped = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_total_per_hour=Limit(number=1))))
    with ApiServer(objects(*SKEWED, workload("vm").placed({"c-0": 1}))) as server:
        [left] = [p["metadata"] for p in server.store.list("Pod") if p["metadata"]["name"].startswith("vm")]
        server.store.modify(
            "Pod", left["name"], "default", lambda p: p["metadata"].update(annotations=annotations)
        )
        term = 2 * any(c.term for c in claims.values())
        memory = Memory(time, HistoryRules(), writer="me", term=lambda: term)
        memory.ledger = Ledger(entries=(_sent(left["uid"], time.at),), looked=time.at, claims=claims)
        around = Surroundings(memory=memory)
        evicted = []
        for wait in (*waits, 0):
            evicted.append(Run(server, capped, time=time, around=around).report.evicted)
            time.at += wait
    assert evicted == [0] * len(waits) + [1]


def _sent(uid: str, at: float) -> Entry:
    """Of a process that is no more."""
    return Entry(
        at=at, cycle="dead-1-1", namespace="default", pod="web-x", uid=uid, owner="ReplicaSet/default/web",
        node="a-0", predicted="b-0",
    )  # fmt: skip


def test_outside_of_every_window_nothing_is_evicted_and_the_plan_is_made_all_the_same() -> None:
    # 2033-05-18 03:33:20 UTC, a Wednesday
    shut = Window(parse_cron("0 4 * * *"), 3600, ZONE)
    with Machine() as m:
        held = m.cycle(options=replace(EXECUTE, windows=(shut,)))
        m.time.at += 3600
        free = m.cycle(options=replace(EXECUTE, windows=(shut,)))
    assert held.report.end is End.HELD
    assert held.story.plans[0].moves
    assert held.report.reason is not None
    assert held.report.reason.numbers["until"] == 2_000_001_600
    assert free.report.evicted > 0


def test_a_window_that_closes_ends_the_cycle_between_two_evictions() -> None:
    with Machine() as m:
        shut = Window(parse_cron("34 3 * * *"), 3600, ZONE, "deny")  # 40 s after the start
        slow = replace(EXECUTE, windows=(shut,), limits=CycleLimits(per_second=0.05))
        run = m.cycle(options=slow)
    assert run.report.end is End.HELD
    assert 0 < run.report.evicted < 4
    assert run.report.outcomes[-1].status is Fate.SKIPPED
    assert run.report.evicted == run.evictions()


def test_the_pace_is_kept() -> None:
    things = (
        *nodes(a=1, b=1, c=1),
        *(workload(f"w{i}").spread("zone", 1).placed({"a-0": 2}) for i in range(5)),
    )
    with Machine(things) as m:
        before = m.time.at
        run = m.cycle(options=replace(EXECUTE, limits=CycleLimits(per_second=0.1)))
    assert run.report.evicted == 5
    assert m.time.at - before >= 40


def test_the_time_of_a_cycle_is_bounded() -> None:
    with Machine(ready_after=40) as m:
        run = m.cycle(options=replace(EXECUTE, max_time=30.0))
        assert run.report.end is End.CAPPED
        assert run.report.reason is not None
        assert run.report.reason.code is ReasonCode.CYCLE_TIME
        assert run.report.evicted == 1


def test_the_brake_pauses_everything_within_one_eviction() -> None:
    with Machine() as m:

        def pause(_: float) -> None:
            m.server.store.modify(
                "ConfigMap",
                "rebalancer-brake",
                "default",
                lambda o: o["metadata"].update(annotations={PAUSE: "incident"}),
            )

        m.time.during = pause
        options = replace(EXECUTE, brake=BRAKE)
        run = m.cycle(options=options)
        again = m.cycle(options=options)
    assert run.report.end is again.report.end is End.HELD
    assert (run.report.evicted, again.report.evicted) == (1, 0)
    assert "rebalancer.io/pause=incident" in run.report.message


def test_an_annotation_of_a_namespace_pauses_its_pods_within_one_eviction() -> None:
    with Machine() as m:

        def pause(_: float) -> None:
            m.server.store.modify(
                "Namespace", "default", None, lambda o: o["metadata"].update(annotations={PAUSE: "yes"})
            )

        m.time.during = pause
        run = m.cycle(options=replace(EXECUTE, brake=BRAKE))
    assert run.report.evicted == run.evictions() == 1
    assert run.report.end is End.COMPLETE
    assert {b.reason.code for b in run.story.plans[-1].blocked} == {ReasonCode.PAUSED_BY_ANNOTATION}


def test_a_failed_cycle_opens_the_breaker_and_says_when_it_is_tried_again() -> None:
    limits = CircuitLimits(pause=600)
    with Machine() as m:
        fault = m.server.faults.add(Reply(500), subresource="eviction")
        first = m.cycle(limits=limits)
        m.server.faults.remove(fault)
        second = m.cycle(limits=limits)
        m.time.at += 600
        third = m.cycle(limits=limits)
        ledger = m.ledger()
    assert first.report.end is End.ABORTED
    assert "it is tried again at " in first.report.message
    assert second.report.end is End.HELD
    assert "the circuit breaker is open: the API server is unwell" in second.report.message
    assert third.report.end is End.COMPLETE
    assert ledger.circuit.trips == 0


@pytest.mark.parametrize("resource", ["limitranges", "nodes", "replicasets"])
def test_a_right_that_is_missing_for_a_moment_ends_the_cycle_and_opens_no_breaker(resource: str) -> None:
    """As while a ClusterRole is deleted and made anew. The server is well."""
    limits = CircuitLimits(pause=600)
    with Machine() as m:

        def take_away(_: float) -> None:
            m.server.faults.add(Reply(403), resource=resource, verb="list")
            m.server.faults.add(Reply(403), resource=resource, verb="get")

        m.time.during = take_away
        ended = m.cycle(limits=limits)
        evicted = ended.evictions()
        m.server.faults.clear()
        again = m.cycle(limits=limits)
        assert m.ledger().circuit == Circuit()
    assert ended.report.end is End.ABORTED
    assert resource in ended.report.message
    assert "bind a" in ended.report.message
    assert evicted < 4
    assert again.report.end is End.COMPLETE


def annotated(m: Machine, **said: str) -> None:
    """The namespace pauses its pods, or does not any more."""
    m.server.store.modify("Namespace", "default", None, lambda o: o["metadata"].update(annotations=said))


def tripped(m: Machine, limits: CircuitLimits) -> Circuit:
    """The breaker, after a cycle in which the API server failed."""
    fault = m.server.faults.add(Reply(500), subresource="eviction")
    assert m.cycle(limits=limits).report.end is End.ABORTED
    m.server.faults.remove(fault)
    return m.ledger().circuit


def test_a_cycle_that_could_do_nothing_closes_no_breaker() -> None:
    limits = CircuitLimits(pause=600)
    with Machine() as m:
        opened = tripped(m, limits)
        annotated(m, **{PAUSE: "yes"})
        assert m.cycle(limits=limits).report.plans == 1
        assert m.ledger().circuit == opened
        annotated(m)
        assert m.cycle(limits=limits).report.end is End.HELD
        # Its time is over: what had to wait shows nothing, what was evicted does.
        m.time.at = opened.until
        annotated(m, **{PAUSE: "yes"})
        m.cycle(limits=limits)
        assert m.ledger().circuit == opened
        annotated(m)
        assert m.cycle(limits=limits).report.evicted == 4
        assert m.ledger().circuit.trips == 0


@pytest.mark.parametrize(
    ("where", "options"),
    [(None, ONE), ("a-0", ONE), (None, replace(EXECUTE, max_time=15.0))],
    ids=["finds no node", "goes elsewhere", "finds no node, and the cycle's time is over"],
)
def test_nor_does_one_whose_only_replacement_did_not_go_well(where: str | None, options: LiveOptions) -> None:
    limits = CircuitLimits(pause=600)
    with Machine((*SKEWED, workload("db").spread("zone", 1).placed({"a-0": 4}))) as m:
        opened = tripped(m, limits)
        m.time.at = opened.until
        m.hands.choose = lambda *_: where
        assert m.cycle(HistoryRules(canary=5), options, limits=limits).report.evicted == 1
        assert m.ledger().circuit == opened


def test_a_balanced_cluster_closes_a_breaker_only_after_its_time() -> None:
    limits = CircuitLimits(pause=600)
    with Machine() as m:
        opened = tripped(m, limits)
        assert m.cycle(limits=limits, attended=True).report.evicted == 4
        with connected(m.server) as c:
            store = Ledgers(c, PLACE, writer="x", wait=m.time.wait)
            store.save(replace(store.load(), circuit=opened, claims={}))
        assert m.cycle(limits=limits).report.end is End.COMPLETE
        assert m.ledger().circuit == opened
        m.time.at = opened.until
        assert m.cycle(limits=limits).report.end is End.COMPLETE
        assert m.ledger().circuit.trips == 0


def test_a_person_who_does_not_wait_for_a_breaker_does_not_close_it_for_others() -> None:
    """Whose part of the cluster is balanced says nothing of the rest."""
    limits = CircuitLimits(pause=600)
    with Machine() as m:
        opened = tripped(m, limits)
        quiet = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(namespaces_include=("quiet",))))
        for at in (m.time.at, opened.until):
            m.time.at = at
            assert m.cycle(options=quiet, limits=limits, attended=True).report.end is End.COMPLETE
            assert m.ledger().circuit == opened
        m.time.at = opened.until - 1
        assert m.cycle(limits=limits).report.end is End.HELD


@pytest.mark.parametrize(
    ("opened_by", "closed_by"),
    [((), ()), (("default",), ()), (("default",), ("default", "quiet"))],
)
def test_who_looks_at_a_part_closes_a_breaker_for_that_part_only(
    opened_by: tuple[str, ...], closed_by: tuple[str, ...]
) -> None:
    """CronJobs of several teams: `once -n quiet` with evictions.enabled in the file."""
    limits = CircuitLimits(pause=600, scope=opened_by)
    with Machine() as m:
        opened = tripped(m, limits)
        m.time.at = opened.until
        for scope, closes in ((("quiet",), False), (closed_by, True)):
            included = PolicyOptions(namespaces_include=("quiet",))
            options = replace(EXECUTE, planning=PlanOptions(policy=included))
            run = m.cycle(options=options, limits=replace(limits, scope=scope))
            assert run.report.end is End.COMPLETE
            assert (m.ledger().circuit.trips == 0) is closes


def test_who_may_read_some_namespaces_only_looks_at_a_part() -> None:
    settings = Settings.model_validate({"scope": {"readNamespaces": ["quiet"]}})
    assert circuit_limits(settings).scope == ("quiet",)
    for narrower in (
        {"mode": "opt-in"},
        {"namespaces": {"exclude": ["shop"]}},
        {"labelSelector": {"matchLabels": {"a": "b"}}},
    ):
        (looks_at,) = circuit_limits(Settings.model_validate({"scope": narrower})).scope
        (also,) = circuit_limits(
            Settings.model_validate({"scope": {**narrower, "readNamespaces": ["quiet"]}})
        ).scope
        assert len({looks_at, also, "quiet"}) == 3
    assert circuit_limits(Settings()).scope == ()


def test_a_breaker_that_was_opened_a_year_ahead_is_open_from_now_on_and_not_for_a_year() -> None:
    limits = CircuitLimits(pause=600)
    with Machine() as m:
        m.time.at += YEAR
        tripped(m, limits)
        m.time.at -= YEAR
        held = [m.cycle(limits=limits)]
        m.time.at += 540
        held.append(m.cycle(limits=limits))
        m.time.at += 60
        last = m.cycle(limits=limits)
    for run in held:
        assert run.report.end is End.HELD
        assert "the circuit breaker is open: the API server is unwell" in run.report.message
        assert run.report.message.count("its end lies 8,7") == 1
        assert run.report.message.count("shortened to 600 s") == 1
        assert run.report.evicted == 0
    assert last.report.end is End.COMPLETE
    assert last.report.evicted > 0


def test_events_tell_pod_and_owner() -> None:
    with Machine() as m:
        run = m.cycle(options=replace(EXECUTE, events="all"))
        events = m.server.store.list("Event")
    assert len(events) == 2 * run.report.evicted
    kinds = {e["involvedObject"]["kind"] for e in events}
    assert kinds == {"Pod", "ReplicaSet"}
    on_pod = next(e for e in events if e["involvedObject"]["kind"] == "Pod")
    assert on_pod["reason"] == "EvictedForSpread"
    assert "from a-0 to " in on_pod["message"]
    assert "topology.kubernetes.io/zone: from a to" in on_pod["message"]


def test_events_that_may_not_be_written_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with Machine() as m:
        m.server.faults.add(Reply(403), resource="events")
        run = m.cycle(options=replace(EXECUTE, events="all"))
    assert run.report.end is End.COMPLETE
    assert caplog.text.count("no events are written in default") == 1


def test_the_server_is_asked_for_its_verdict_on_each_eviction() -> None:
    with Machine() as m:
        run = m.cycle(options=LiveOptions(backoff=QUICK, ask_server=True), read_only=True)
        assert run.report.end is End.RECORDED
        assert {o.status for o in run.report.outcomes} == {Fate.RECORDED}
        assert all("says the API server" in o.message for o in run.report.outcomes)
        assert len(run.report.outcomes) == len(run.story.plans[0].moves)
        assert len(m.server.store.list("Pod")) == 6
        refused = m.server.faults.add(
            Reply(
                429,
                {
                    "kind": "Status",
                    "code": 429,
                    "message": "no",
                    "details": {
                        "causes": [
                            {"reason": "DisruptionBudget", "message": "The disruption budget web needs 6"}
                        ]
                    },
                },
            ),
            subresource="eviction",
        )
        again = m.cycle(options=LiveOptions(backoff=QUICK, ask_server=True), read_only=True)
    assert refused.hits == len(again.report.outcomes) == 4
    assert {o.reason.code for o in again.report.outcomes if o.reason} == {ReasonCode.PDB_EXHAUSTED}


def test_a_report_says_whom_memory_protects() -> None:
    with Machine(choose=elsewhere("a-0")) as m, connected(m.server) as c:
        m.cycle()
        settings = load_settings(env={}, flags={"ledger": {"namespace": "default"}})
        snapshot = read_snapshot(c, now=m.time.now, wait=m.time.wait)
        with TemporaryDirectory() as folder:
            source = Source(kubeconfig=str(m.server.kubeconfig(Path(folder) / "config")))
            _, planning = remembered(settings, source).plan(snapshot, PlanOptions())
    assert {o: r.code for o, r in planning.policy.waiting_owners.items()} == {
        "ReplicaSet/default/web": ReasonCode.DID_NOT_HELP
    }


def test_a_report_in_the_middle_of_a_cycle_does_not_say_that_the_cycle_waits_for_its_own_evictions() -> None:
    flags = {"ledger": {"namespace": "default"}, "evictions": {"stabilization": "0s"}}
    settings = load_settings(env={}, flags=flags)
    said = list[dict[str, Reason]]()
    skewed = (workload(app).spread("zone", 1).placed({"a-0": 6}) for app in ("api", "db", "web"))
    things = (*nodes(a=1, b=1, c=1), *skewed)
    with Machine(things) as m, connected(m.server) as c, TemporaryDirectory() as folder:
        source = Source(kubeconfig=str(m.server.kubeconfig(Path(folder) / "config")))

        def look(_: float) -> None:
            entries = m.ledger().entries
            if said or not any(e.fate is Fate.DONE for e in entries) or entries[-1].fate is not Fate.INTENDED:
                return
            snapshot = read_snapshot(c, now=m.time.now, wait=lambda _: False)
            report = remembered(settings, source)
            plan = report.plan(snapshot, PlanOptions())[0]
            movers = {m.owner.key for m in plan.moves}
            if movers & {e.owner for e in entries}:
                said.append(dict(report.waits(snapshot, plan)))

        m.time.during = look
        run = m.cycle(HistoryRules(cool_down=180, canary=5))
    assert run.report.evicted == 12
    assert said == [{}]


def test_who_is_held_leaves_alone_what_the_process_at_work_has_on_its_way() -> None:
    """That one enters what became of it, and takes note that it did not help."""
    things = (*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 6}))
    with Machine(things, choose=elsewhere("a-0")) as m, connected(m.server, options=PATIENT) as c:

        def process(name: str, term: int) -> Memory:
            store = Ledgers(c, PLACE, writer=name, wait=m.time.wait, backoff=QUICK)
            return Memory(m.time, HistoryRules(), store=store, writer=name, term=lambda: term)

        daemon, other, held = process("daemon", 5), process("once", 0), list[Fate]()

        def look(_: float) -> None:
            if not held and any(a.subresource == "eviction" for a in m.server.accesses):
                other.begin()
                other.looked(read_snapshot(c, now=m.time.now, wait=lambda _: False))
                held.extend(e.fate for e in other.ledger.entries)
                other.end(well=False)

        m.time.during = look
        run = Run(m.server, hands=m.hands, time=m.time, around=Surroundings(memory=daemon))
        entries = m.ledger().entries
    assert held == [Fate.INTENDED]
    assert other.rival() is not None
    assert ([e.fate for e in entries], run.report.evicted) == ([Fate.ELSEWHERE], 1)
