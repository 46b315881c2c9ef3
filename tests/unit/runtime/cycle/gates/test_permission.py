"""Whether a request may be sent: the look, then the gates, and all of it within a second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rebalancer.kube.errors import KubeError, Target
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.gates import Gate, NoLook, Permission
from tests.support.servers.api import FakeTime
from tests.unit.runtime.cycle.made import move


class Look(NoLook):
    """Takes as many seconds as are listed, one after the other, then none."""

    def __init__(self, time: FakeTime, *takes: float, why_not: ReasonCode | None = None) -> None:
        self._time, self._takes, self._why_not = time, list(takes), why_not
        self.looks = 0

    def why_not(
        self,
        move: Move,  # noqa: ARG002
        in_flight: int = 0,  # noqa: ARG002
        beside: Callable[[], object] = lambda: None,
    ) -> Reason | None:
        beside()
        self.looks += 1
        self._time.at += self._takes.pop(0) if self._takes else 0.0
        return Reason(self._why_not, "no") if self._why_not else None


class Closed(Gate):
    def closed(self) -> Reason | None:
        return Reason(ReasonCode.WINDOW, "closed until six")


class Unknown(Gate):
    def closed(self) -> Reason | None:
        raise KubeError("no answer", "", target=Target("get", say="get configmaps"))


def asked(time: FakeTime, look: Look, gate: Gate | None = None) -> tuple[ReasonCode | None, Permission]:
    permission = Permission(look, gate or Gate(), time, move(), 0)
    reason = permission()
    return (reason.code if reason is not None else None), permission


@pytest.mark.parametrize(("takes", "looks"), [(0.9, 1), (1.0, 1), (1.1, 2)])
def test_a_look_of_no_more_than_a_second_that_finds_nothing_permits(takes: float, looks: int) -> None:
    time = FakeTime(at=0.0)
    look = Look(time, takes)
    assert asked(time, look)[0] is None
    assert look.looks == looks


def test_a_slow_look_is_taken_again() -> None:
    time = FakeTime()
    look = Look(time, 1.5, 3.0, 0.5)
    assert asked(time, look)[0] is None
    assert look.looks == 3


def test_looks_that_are_all_slow_forbid() -> None:
    time = FakeTime()
    look = Look(time, *[2.0] * 9)
    assert asked(time, look)[0] is ReasonCode.NOT_CURRENT
    assert look.looks == 4


def test_what_the_look_finds_forbids_however_long_it_took() -> None:
    time = FakeTime()
    assert asked(time, Look(time, 5.0, why_not=ReasonCode.WOULD_WORSEN))[0] is ReasonCode.WOULD_WORSEN


def test_a_gate_forbids_and_is_remembered() -> None:
    time = FakeTime()
    code, permission = asked(time, Look(time), Closed())
    assert code is ReasonCode.WINDOW
    assert permission.held is not None


def test_a_stop_comes_before_everything() -> None:
    time = FakeTime()
    time.stop = True
    look = Look(time)
    assert asked(time, look, Closed())[0] is ReasonCode.STOPPING
    assert look.looks == 0


def test_a_gate_that_cannot_be_asked_is_an_error_that_says_so() -> None:
    time = FakeTime()
    with pytest.raises(KubeError, match="whether evictions are paused is not known: no answer"):
        asked(time, Look(time), Unknown())
