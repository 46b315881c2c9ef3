"""Joint moves over real HTTP: carried out, refused in between, stopped in between."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End, MoveStatus
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Joint
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.live.assembly import LiveOptions
from tests.support.build import objects, pdb, pod
from tests.support.clusters.stuck import SEVEN, SWAP
from tests.support.runs.one_cycle import DRY, EXECUTE, Run, once
from tests.support.sandbox import ApiServer, Cut, Reply
from tests.support.servers.api import FakeTime
from tests.support.servers.hands import Hands


def jointly(which: Joint, base: LiveOptions = EXECUTE) -> LiveOptions:
    policy = PolicyOptions(in_flight_per_owner=Limit(percent=50))
    return replace(base, planning=PlanOptions(joint=which, policy=policy))


def test_two_full_zones_exchange_a_pod_each_in_one_go() -> None:
    run = once(SWAP, jointly("exchange"))
    assert run.report.end is End.COMPLETE
    assert run.hands.made == 2
    assert run.evictions() == 4, "two dry runs, two evictions"
    assert (run.zones("left"), run.zones("right")) == ([4, 4], [4, 4])
    assert {o.status for o in run.report.outcomes} == {MoveStatus.DONE}
    told = "cycle 1, snapshot, plan 2, wave 1, evict evicted, evict evicted, done, done, snapshot, plan 0"
    assert run.story.told[:-1] == told.split(", ")


def test_without_leave_nobody_is_moved_and_a_dry_run_only_tells() -> None:
    assert once(SWAP, jointly("never")).evictions() == 0
    told = once(SWAP, jointly("exchange", DRY))
    assert [o.status for o in told.report.outcomes] == [MoveStatus.RECORDED] * 2


@pytest.mark.parametrize("seed", range(3))
def test_a_deadlocked_workload_is_spread_again_by_three_pods_at_once(seed: int) -> None:
    with ApiServer(objects(*SEVEN)) as server:
        run = Run(server, jointly("all"), hands=Hands(server, seed=seed))
        assert run.report.end is End.COMPLETE
        assert sorted(run.zones()) == [2, 2, 3]
        assert run.hands.made == 3


def test_what_the_server_would_refuse_is_not_begun() -> None:
    with ApiServer(objects(*SWAP)) as server:
        # The first is judged and let go, the second is not: none of both is evicted.
        server.faults.add(Reply(403), subresource="eviction", skip=1)
        run = Run(server, jointly("exchange"))
    assert run.hands.made == 0
    assert {o.status for o in run.report.outcomes} == {MoveStatus.SKIPPED}
    assert {o.reason.code for o in run.report.outcomes if o.reason} == {ReasonCode.JOINT_MOVE}


def test_if_the_second_is_refused_the_rest_stays_and_it_says_what_is_left() -> None:
    with ApiServer(objects(*SWAP)) as server:
        server.faults.add(Reply(429), subresource="eviction", skip=3)
        run = Run(server, jointly("exchange"))
    assert run.hands.made == 1, "the two dry runs and one eviction went through"
    first, *rest = sorted(run.report.outcomes, key=lambda o: not o.evicted)
    assert first.status is MoveStatus.FAILED
    assert "stays Pending" in first.message
    assert rest


class Stopping(FakeTime):
    """A stop is asked for as soon as the server has let so many requests to evict pass."""

    def __init__(self, server: ApiServer, after: int) -> None:
        super().__init__()
        self._server, self._after = server, after

    def stopping(self) -> bool:
        passed = sum(a.subresource == "eviction" and a.code == 201 for a in self._server.accesses)
        return passed >= self._after


def test_a_stop_between_the_two_leaves_the_second_where_it_is() -> None:
    with ApiServer(objects(*SWAP)) as server:
        run = Run(server, jointly("exchange"), time=Stopping(server, after=3))
        assert [o.evicted for o in run.report.outcomes] == [True]
        assert run.report.end is not End.COMPLETE
        for _ in range(5):
            run.hands.step()
        # The next cycle, of this process or of another one, finishes it.
        after = Run(server, jointly("exchange"), hands=run.hands)
        assert after.report.end is End.COMPLETE
        assert after.report.evicted == 1
        assert (after.zones("left"), after.zones("right")) == ([4, 4], [4, 4])


@pytest.mark.parametrize("fault", [Cut("before"), Reply(500)], ids=["a cut line", "a server's error"])
def test_what_fails_in_between_is_finished_by_a_later_cycle(fault: Cut | Reply) -> None:
    with ApiServer(objects(*SWAP)) as server:
        server.faults.add(fault, subresource="eviction", skip=3, times=2)
        run = Run(server, jointly("exchange"))
        assert run.hands.made == run.report.evicted
        after = Run(server, jointly("exchange"), hands=run.hands)
        assert after.report.end is End.COMPLETE
        assert (after.zones("left"), after.zones("right")) == ([4, 4], [4, 4])


def test_a_pod_that_waits_since_the_plan_and_could_take_the_room_keeps_both_where_they_are() -> None:
    with ApiServer(objects(*SWAP)) as server:
        stranger = pod("stranger").phase("Pending").build()[0]
        del stranger["metadata"]["resourceVersion"]

        def comes(number: int) -> None:
            if number == 1:
                server.store.create(stranger)

        # Nobody schedules the stranger, who would go wherever there is room.
        hands = Hands(
            server, choose=lambda p, nodes: nodes[0] if "owner" in p["metadata"]["labels"] else None
        )
        run = Run(server, jointly("exchange"), hands=hands, after_plan=comes)
    assert hands.made == 0
    assert run.report.outcomes
    assert all("would let in a pod that waits" in o.message for o in run.report.outcomes)


def test_a_budget_that_has_room_for_one_only_keeps_them_apart() -> None:
    run = once((*SEVEN, pdb("web", {"app": "web"}, max_unavailable=2)), jointly("all"))
    assert run.evictions() == 0
