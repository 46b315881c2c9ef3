"""What forbids evicting: windows, time, the lease, the brake; and which of several checks answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from math import inf

import pytest

from rebalancer.kube.config_maps import Brake, Brakes, Place
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError, Target
from rebalancer.model.node import ObjectMeta
from rebalancer.model.reason import Check, Moment, Reason, ReasonCode, first_no
from rebalancer.policy.annotations import PAUSE, PAUSE_DOMAIN
from rebalancer.policy.caps import Window, parse_cron
from rebalancer.runtime.cycle.gates import PauseCheck, Pauses
from rebalancer.runtime.live.checks import CycleChecks
from rebalancer.runtime.live.configured import LiveOptions
from tests.support.servers.api import FakeTime

PLACE = Place("ops", "rebalancer-brake")
TARGET = Target("get", say="get configmaps")
MISSING = NotFoundError("gone", "", target=TARGET, code=404)
NONE: Mapping[str, str] = {}
FORBIDDEN = ForbiddenError("no", "", target=TARGET, code=403)


class Found(Brakes):
    """A brake with these annotations, or an error where it is read; and so its namespace."""

    def __init__(
        self, found: Mapping[str, str] | KubeError, home: Mapping[str, str] | KubeError = NONE
    ) -> None:
        self.found = found
        self.home = home

    def namespace(self, name: str) -> ObjectMeta | None:
        if isinstance(self.home, KubeError):
            raise self.home
        return ObjectMeta(name=name, annotations=dict(self.home))

    def everything(self, place: Place) -> Brake:  # noqa: ARG002
        if isinstance(self.found, KubeError):
            raise self.found
        return Brake(ObjectMeta(name="rebalancer-brake", annotations=dict(self.found)))


def code(reason: Reason | None) -> ReasonCode | None:
    return reason.code if reason is not None else None


def test_the_first_check_that_says_no_answers_and_the_rest_are_not_asked() -> None:
    asked = list[str]()

    def check(name: str, *, no: bool, moment: Moment = Moment.START) -> Check:
        def ask() -> Reason | None:
            asked.append(name)
            return Reason(ReasonCode.WINDOW, name) if no else None

        return Check(name, "", ask, frozenset({moment}))

    checks = (
        check("first", no=False),
        check("at another moment", no=True, moment=Moment.RESEND),
        check("second", no=True),
        check("third", no=True),
    )
    no = first_no(checks, Moment.START)
    assert no is not None
    assert (no[0].name, no[1].message) == ("second", "second")
    assert asked == ["first", "second"]
    assert first_no(checks[:1], Moment.START) is None


def test_a_window_is_open_for_its_time() -> None:
    time = FakeTime(at=0.0)  # midnight
    windows = (Window(parse_cron("0 6 * * *"), 3600.0, UTC),)
    checks = CycleChecks(LiveOptions(execute=True, windows=windows), time)
    assert code(checks.closed()) is ReasonCode.WINDOW
    time.at = 6.5 * 3600
    assert checks.closed() is None
    time.at = 7.5 * 3600
    assert code(checks.closed()) is ReasonCode.WINDOW


def test_a_cycle_that_has_taken_its_time_evicts_no_further() -> None:
    time = FakeTime()
    checks = CycleChecks(LiveOptions(execute=True, max_time=60.0), time)
    time.at += 59.9
    assert checks.closed() is None
    time.at += 0.1
    assert code(checks.closed()) is ReasonCode.CYCLE_TIME


def test_who_leads_no_more_evicts_nobody_and_is_asked_once_more_at_the_end() -> None:
    leads = [False, True, False]
    checks = CycleChecks(LiveOptions(execute=True), FakeTime(), leading=lambda: leads.pop(0))
    assert code(checks.closed()) is ReasonCode.NOT_LEADING
    assert code(checks.closed()) is ReasonCode.NOT_LEADING
    assert not leads


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
    check = PauseCheck(Found(found), PLACE, FakeTime(), lambda: lease)
    assert code(check.why_not()) is forbids


def test_the_namespace_of_the_brake_pauses_everything_where_it_may_be_read() -> None:
    brakes = Found({}, {PAUSE: "incident"})
    time = FakeTime()
    check = PauseCheck(brakes, PLACE, time)
    why = check.why_not()
    assert code(why) is ReasonCode.PAUSED_BY_ANNOTATION
    assert why is not None
    assert why.message == f"namespace ops is paused: {PAUSE}=incident"
    brakes.home = FORBIDDEN
    assert code(check.why_not()) is ReasonCode.PAUSED_BY_ANNOTATION, "it was read just now"
    time.wait(5.0)
    assert code(check.why_not()) is ReasonCode.NO_BRAKE, "it could be read: nobody knows what it says now"
    brakes.home = {}
    assert check.why_not() is None


def test_a_namespace_that_could_be_read_in_an_earlier_cycle_holds_where_it_may_not_be_read_any_more() -> None:
    brakes, time, pauses = Found({}, {PAUSE: "incident"}), FakeTime(), Pauses()
    assert code(PauseCheck(brakes, PLACE, time, pauses=pauses).why_not()) is ReasonCode.PAUSED_BY_ANNOTATION
    brakes.home = FORBIDDEN
    time.wait(600.0)
    assert code(PauseCheck(brakes, PLACE, time, pauses=pauses).why_not()) is ReasonCode.NO_BRAKE


def test_a_namespace_that_may_not_be_read_pauses_nothing_and_is_asked_again_within_a_minute() -> None:
    brakes, time = Found({}, FORBIDDEN), FakeTime()
    check = PauseCheck(brakes, PLACE, time)
    assert check.why_not() is None
    brakes.home = {PAUSE: "incident"}
    assert check.why_not() is None
    time.wait(1.0)
    assert code(check.why_not()) is ReasonCode.PAUSED_BY_ANNOTATION
    brakes = Found({}, FORBIDDEN)
    check = PauseCheck(brakes, PLACE, time)
    for _ in range(10):
        time.wait(60.0)
        assert check.why_not() is None
    brakes.home = {PAUSE: "incident"}
    time.wait(59.0)
    assert check.why_not() is None
    time.wait(1.0)
    assert code(check.why_not()) is ReasonCode.PAUSED_BY_ANNOTATION
    with pytest.raises(KubeError, match="unwell"):
        PauseCheck(Found({}, KubeError("unwell", "", target=TARGET)), PLACE, FakeTime()).why_not()


LATE = 1_800_000_000.0
PAST, COMING = "2027-01-15T05:00:00Z incident", "2027-01-15T09:00:00Z"
"""LATE is 08:00."""


@pytest.mark.parametrize("where", ["brake", "home", "lease"])
def test_a_pause_that_was_over_when_it_was_written_is_a_slip_and_holds(where: str) -> None:
    brakes, lease, time, pauses = Found({}), dict[str, str](), FakeTime(at=LATE), Pauses()

    def why(said: str) -> Reason | None:
        notes = {PAUSE: said} if said else {}
        if where == "lease":
            lease.clear()
            lease.update(notes)
        elif where == "brake":
            brakes.found = notes
        else:
            brakes.home = notes
            time.wait(5.0)
        return PauseCheck(brakes, PLACE, time, lambda: lease, pauses).why_not()

    assert why("") is None
    for _ in range(2):
        slip = why(PAST)
        assert slip is not None
        assert f"{PAUSE}={PAST}, whose end was past when it was written" in slip.message
    assert why("") is None
    assert code(why(COMING)) is ReasonCode.PAUSED_BY_ANNOTATION
    time.at += 3600.0
    assert why(COMING) is None, "it ran out"
    assert why("") is None
    time.at += 7200.0
    assert why("2027-01-15T10:00:00Z") is None, "it may have been in force since the last look"


def test_a_domain_that_was_taken_out_until_a_past_end_is_out_until_somebody_ends_it() -> None:
    brakes, time, pauses = Found({}), FakeTime(at=LATE), Pauses()
    key = f"{PAUSE_DOMAIN}-c"

    def out(until: str) -> Mapping[str, tuple[str, float]]:
        brakes.found = {key: f"zone=c {until}"} if until else {}
        check = PauseCheck(brakes, PLACE, time, pauses=pauses)
        assert check.why_not() is None
        assert check.out == check.domains()
        return check.out

    assert out("") == {}
    says = f"{key}=zone=c {PAST}, whose end was past when it was written"
    assert [out(PAST), out(PAST)] == [{"zone=c": (says, inf)}] * 2
    assert out("") == {}
    assert out(COMING) == {"zone=c": (f"{key}=zone=c {COMING}", LATE + 3600.0)}
    time.at += 3600.0
    assert out(COMING) == {}, "it ran out"
    assert out("") == {}
    assert out(COMING) != {}, "it is written anew"


def test_a_pause_that_was_over_before_the_first_look_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    check = PauseCheck(Found({PAUSE: PAST}), PLACE, FakeTime(at=LATE))
    assert [check.domains(), check.why_not(), check.why_not()] == [{}, None, None]
    assert [r.message for r in caplog.records] == [
        f"configmap rebalancer-brake -n ops has {PAUSE}={PAST}: that pause is over"
    ]


def test_an_error_that_says_nothing_about_the_brake_is_passed_on() -> None:
    check = PauseCheck(Found(KubeError("unwell", "", target=TARGET)), PLACE, FakeTime())
    with pytest.raises(KubeError, match="whether evictions are paused is not known: unwell"):
        check.why_not()
