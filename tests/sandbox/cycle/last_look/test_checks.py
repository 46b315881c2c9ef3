"""Every check, at every moment at which it is asked, can stop an eviction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from rebalancer.kube.connection import Connection
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import Check, Moment, Reason, ReasonCode
from rebalancer.outcome import Eviction, Observer
from rebalancer.planner import plan
from rebalancer.planner.plan import Move
from rebalancer.policy import evictable
from rebalancer.runtime.live import checks
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.checks import CHECKS
from rebalancer.runtime.live.once import run_once
from tests.support.build import objects, snapshot
from tests.support.runs.one_cycle import EXECUTE, SKEWED
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.api import FakeTime, connected


class Unwell(NamedTuple):
    """A cluster whose API server fails every request to evict, so that the first is sent again."""

    server: ApiServer
    connection: Connection
    cache: WatchCache

    def posts(self) -> list[int]:
        """How many requests each eviction of a cycle sent."""
        told = Told()
        around = Surroundings(cache=self.cache)
        run_once(self.connection, EXECUTE, clock=FakeTime(), observers=[told], around=around)
        return told.posts


class Told(Observer):
    """Counts requests."""

    def __init__(self) -> None:
        self.posts = list[int]()

    def on_eviction(self, move: Move, eviction: Eviction) -> None:  # noqa: ARG002
        self.posts.append(eviction.posts)


@pytest.fixture(scope="module")
def unwell() -> Iterator[Unwell]:
    with ApiServer(objects(*SKEWED), bookmark_every=0.1) as server, connected(server) as connection:
        server.faults.add(Reply(500), subresource="eviction")
        cache = WatchCache(connection).start()
        assert cache.wait_ready(30.0)
        yield Unwell(server, connection, cache)
        cache.stop()


def saying_no(table: tuple[Check, ...], n: int, moment: Moment) -> tuple[Check, ...]:
    """The table whose n-th check says no, whatever it is asked, at this moment and at no other."""
    no = replace(table[n], ask=lambda *_: Reason(ReasonCode.WINDOW, "not now"), moments=frozenset({moment}))
    return (*table[:n], no, *table[n + 1 :])


def cases(moment: Moment, table: tuple[Check, ...] = CHECKS) -> pytest.MarkDecorator:
    asked = [n for n, check in enumerate(table) if moment in check.moments]
    return pytest.mark.parametrize("n", asked, ids=[f"{n}: {table[n].name}" for n in asked])


def test_where_nothing_says_no_a_request_is_sent_and_sent_again(unwell: Unwell) -> None:
    assert max(unwell.posts()) > 1


@cases(Moment.PLAN, evictable.PROTECTIONS)
def test_a_protection_keeps_the_pod_out_of_the_plan(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(snapshot(*SKEWED)).moves
    monkeypatch.setattr(evictable, "PROTECTIONS", saying_no(evictable.PROTECTIONS, n, Moment.PLAN))
    assert not plan(snapshot(*SKEWED)).moves


@cases(Moment.START)
def test_a_no_at_the_start_lets_no_plan_be_carried_out(
    n: int, unwell: Unwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CHECKS", saying_no(CHECKS, n, Moment.START))
    assert unwell.posts() == []


@cases(Moment.LAST_LOOK)
def test_a_no_of_the_last_look_keeps_every_request_from_being_sent(
    n: int, unwell: Unwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CHECKS", saying_no(CHECKS, n, Moment.LAST_LOOK))
    assert unwell.posts() == []


@cases(Moment.RESEND)
def test_a_no_before_a_further_request_keeps_it_from_being_sent(
    n: int, unwell: Unwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CHECKS", saying_no(CHECKS, n, Moment.RESEND))
    sent = unwell.posts()
    assert sent
    assert set(sent) == {1}


def test_every_protection_of_the_plan_is_asked_again_before_each_request() -> None:
    table = {c.name: c.moments for c in CHECKS}
    every = frozenset({Moment.PLAN, Moment.LAST_LOOK, Moment.RESEND})
    assert [table[c.name] for c in evictable.PROTECTIONS] == [every] * len(evictable.PROTECTIONS)
