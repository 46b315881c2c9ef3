"""Leader election: two electors against one server never both lead by their own check, whatever is done."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import pytest

from rebalancer.kube.config_maps import Place
from rebalancer.kube.connection import Connection
from rebalancer.kube.election import ElectionOptions, Elector
from rebalancer.kube.errors import ForbiddenError, NotFoundError, ServerError
from rebalancer.kube.leases import BrakeSeen
from rebalancer.runtime.cycle.gates import FRESH
from rebalancer.runtime.live.places import take_lease
from tests.support.sandbox import ApiServer, Cut, Delay, Garbage, Reply
from tests.support.sandbox.authority import User
from tests.support.sandbox.faults import Until
from tests.support.servers.api import connected
from tests.support.waiting import until

QUICK = ElectionOptions(duration=1.0, renew_deadline=0.7, retry=0.1)


class Referee:
    """Asks all electors again and again, and remembers whether two ever said yes at the same time."""

    def __init__(self, *electors: Elector) -> None:
        self.both = 0
        self._electors = electors
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.both += sum(e.still_leading() for e in self._electors) > 1

    def __enter__(self) -> Referee:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(tokens={f"token-{n}": User(n, ("system:masters",)) for n in "abc"}) as s:
        yield s


@contextmanager
def running(server: ApiServer, *names: str, **options: Any) -> Iterator[list[Elector]]:
    with ExitStack() as stack:
        electors = []
        for name in names:
            connection: Connection = stack.enter_context(connected(server))
            elector = Elector(
                connection, "default", "rebalancer", identity=name, **{"options": QUICK, **options}
            )
            stack.callback(elector.stop)
            electors.append(elector.start())
        yield electors


def lease(server: ApiServer) -> dict[str, Any]:
    return server.store.get("Lease", "rebalancer", "default")


def edit(server: ApiServer, change: Callable[[dict[str, Any]], None]) -> None:
    server.store.modify("Lease", "rebalancer", "default", change)


def test_one_of_two_leads_and_the_record_says_who(server: ApiServer) -> None:
    with running(server, "a", "b") as electors, Referee(*electors) as referee:
        until(lambda: any(e.still_leading() for e in electors))
        time.sleep(QUICK.duration * 1.5)
        leader = next(e for e in electors if e.still_leading())
        assert lease(server)["spec"]["holderIdentity"] == leader.identity
        assert lease(server)["spec"]["leaseTransitions"] == 0
        assert {e.status().holder for e in electors} == {leader.identity}
        assert sum(e.status().leading for e in electors) == 1
        assert leader.status().since is not None
    assert referee.both == 0


def test_a_leader_that_ends_hands_over_at_once_and_is_counted(server: ApiServer) -> None:
    with running(server, "a") as (a,):
        until(a.still_leading)
        with running(server, "b") as (b,), Referee(a, b) as referee:
            until(lambda: b.status().holder == "a")
            a.stop()
            assert not a.still_leading()
            until(b.still_leading)
            assert b.status().transitions == 1
        assert referee.both == 0
    assert lease(server)["spec"]["holderIdentity"] == ""


def test_who_sees_that_another_leads_has_no_part_in_that_term(server: ApiServer) -> None:
    with running(server, "a") as (a,):
        until(a.still_leading)
        edit(server, lambda o: o["spec"].update(holderIdentity="b", leaseTransitions=7))
        until(lambda: a.status().holder == "b")
        assert (a.term, a.status().transitions) == (0, 7)
        until(a.still_leading)
        assert a.term == 8


def test_whoever_leads_hears_of_it_and_of_its_end(server: ApiServer) -> None:
    heard: list[bool] = []
    with running(server, "a", on_change=heard.append) as (a,):
        until(a.still_leading)
        until(lambda: heard == [True])
    assert heard == [True, False]


@pytest.mark.parametrize(
    "fault",
    [Reply(500), Reply(503), Reply(429, headers={"Retry-After": "1"}), Reply(403), Reply(409), Cut("before"),
     Cut("after"), Delay(math.inf), Garbage(), Cut("body", body_bytes=40)],
    ids=["500", "503", "429", "403", "409", "cut", "answer lost", "half-open", "garbage", "cut answer"],
)  # fmt: skip
def test_who_cannot_renew_stops_leading_before_another_begins(server: ApiServer, fault: Any) -> None:
    """Only the leader is struck: its requests are told apart by its token."""
    with ExitStack() as stack:
        connection = stack.enter_context(connected(server, token="token-a"))
        a = Elector(connection, "default", "rebalancer", identity="a", options=QUICK).start()
        stack.callback(a.stop)
        until(a.still_leading)
        (b,) = stack.enter_context(running(server, "b"))
        until(lambda: b.status().holder == "a")
        referee = stack.enter_context(Referee(a, b))
        rule = server.faults.add(fault, resource="leases", user="a")
        took = until(b.still_leading)
        assert not a.still_leading()
        assert took > QUICK.duration * 0.5
        server.faults.remove(rule)
        until(lambda: a.status().holder == "b")
    assert referee.both == 0


def test_a_short_outage_does_not_cost_the_lead(server: ApiServer) -> None:
    with running(server, "a", "b") as electors, Referee(*electors) as referee:
        until(lambda: any(e.still_leading() for e in electors))
        server.faults.add(Reply(500), resource="leases", times=4)
        time.sleep(QUICK.duration * 1.5)
        assert lease(server)["spec"]["leaseTransitions"] == 0
    assert referee.both == 0


def test_an_annotation_by_somebody_else_is_kept_and_seen_and_costs_nothing(server: ApiServer) -> None:
    with running(server, "a") as (a,):
        until(a.still_leading)
        edit(server, lambda o: o["metadata"].update(annotations={"rebalancer.io/pause": "true"}))
        until(lambda: a.annotations.get("rebalancer.io/pause") == "true")
        time.sleep(0.5)
        assert a.still_leading()
        assert lease(server)["metadata"]["annotations"] == {"rebalancer.io/pause": "true"}


def test_a_lease_that_somebody_deletes_comes_back(server: ApiServer) -> None:
    with running(server, "a") as (a,):
        until(a.still_leading)
        server.store.delete("Lease", "rebalancer", "default")
        until(lambda: server.store.find("Lease", "rebalancer", "default") is not None)
        time.sleep(QUICK.renew_deadline)
        until(a.still_leading)


@pytest.mark.parametrize("what", ["cleared", "deleted"])
def test_a_lease_that_a_person_took_from_the_leader_is_not_taken_at_once(
    server: ApiServer, what: str
) -> None:
    with running(server, "a", "b") as electors, Referee(*electors) as referee:
        until(lambda: any(e.still_leading() for e in electors))
        until(lambda: all(e.status().holder for e in electors))
        if what == "cleared":
            edit(server, lambda o: o["spec"].update(holderIdentity="", leaseDurationSeconds=15))
        else:
            server.store.delete("Lease", "rebalancer", "default")
        time.sleep(QUICK.duration)
    assert referee.both == 0


def test_who_comes_while_the_lease_is_gone_waits_for_whom_the_ledger_names(server: ApiServer) -> None:
    slow = ElectionOptions(duration=1.0, renew_deadline=0.7, retry=0.5)
    with running(server, "a", options=slow) as (a,):
        until(a.still_leading)
        server.store.delete("Lease", "rebalancer", "default")
        with running(server, "b", claimed=lambda: 0) as (b,), Referee(a, b) as referee:
            until(lambda: b.status().holder == "a")
        assert referee.both == 0
    server.store.delete("Lease", "rebalancer", "default")
    with running(server, "c", claimed=lambda: 0) as (c,):
        assert until(c.still_leading) > 0.9, "who was killed left a claim: it is waited for once"


def test_the_records_times_are_not_believed(server: ApiServer) -> None:
    """A holder whose clock is a day behind looks expired to whoever compares times."""
    with running(server, "a", now=lambda: time.time() - 86400) as (a,):
        until(a.still_leading)
        with running(server, "b", now=lambda: time.time() + 86400) as (b,), Referee(a, b) as referee:
            time.sleep(QUICK.duration * 2)
            assert a.still_leading()
    assert referee.both == 0


def test_a_record_that_promises_longer_is_waited_for(server: ApiServer) -> None:
    server.store.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "rebalancer", "namespace": "default"},
            "spec": {"holderIdentity": "someone", "leaseDurationSeconds": 2},
        }
    )
    with running(server, "a") as (a,):
        assert until(a.still_leading) > 1.9


def test_a_jump_of_ones_own_clock_ends_leading_at_once(server: ApiServer) -> None:
    """A machine that slept, or a process that was stopped, sees its clock far ahead when it goes on."""
    jump = [0.0]
    with running(server, "a", monotonic=lambda: time.monotonic() + jump[0]) as (a,):
        until(a.still_leading)
        jump[0] = 60.0
        assert not a.still_leading()
        until(a.still_leading)


def test_a_leader_counts_from_when_it_asked_not_from_when_it_was_answered(server: ApiServer) -> None:
    """Others may have seen the lease change long before the answer is here."""
    jump, asked = [0.0], list[list[str]]()

    def late() -> bool:
        jump[0] = 60.0
        return True

    def led(_: bool) -> None:
        asked.append([access.verb for access in server.accesses if access.resource == "leases"])

    server.faults.add(Until(late), verb="create", resource="leases", times=1)
    with running(server, "a", on_change=led, monotonic=lambda: time.monotonic() + jump[0]):
        until(lambda: asked)
    assert "update" in asked[0], "it leads by its next renewal only"


def test_what_is_not_allowed_or_not_there_is_said(server: ApiServer) -> None:
    server.faults.add(Reply(403), resource="leases", verb="create")
    with running(server, "a") as (a,):
        until(lambda: isinstance(a.status().error, ForbiddenError))
        assert 'resources: ["leases"], verbs: ["create"]' in str(a.status().error)
    server.faults.clear()
    with connected(server) as c:
        lost = Elector(c, "no-such-namespace", "rebalancer", identity="a", options=QUICK).start()
        until(lambda: isinstance(lost.status().error, NotFoundError))
        assert not lost.still_leading()
        lost.stop()


def test_stopping_takes_a_moment_although_the_server_does_not_answer(server: ApiServer) -> None:
    with running(server, "a") as (a,):
        until(a.still_leading)
        server.faults.add(Delay(math.inf), resource="leases")
        time.sleep(0.3)
        began = time.monotonic()
        a.stop(0.5)
        assert time.monotonic() - began < 20, "a request that is not answered lasts longer"


@pytest.mark.parametrize(("duration", "renew", "retry"), [(15, 15, 2), (15, 13, 2), (15, 2, 2), (15, 10, 0)])
def test_times_that_leave_no_margin_are_refused(duration: float, renew: float, retry: float) -> None:
    with pytest.raises(ValueError, match="longer than"):
        ElectionOptions(duration=duration, renew_deadline=renew, retry=retry)


def test_three_of_whom_each_leader_is_struck_never_lead_together(server: ApiServer) -> None:
    """Beside faults that strike anybody at random, each new leader gets one that lasts."""
    lasting = iter((Reply(500), Delay(0.9), Cut("after"), Garbage()))
    with ExitStack() as stack:
        electors = []
        for name in ("a", "b", "c"):
            connection = stack.enter_context(connected(server, token=f"token-{name}"))
            electors.append(Elector(connection, "default", "rebalancer", identity=name, options=QUICK))
            stack.callback(electors[-1].stop)
            electors[-1].start()
        referee = stack.enter_context(Referee(*electors))
        for passing in (Reply(500), Reply(409), Cut("before"), Cut("after"), Delay(0.3), Reply(404)):
            server.faults.add(passing, resource="leases", probability=0.03)
        led: list[str] = []
        for fault in lasting:
            until(lambda: any(e.still_leading() for e in electors))
            led.append(next(e.identity for e in electors if e.still_leading()))
            rule = server.faults.add(fault, resource="leases", user=led[-1])
            until(lambda: any(e.still_leading() and e.identity != led[-1] for e in electors))
            server.faults.remove(rule)
        assert all(before != after for before, after in pairwise(led))
    assert referee.both == 0


BRAKE = Place("default", "rebalancer-brake")


def seen(server: ApiServer) -> str:
    """The version of the brake by which the holder says that it is bound."""
    found = server.store.find("Lease", "rebalancer", "default")
    shown = BrakeSeen.read((found or {}).get("metadata", {}).get("annotations") or {})
    if shown is None:
        return ""
    assert (shown.brake, shown.holder) == (BRAKE, "a")
    return shown.version


def test_a_leader_shows_the_brake_only_once_no_older_look_is_in_force(server: ApiServer) -> None:
    with running(server, "a", brake=BRAKE):
        until(lambda: seen(server) == "-")
        first = server.store.get("ConfigMap", BRAKE.name, BRAKE.namespace)["metadata"]["resourceVersion"]
        until(lambda: seen(server) == first)
        began = time.monotonic()
        server.store.modify(
            "ConfigMap", BRAKE.name, BRAKE.namespace, lambda o: o["metadata"].update(annotations={"a": "b"})
        )
        second = server.store.get("ConfigMap", BRAKE.name, BRAKE.namespace)["metadata"]["resourceVersion"]
        until(lambda: seen(server) == second)
        assert time.monotonic() - began >= FRESH


@pytest.mark.parametrize("fault", [Reply(500), Garbage(), Delay(3.0)], ids=["error", "garbage", "silence"])
def test_a_brake_that_cannot_be_read_costs_nobody_the_lease(server: ApiServer, fault: Any) -> None:
    server.faults.add(fault, resource="configmaps", verb="get")
    with running(server, "a", brake=BRAKE) as (a,):
        until(a.still_leading)
        end = time.monotonic() + 2 * QUICK.duration
        while time.monotonic() < end:
            assert a.still_leading()
            time.sleep(0.01)
        assert seen(server) == "-"


@pytest.mark.parametrize("verb", ["get", "update", "delete"])
def test_a_lease_that_is_to_go_stays_where_somebody_takes_it_first(
    server: ApiServer, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    def taken() -> bool:
        edit(server, lambda o: o["spec"].update(holderIdentity="b"))
        return True

    with running(server, "a", options=ElectionOptions()) as (a,):
        until(a.still_leading)
        server.faults.add(Until(taken), resource="leases", verb=verb, times=1)
        assert not a.stop(remove=True)
        assert lease(server)["spec"]["holderIdentity"] == "b"
        assert "stays" not in caplog.text, "that is nobody's fault"


ONE_REQUEST: dict[str, tuple[str, Reply | Delay | Cut]] = {
    "none does": ("get", Delay(0.0)),
    "it cannot be read for a moment": ("get", Reply(500)),
    "the answer to its return is lost": ("update", Cut("after")),
    "its removal fails": ("delete", Reply(500)),
    "its removal has to wait": ("delete", Reply(429, headers={"Retry-After": "0"})),
    "its removal is lost": ("delete", Cut("before")),
    "the answer to its removal is lost": ("delete", Cut("after")),
    "its removal takes longer than is waited for": ("delete", Delay(1.0)),
}


@pytest.mark.parametrize("case", ONE_REQUEST)
def test_a_lease_that_is_to_go_goes_although_a_request_comes_to_nothing(server: ApiServer, case: str) -> None:
    verb, fault = ONE_REQUEST[case]
    with running(server, "a", options=ElectionOptions()) as (a,):
        until(a.still_leading)
        rule = server.faults.add(fault, resource="leases", verb=verb, times=1)
        assert a.stop(0.5, remove=True)
        assert rule.hits
        assert server.store.find("Lease", "rebalancer", "default") is None


def test_who_leaves_a_lease_says_so_and_who_never_had_one_does_not(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    refused = server.faults.add(Reply(403), resource="leases", verb="delete")
    with running(server, "a") as (a,):
        until(a.still_leading)
        assert not a.stop(remove=True)
        assert (lease(server)["spec"]["holderIdentity"], refused.hits) == ("", 1)
        assert "lease default/rebalancer stays" in caplog.text
    server.faults.add(Reply(403), resource="leases")
    with running(server, "a") as (a,):
        until(lambda: isinstance(a.status().error, ForbiddenError))
        assert a.stop(remove=True)


FOR_A_MOMENT: dict[str, tuple[str, Reply]] = {
    "an answer fails": ("get", Reply(500)),
    "somebody else is quicker": ("update", Reply(409)),
}


@pytest.mark.parametrize("case", FOR_A_MOMENT)
def test_who_has_waited_for_long_waits_on_after(server: ApiServer, case: str) -> None:
    """Two who wait are always there at the same time when the lease comes free."""
    verb, fault = FOR_A_MOMENT[case]
    patience = 1.0
    with running(server, "a") as (a,), ThreadPoolExecutor() as pool:
        until(a.still_leading)
        edit(server, lambda o: o["spec"].update(holderIdentity="other", leaseDurationSeconds=3600))
        until(lambda: not a.still_leading())
        waiting = pool.submit(take_lease, a, wait=True, stop=threading.Event(), patience=patience)
        time.sleep(2 * patience)
        rule = server.faults.add(fault, resource="leases", verb=verb, times=1)
        edit(server, lambda o: o["spec"].update(holderIdentity="", leaseDurationSeconds=1))
        waiting.result()
        assert (rule.hits, a.still_leading()) == (1, True)


def test_who_waits_ends_where_the_server_does_not_answer_for_long(server: ApiServer) -> None:
    server.faults.add(Reply(500), resource="leases")
    with running(server, "a") as (a,), pytest.raises(ServerError):
        take_lease(a, wait=True, stop=threading.Event(), patience=0.5)
