"""One eviction: what its result means for the move, and for those that were to follow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rebalancer.kube.evictor import Evictor
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Check, Moment, Reason, ReasonCode
from rebalancer.outcome import Eviction, Fate, Observer, Result
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.carrying_out import Evicting
from rebalancer.runtime.cycle.gates import Away, FreshLook
from tests.support.servers.api import FakeTime
from tests.unit.runtime.cycle.made import move


class Answers(Evictor):
    """Evicts nobody: asks for permission, and answers."""

    def __init__(self, eviction: Eviction) -> None:
        self._eviction = eviction

    def evict(
        self,
        pod: Pod,  # noqa: ARG002
        reason: str = "",  # noqa: ARG002
        may_not: Callable[[], Reason | None] = lambda: None,
        fresh: Callable[[], bool] = lambda: True,
    ) -> Eviction:
        if (forbidden := may_not()) is not None:
            return Eviction(result=Result.HELD, message=forbidden.message, reason=forbidden)
        assert fresh()
        return self._eviction


class Closed(FreshLook):
    """A check that ends a cycle says no."""

    def first_no(self, moment: Moment, move: Move, away: Away) -> tuple[Check, Reason] | None:  # noqa: ARG002
        said = Reason(ReasonCode.WINDOW, "closed until six")
        return Check("windows", "", lambda: said, frozenset(Moment), "cycle"), said


def evicting(result: Result, *, look: type[FreshLook] = FreshLook, stop: bool = False) -> Evicting:
    time = FakeTime()
    time.stop = stop
    answer = Eviction(result=result, message=str(result), posts=1)
    return Evicting(look=look(time), evictor=Answers(answer), clock=time, observer=Observer())


# Result, what became of the move, its reason, whether the cycle goes on, whether the server is unwell.
RESULTS: dict[Result, tuple[Fate, ReasonCode | None, bool, bool]] = {
    Result.EVICTED: (Fate.INTENDED, None, True, False),
    Result.MIGRATING: (Fate.INTENDED, None, True, False),
    Result.RELEASED: (Fate.INTENDED, None, True, False),
    Result.WOULD_EVICT: (Fate.RECORDED, None, True, False),
    Result.GONE: (Fate.SKIPPED, ReasonCode.CHANGED_SINCE_PLAN, True, False),
    Result.TERMINATING: (Fate.SKIPPED, ReasonCode.TERMINATING, True, False),
    Result.BLOCKED: (Fate.SKIPPED, ReasonCode.PDB_EXHAUSTED, True, False),
    Result.STALE_BUDGET: (Fate.SKIPPED, ReasonCode.PDB_STALE, True, False),
    Result.SEVERAL_BUDGETS: (Fate.SKIPPED, ReasonCode.MULTIPLE_PDBS, True, False),
    Result.REFUSED: (Fate.FAILED, None, True, False),
    Result.UNASKED: (Fate.FAILED, None, True, False),
    Result.FORBIDDEN: (Fate.FAILED, None, False, False),
    Result.THROTTLED: (Fate.FAILED, None, False, True),
    Result.FAILED: (Fate.FAILED, None, False, True),
    Result.UNKNOWN: (Fate.FAILED, None, False, True),
}


@pytest.mark.parametrize("result", RESULTS)
def test_what_a_result_means(result: Result) -> None:
    status, code, goes_on, unwell = RESULTS[result]
    one = evicting(result)
    outcome = one.evict(move(), Away())
    assert outcome is not None
    assert (outcome.status, outcome.reason.code if outcome.reason else None) == (status, code)
    assert (not one.obstacles.fatal, one.obstacles.unwell) == (goes_on, unwell)


def test_every_result_is_known() -> None:
    assert RESULTS.keys() | {Result.HELD} == set(Result)


def test_what_ends_the_cycle_keeps_a_request_from_being_sent_and_is_remembered() -> None:
    one = evicting(Result.EVICTED, look=Closed)
    outcome = one.evict(move(), Away())
    assert outcome is not None
    assert (outcome.status, outcome.evicted) == (Fate.SKIPPED, False)
    assert one.obstacles.held is not None
    assert one.obstacles.held.code is ReasonCode.WINDOW


class Twice(Answers):
    """Asks for permission twice, as after a 429."""

    def evict(
        self,
        pod: Pod,
        reason: str = "",
        may_not: Callable[[], Reason | None] = lambda: None,
        fresh: Callable[[], bool] = lambda: True,
    ) -> Eviction:
        first, again = (Answers.evict(self, pod, reason, may_not, fresh) for _ in range(2))
        return first if first.reason is not None else again


@pytest.mark.parametrize(("look", "times"), [(FreshLook, 2), (Closed, 0)], ids=["may be sent", "may not"])
def test_each_request_that_may_be_sent_is_told_before(look: type[FreshLook], times: int) -> None:
    """Between two tries the owner may lose pods to others, and get new ones, which replace none of ours."""
    told, time = list[Move](), FakeTime()
    answers = Twice(Eviction(result=Result.EVICTED, message="", posts=2))
    one = Evicting(look=look(time), evictor=answers, clock=time, observer=Observer(), sent=told.append)
    one.evict(ours := move(), Away())
    assert told == [ours] * times


def test_after_a_stop_there_is_no_outcome() -> None:
    assert evicting(Result.EVICTED, stop=True).evict(move(), Away()) is None
