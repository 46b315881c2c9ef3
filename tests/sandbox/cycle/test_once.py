"""`once` over real HTTP: plan, fresh look, evict, wait, and again until nothing is left."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from rebalancer.kube.config_maps import Ledgers
from rebalancer.kube.errors import ForbiddenError
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import End, Fate, Observer
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Plan
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.live.once import run_once
from tests.support.build import OwnerBuilder, decoded, node, nodes, objects, pdb, stateful_set, workload
from tests.support.runs.machine import PLACE
from tests.support.runs.one_cycle import DRY, EXECUTE, PATIENT, SKEWED, Run, elsewhere, once
from tests.support.sandbox import ApiServer, Cut, Reply
from tests.support.scheduler.plain import Json
from tests.support.servers.api import QUICK, FakeTime, connected
from tests.support.servers.hands import Hands


@pytest.mark.parametrize("seed", range(3))
def test_a_skewed_workload_is_balanced_whatever_the_schedulers_ties(seed: int) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        run = Run(server, hands=Hands(server, seed=seed))
        assert run.report.end is End.COMPLETE
        assert max(run.zones()) - min(run.zones()) <= 1
        assert run.report.evicted == run.evictions() == len(run.story.plans[0].moves)
        assert all(o.expected for o in run.report.outcomes)
        again = Run(server)
        assert again.report.end is End.COMPLETE
        assert again.report.evicted == 0


def test_without_execute_the_plan_is_gone_through_at_once_and_nothing_is_sent() -> None:
    run = once(SKEWED, replace(DRY, limits=CycleLimits(per_second=0.01)))
    assert len(run.report.outcomes) > 1
    assert run.report.seconds < 60
    assert run.report.end is End.RECORDED
    assert run.report.ok
    assert {o.status for o in run.report.outcomes} == {Fate.RECORDED}
    assert len(run.report.outcomes) == len(run.story.plans[0].moves)
    assert not any(a.verb not in ("get", "list") for a in run.server.accesses)
    assert sum(a.resource == "pods" for a in run.server.accesses) == 1, "read once, whatever the plan has"


def test_the_story_is_told_in_order() -> None:
    run = once((*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1})))
    told = "cycle 1, snapshot, plan 1, wave 1, evict evicted, done, snapshot, plan 0, end complete"
    assert run.story.told == told.split(", ")


def test_budgets_hold_at_every_moment() -> None:
    run = once((*SKEWED, pdb("web", {"app": "web"}, max_unavailable=1)))
    assert run.report.end is End.COMPLETE
    assert run.hands.broken_budgets == []


def test_budgets_that_lag_behind_their_pods_are_waited_for() -> None:
    things = (*SKEWED, pdb("web", {"app": "web"}, max_unavailable=1))
    with ApiServer(objects(*things)) as server:
        run = Run(server, hands=Hands(server, budgets_every=7))
    assert run.report.end is End.COMPLETE
    assert run.zones() == [2, 2, 2]
    assert {o.status for o in run.report.outcomes} == {Fate.DONE}


def test_a_stateful_set_comes_back_under_its_name() -> None:
    run = once((*nodes(a=1, b=1), stateful_set("db").spread("zone", 1).placed({"a-0": 3, "b-0": 1})))
    assert run.report.end is End.COMPLETE
    (outcome,) = run.report.outcomes
    assert outcome.replacement == outcome.move.pod.key
    assert outcome.node == "b-0"


def test_a_replacement_on_another_planned_node_leads_to_a_new_plan_that_is_not_counted() -> None:
    def unlike(_: Any, left: list[str]) -> str | None:
        return left[-1] if left else None

    things = (*nodes(a=1, b=3, c=3), workload("web").spread("zone", 1).placed({"a-0": 9}))
    with ApiServer(objects(*things)) as server:
        run = Run(server, hands=Hands(server, choose=unlike))
    assert run.report.end is End.COMPLETE
    assert all(o.expected for o in run.report.outcomes)
    assert run.zones() == [3, 3, 3]


def test_replacements_that_keep_going_astray_end_the_cycle() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        run = Run(server, hands=Hands(server, choose=elsewhere("a-0")))
    assert run.report.end is End.UNSTABLE
    assert run.report.mispredicted == run.report.evicted
    assert run.report.evicted == 2
    assert "2 replacements of ReplicaSet/default/web did not go as planned" in run.report.message


def test_replacements_that_a_webhook_takes_the_selected_label_from_end_the_cycle() -> None:
    web = workload("web").spread("zone", 1, selector={"team": "x"}).labels(team="x").placed({"a-0": 6})
    with ApiServer(objects(*nodes(a=1, b=1, c=1), web)) as server:
        create = server.store.create

        def stripped(new: Json, **how: Any) -> Any:
            if new["kind"] == "Pod":
                del new["metadata"]["labels"]["team"]
            return create(new, **how)

        with patch.object(server.store, "create", stripped):
            run = Run(server)
        assert run.report.end is End.UNSTABLE
        assert (run.report.evicted, run.report.mispredicted) == (2, 2)
        assert "a constraint that counted the evicted pod does not count it" in run.report.message


def test_a_replacement_that_stays_pending_is_a_failure_and_a_second_one_the_end() -> None:
    things = (
        *nodes(a=1, b=1),
        workload("one").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
        workload("two").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
        workload("zzz").spread("zone", 1).placed({"a-0": 7, "b-0": 1}),
    )
    with ApiServer(objects(*things)) as server:
        run = Run(server, hands=Hands(server, choose=lambda _pod, _nodes: None))
    assert run.report.end is End.ABORTED
    assert not run.report.ok
    failed = [o for o in run.report.outcomes if o.status is Fate.FAILED]
    assert "stays Pending: 0 nodes fit" in failed[0].message


def test_a_replacement_that_never_becomes_ready_is_a_failure() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        run = Run(server, hands=Hands(server, ready_after=10_000))
    assert "is not Ready after" in run.report.outcomes[0].message
    assert run.report.failed >= 1


@pytest.mark.parametrize("ready_after", [45, 10_000])
def test_a_cycle_that_ends_beside_a_replacement_that_is_not_ready_says_so(ready_after: int) -> None:
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}))
    with ApiServer(objects(*things)) as server:
        run = Run(server, hands=Hands(server, ready_after=ready_after, ends_after=1))
    assert (run.report.end, run.report.evicted) == (End.COMPLETE, 1)
    said = run.report.message
    late = ", but not every replacement is Ready: default/web-" in said and "is not Ready after" in said
    assert late == (ready_after > 100), said


def test_a_victim_that_does_not_end_is_named_as_such() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        run = Run(server, hands=Hands(server, ends_after=10_000))
    assert "still terminating" in run.report.outcomes[0].message


def test_a_victim_that_is_not_deleted_although_its_eviction_was_accepted_is_not_called_terminating() -> None:
    """A webhook that makes evictions dry runs answers so."""
    accepted = {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(201, accepted), subresource="eviction")
        run = Run(server, hands=Hands(server))
    failed = next(o.message for o in run.report.outcomes if o.status is Fate.FAILED)
    assert re.search(
        r"web-\S+ evicted; it is not terminating after \d+ s, though its eviction was acc", failed
    )


def test_a_node_that_is_added_under_way_leads_to_a_new_plan() -> None:
    time = FakeTime()
    with ApiServer(objects(*SKEWED)) as server:
        late = objects(node("d-0").zone("d"))[0]
        del late["metadata"]["resourceVersion"]

        def arrive(_: float) -> None:
            if len(time.waits) == 2:
                server.store.create(late)

        time.during = arrive
        run = Run(server, time=time)
    assert run.report.end is End.COMPLETE
    assert run.zones() in ([2, 2, 1, 1], [2, 1, 2, 1], [2, 1, 1, 2])
    assert len(run.story.plans) > 2


def test_a_stop_ends_between_two_evictions() -> None:
    time = FakeTime()
    with ApiServer(objects(*SKEWED)) as server:

        def stop(_: float) -> None:
            time.stop = True

        time.during = stop
        run = Run(server, time=time)
    assert run.report.end is End.STOPPED
    assert run.report.evicted == run.evictions() == 1
    assert run.report.failed == 0


def test_a_stop_before_the_start_does_nothing() -> None:
    time = FakeTime()
    time.stop = True
    run = once(SKEWED, time=time)
    assert run.report.end is End.STOPPED
    assert run.evictions() == 0


def in_two_namespaces(number: int = 2) -> list[OwnerBuilder]:
    """So many workloads in each, of each of which one pod is to go."""
    return [
        workload(f"w{i}", namespace=space).spread("zone", 1).placed({"a-0": 3, "b-0": 1})
        for space in ("pay", "shop")
        for i in range(number)
    ]


def test_missing_rights_end_the_cycle_at_the_first_eviction() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), subresource="eviction")
        run = Run(server)
        tries = sum(1 for a in server.accesses if a.subresource == "eviction")
    assert run.report.end is End.ABORTED
    assert 'verbs: ["create"]' in run.report.message
    assert tries == 1


@pytest.mark.parametrize("forbidden", ["pay", "shop"])
def test_where_rights_are_missing_in_one_namespace_the_others_go_on(forbidden: str) -> None:
    """As RoleBindings have it that are written by hand. One request of each cycle finds out."""
    things = in_two_namespaces()
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server:
        server.faults.add(Reply(403), subresource="eviction", namespace=forbidden)
        run = Run(server)
        asked = Counter((a.namespace, a.code) for a in server.accesses if a.subresource == "eviction")
    other = "pay" if forbidden == "shop" else "shop"
    assert asked == {(forbidden, 403): 1, (other, 201): 2}
    assert run.report.end is End.COMPLETE
    assert "may-not-evict" in run.report.message
    assert not run.report.ok
    (finding,) = (f for f in run.story.plans[-1].findings if f.code == "may-not-evict")
    assert finding.object == f"Namespace/{forbidden}"
    assert 'verbs: ["create"]' in finding.remedy


@pytest.mark.parametrize("kind", ["limitranges", "pods"])
def test_a_right_of_the_last_look_that_is_taken_away_in_one_namespace_keeps_its_pods_alone(kind: str) -> None:
    """As an administrator does who wants the tool out of a namespace."""
    things = in_two_namespaces()
    time = FakeTime()
    memory = Memory(time, HistoryRules())
    memory.could_read.add(("LimitRange", "pay"))
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server:
        server.faults.add(Reply(403), resource=kind, namespace="pay")
        run = Run(server, time=time, around=Surroundings(memory=memory))
        asked = spaces(server)
    assert asked == {("shop", 201): 2}
    assert run.report.end is End.COMPLETE
    assert "may-not-evict" in run.report.message
    (finding,) = (f for f in run.story.plans[-1].findings if f.code == "may-not-evict")
    assert (finding.object, finding.severity.value) == ("Namespace/pay", "error")
    assert "the last look is forbidden in namespace pay" in finding.message


def test_where_rights_are_missing_everywhere_each_namespace_is_asked_once() -> None:
    things = in_two_namespaces()
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server:
        server.faults.add(Reply(403), subresource="eviction")
        run = Run(server)
        asked = Counter((a.namespace, a.code) for a in server.accesses if a.subresource == "eviction")
    assert asked == {("pay", 403): 1, ("shop", 403): 1}
    assert run.report.end is End.ABORTED


def test_a_lost_answer_is_read_back_and_the_cycle_goes_on() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Cut("after"), subresource="eviction", times=1)
        run = Run(server)
    assert run.report.end is End.COMPLETE
    assert run.report.outcomes[0].eviction is not None
    assert run.report.outcomes[0].eviction.read_back
    assert max(run.zones()) - min(run.zones()) <= 1


def test_an_unknown_outcome_ends_the_cycle() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Cut("after"), subresource="eviction")
        server.faults.add(Reply(500), verb="get", resource="pods", skip=1)
        run = Run(server)
    assert run.report.end is End.ABORTED
    assert "unknown" in run.report.message


def test_what_the_server_refuses_for_good_is_not_tried_for_ever() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        refusal = {"kind": "Status", "message": 'admission webhook "w" denied the request', "code": 403}
        server.faults.add(Reply(403, refusal), subresource="eviction")
        run = Run(server)
        tries = sum(1 for a in server.accesses if a.subresource == "eviction")
    assert run.report.end is End.COMPLETE
    assert "eviction-refused" in run.report.message
    assert tries == 2, "all pods of the owner may be refused: after two the others wait for the next cycle"


def test_where_a_webhook_keeps_one_pod_another_one_goes() -> None:
    """Such as a leader, or a pod that somebody is connected to."""
    things = objects(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}))
    leader = plan(decoded(things)).moves[0].pod.name
    with ApiServer(things) as server:
        says = 'admission webhook "w" denied the request: it leads'
        refusal = Reply(403, {"kind": "Status", "message": says, "code": 403})
        server.faults.add(refusal, subresource="eviction", name=leader)
        run = Run(server)
        asked = Counter((a.name == leader, a.code) for a in server.accesses if a.subresource == "eviction")
    assert run.report.end is End.COMPLETE
    assert asked == {(True, 403): 1, (False, 201): 1}
    assert run.zones() == [2, 2]


@pytest.mark.parametrize(
    "answer",
    [
        Reply(404, b"404 page not found"),
        Reply(404, {"kind": "Status", "message": "cluster not found", "code": 404}),
        Reply(408, {"kind": "Status", "message": "the proxy has waited too long", "code": 408}),
    ],
    ids=["a page", "a Status", "a Status of a proxy that has waited"],
)
def test_what_answers_in_front_of_the_server_has_refused_no_pod(answer: Reply) -> None:
    time = FakeTime()
    around = Surroundings(memory=Memory(time, HistoryRules()))
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(answer, subresource="eviction")
        first = Run(server, time=time, around=around)
        server.faults.clear()
        second = Run(server, time=time, around=around)
    assert (first.report.evicted, first.report.failed > 0) == (0, True)
    assert second.report.end is End.COMPLETE
    assert second.zones() == [2, 2, 2]


@pytest.mark.parametrize(
    "says",
    ['admission webhook "w" denied the request: no database', 'failed calling webhook "w": EOF'],
    ids=["denies by an error of its own", "cannot be asked"],
)
def test_a_webhook_of_one_namespace_does_not_stop_the_others(says: str) -> None:
    """A pod about which the webhook could not be asked is not left for another one."""
    things = [
        workload("web", namespace=name).spread("zone", 1).placed({"a-0": 3, "b-0": 1})
        for name in ("pay", "shop")
    ]
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server:
        status = {"kind": "Status", "message": says, "code": 500}
        server.faults.add(Reply(500, status), subresource="eviction", namespace="pay")
        run = Run(server)
        asked = Counter((a.namespace, a.code) for a in server.accesses if a.subresource == "eviction")
    assert run.report.end is (End.COMPLETE if "denied" in says else End.NO_PROGRESS)
    assert asked == {("pay", 500): 2, ("shop", 201): 1}


UNASKED = Reply(500, {"kind": "Status", "message": 'failed calling webhook "w": EOF', "code": 500})


def spaces(server: ApiServer) -> Counter[tuple[str, int]]:
    """Namespaces and answers of what was asked for."""
    return Counter((a.namespace, a.code) for a in server.accesses if a.subresource == "eviction")


def test_where_no_webhook_can_be_asked_three_evictions_show_it() -> None:
    things = [
        workload(name, namespace=space).spread("zone", 1).placed({"a-0": 3, "b-0": 1})
        for space in ("a", "b", "c", "d", "e")
        for name in ("web", "db")
    ]
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server:
        server.faults.add(UNASKED, subresource="eviction")
        run = Run(server)
        asked = spaces(server)
        shown = Run(server, replace(EXECUTE, execute=False, ask_server=True))
    assert run.report.end is End.ABORTED
    assert 'failed calling webhook "w": EOF; a webhook with failurePolicy Fail cannot' in run.report.message
    assert asked == {("a", 500): 1, ("b", 500): 1, ("c", 500): 1}
    assert shown.report.end is not End.ABORTED, "a dry run asks about each"


def test_where_a_webhook_of_three_namespaces_cannot_be_asked_the_others_are_first_in_the_next_cycle() -> None:
    things = [
        workload("web", namespace=space).spread("zone", 1).placed({"a-0": 3, "b-0": 1}) for space in "abcde"
    ]
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server, connected(server, options=PATIENT) as c:
        time = FakeTime()
        memory = Memory(time, HistoryRules(), store=Ledgers(c, PLACE, writer="p", wait=time.wait))
        for space in "abc":
            server.faults.add(UNASKED, subresource="eviction", namespace=space)
        first = Run(server, time=time, around=Surroundings(memory=memory))
        assert first.report.evicted == 0
        second = Run(server, time=time, around=Surroundings(memory=memory))
        assert second.report.evicted == 2
        server.faults.clear()
        third = Run(server, time=time, around=Surroundings(memory=memory))
    assert (third.report.end, third.report.evicted) == (End.COMPLETE, 3)


def test_while_a_budget_elsewhere_opens_again_a_webhook_that_cannot_be_asked_ends_no_cycle() -> None:
    """Meanwhile three of its own in a row come to nothing."""
    web = (workload(f"w{i}", namespace="pay").spread("zone", 1) for i in range(6))
    shop = workload("web", namespace="shop").spread("zone", 1).placed({"a-0": 8})
    things = [*(w.placed({"a-0": 3, "b-0": 1}) for w in web), shop]
    budget = pdb("web", {"app": "web"}, max_unavailable=1, namespace="shop")
    with ApiServer(objects(*nodes(a=1, b=1), *things, budget)) as server:
        server.faults.add(UNASKED, subresource="eviction", namespace="pay")
        run = Run(server)
        asked = spaces(server)
    assert asked == {("pay", 500): 4, ("shop", 201): 4}, "its first is asked for before it is known"
    assert run.report.end is End.COMPLETE
    (finding,) = (f for f in run.story.plans[-1].findings if f.object == "Namespace/pay")
    assert 'failed calling webhook "w": EOF' in finding.message


@pytest.mark.parametrize(
    ("answer", "times"), [(Reply(403), 1), (UNASKED, 3)], ids=["forbidden", "a webhook that cannot be asked"]
)
def test_a_namespace_that_lets_nothing_go_uses_up_no_cap(answer: Reply, times: int) -> None:
    things = in_two_namespaces(4)
    options = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_total=Limit(number=3))))
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server:
        server.faults.add(answer, subresource="eviction", namespace="pay")
        run = Run(server, options)
        asked = spaces(server)
    assert asked == {("pay", answer.code): times, ("shop", 201): 3}
    assert run.report.end is End.CAPPED


def test_a_webhook_that_is_back_is_asked_while_that_of_another_namespace_is_not() -> None:
    things = in_two_namespaces(4)
    time = FakeTime()
    around = Surroundings(memory=Memory(time, HistoryRules()))
    with ApiServer(objects(*nodes(a=1, b=1), *things)) as server:
        server.faults.add(UNASKED, subresource="eviction")
        first = Run(server, time=time, around=around)
        server.faults.clear()
        server.faults.add(UNASKED, subresource="eviction", namespace="pay")
        second = Run(server, time=time, around=around)
    assert (first.report.evicted, second.report.evicted) == (0, 4)


def test_caps_hold_over_all_plans_of_a_cycle() -> None:
    policy = PolicyOptions(max_total=Limit(number=2))
    options = LiveOptions(execute=True, backoff=QUICK, planning=PlanOptions(policy=policy))
    run = once(SKEWED, options)
    assert run.report.end is End.CAPPED
    assert run.report.evicted == run.evictions() == 2


def test_a_cluster_that_cannot_be_read_is_an_error() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), resource="nodes")
        with pytest.raises(ForbiddenError, match="nodes"):
            Run(server, patience=0.5)


def test_an_observer_that_fails_does_not_stop_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
            raise RuntimeError("display is gone")

    time = FakeTime()
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        hands = Hands(server)
        time.during = hands.step
        report = run_once(c, EXECUTE, clock=time, observers=[Broken()])
    assert report.end is End.COMPLETE
    assert "Broken.on_plan failed" in caplog.text
