"""What forbids evicting: windows, time, the lease, the brake; and which of several gates answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC

import pytest

from rebalancer.kube.brakes import Brakes
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError, Target
from rebalancer.kube.ledger_store import Place
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.windows import Window, parse_cron
from rebalancer.runtime.cycle.gates import Gate, Gates, LeaderGate, PauseGate, TimeGate, WindowGate
from tests.support.servers.api import FakeTime
from tests.unit.runtime.cycle.made import move

POD = move().pod
PLACE = Place("ops", "rebalancer-brake")
TARGET = Target("get", say="get configmaps")
MISSING = NotFoundError("gone", "", target=TARGET, code=404)
FORBIDDEN = ForbiddenError("no", "", target=TARGET, code=403)


class Says(Gate):
    """Closed, or closed to one pod, for a reason of that name; counts how often it was asked."""

    def __init__(self, closed: str = "", bars: str = "") -> None:
        self._closed, self._bars = closed, bars
        self.asked = 0

    def closed(self) -> Reason | None:
        self.asked += 1
        return Reason(ReasonCode.WINDOW, self._closed) if self._closed else None

    def bars(self, pod: Pod) -> Reason | None:  # noqa: ARG002
        return Reason(ReasonCode.WINDOW, self._bars) if self._bars else None


class Found(Brakes):
    """A brake with these annotations, or an error where it is read."""

    def __init__(self, found: Mapping[str, str] | KubeError) -> None:
        self._found = found

    def everything(self, place: Place) -> Mapping[str, str]:  # noqa: ARG002
        if isinstance(self._found, KubeError):
            raise self._found
        return self._found


def code(reason: Reason | None) -> ReasonCode | None:
    return reason.code if reason is not None else None


def test_without_a_reason_a_gate_is_open() -> None:
    assert Gate().closed() is None
    assert Gate().bars(POD) is None
    assert Gates(()).closed() is None


def test_the_first_of_several_gates_that_is_closed_answers_and_the_rest_are_not_asked() -> None:
    first, second, third = Says(), Says(closed="second", bars="second"), Says(closed="third", bars="third")
    gates = Gates((first, second, third))
    closed, barred = gates.closed(), gates.bars(POD)
    assert closed is not None
    assert barred is not None
    assert (closed.message, barred.message) == ("second", "second")
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


def test_a_window_is_open_for_its_time() -> None:
    time = FakeTime(at=0.0)  # midnight
    gate = WindowGate((Window(parse_cron("0 6 * * *"), 3600.0, UTC),), time)
    assert code(gate.closed()) is ReasonCode.WINDOW
    time.at = 6.5 * 3600
    assert gate.closed() is None
    time.at = 7.5 * 3600
    assert code(gate.closed()) is ReasonCode.WINDOW


def test_a_cycle_that_has_taken_its_time_evicts_no_further() -> None:
    time = FakeTime()
    gate = TimeGate(60.0, time)
    time.at += 59.9
    assert gate.closed() is None
    time.at += 0.1
    assert code(gate.closed()) is ReasonCode.CYCLE_TIME


def test_who_leads_no_more_evicts_nobody_and_is_asked_for_each_pod_again() -> None:
    leads = [True, False]
    gate = LeaderGate(lambda: leads.pop(0))
    assert gate.closed() is None
    assert code(gate.bars(POD)) is ReasonCode.NOT_LEADING


# The brake's annotations or error, the lease's annotations, what forbids evicting.
BRAKES: dict[str, tuple[Mapping[str, str] | KubeError, Mapping[str, str], ReasonCode | None]] = {
    "a brake that nobody has pulled is open": ({}, {}, None),
    "one that was pulled closes": ({PAUSE: "true"}, {}, ReasonCode.PAUSED_BY_ANNOTATION),
    "a pause that has ended is none": ({PAUSE: "1970-01-01T00:00:00Z"}, {}, None),
    "one that has not ended closes": ({PAUSE: "2999-01-01T00:00:00Z"}, {}, ReasonCode.PAUSED_BY_ANNOTATION),
    "a pause of the lease, as earlier versions wrote it, closes": (
        {},
        {PAUSE: "true"},
        ReasonCode.PAUSED_BY_ANNOTATION,
    ),
    "a brake that is missing closes": (
        MISSING,
        {},
        ReasonCode.NO_BRAKE,
    ),
    "one that may not be read closes": (
        FORBIDDEN,
        {},
        ReasonCode.NO_BRAKE,
    ),
}


@pytest.mark.parametrize("case", BRAKES)
def test_the_brake(case: str) -> None:
    found, lease, forbids = BRAKES[case]
    gate = PauseGate(Found(found), PLACE, FakeTime(), lambda: lease)
    assert code(gate.closed()) is forbids


def test_an_error_that_says_nothing_about_the_brake_is_passed_on() -> None:
    gate = PauseGate(Found(KubeError("unwell", "", target=TARGET)), PLACE, FakeTime())
    with pytest.raises(KubeError, match="unwell"):
        gate.closed()
