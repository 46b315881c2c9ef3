"""Whether a request may be sent: all checks, and all of them within a second."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import Check, Moment, Reason, ReasonCode, first_no
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.gates import STOP, Away, FreshLook, Permission
from tests.support.servers.api import FakeTime
from tests.unit.runtime.cycle.made import move


class Look(FreshLook):
    """Takes as many seconds as are listed, one after the other, then none; then a check says no, if one does.

    `ends`: it is one that ends a cycle.
    """

    def __init__(
        self, time: FakeTime, *takes: float, why_not: ReasonCode | None = None, ends: bool = False
    ) -> None:
        super().__init__(time)
        self._time, self._takes = time, list(takes)
        self._checks: tuple[Check, ...] = (
            STOP,
            Check("x", "", lambda _: Reason(why_not, "no") if why_not else None),
        )
        if ends:
            self._checks = tuple(replace(c, moments=frozenset(Moment)) for c in self._checks)
        self.looks = list[Moment]()

    def first_no(self, moment: Moment, move: Move, away: Away) -> tuple[Check, Reason] | None:  # noqa: ARG002
        self.looks.append(moment)
        self._time.at += self._takes.pop(0) if self._takes else 0.0
        return first_no(self._checks, moment, self)


def asked(time: FakeTime, look: Look) -> tuple[ReasonCode | None, Permission]:
    permission = Permission(look, time, move(), Away())
    reason = permission()
    return (reason.code if reason is not None else None), permission


@pytest.mark.parametrize(("takes", "looks"), [(0.9, 1), (1.0, 1), (1.1, 2)])
def test_a_look_of_no_more_than_a_second_that_finds_nothing_permits(takes: float, looks: int) -> None:
    time = FakeTime(at=0.0)
    look = Look(time, takes)
    assert asked(time, look)[0] is None
    assert len(look.looks) == looks


def test_a_slow_look_is_taken_again() -> None:
    time = FakeTime()
    look = Look(time, 1.5, 3.0, 0.5)
    assert asked(time, look)[0] is None
    assert len(look.looks) == 3


def test_looks_that_are_all_slow_forbid() -> None:
    time = FakeTime()
    look = Look(time, *[2.0] * 9)
    assert asked(time, look)[0] is ReasonCode.NOT_CURRENT
    assert len(look.looks) == 4


def test_what_the_look_finds_forbids_however_long_it_took() -> None:
    time = FakeTime()
    assert asked(time, Look(time, 5.0, why_not=ReasonCode.WOULD_WORSEN))[0] is ReasonCode.WOULD_WORSEN


def test_what_ends_a_cycle_is_remembered_and_what_concerns_a_move_is_not() -> None:
    time = FakeTime()
    for ends in (True, False):
        code, permission = asked(time, Look(time, why_not=ReasonCode.WINDOW, ends=ends))
        assert code is ReasonCode.WINDOW
        assert (permission.held is not None) is ends


def test_a_stop_comes_before_everything() -> None:
    time = FakeTime()
    time.stop = True
    assert asked(time, Look(time, why_not=ReasonCode.WINDOW))[0] is ReasonCode.STOPPING


def test_every_further_request_is_asked_for_too() -> None:
    time = FakeTime()
    look = Look(time)
    permission = Permission(look, time, move(), Away())
    assert [permission(), permission(), permission()] == [None] * 3
    assert look.looks == [Moment.LAST_LOOK, Moment.RESEND, Moment.RESEND]
