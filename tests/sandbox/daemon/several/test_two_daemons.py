"""Two whole daemons on one cluster, the leader paused, cut off or killed in the middle of evicting.

After its lease is lost at most one eviction that was past its check may still arrive, never a second; the
other one finishes; nothing is evicted twice or outside of what the ledger says.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.pair import EVICTIONS, Pair
from tests.support.sandbox import Delay
from tests.support.waiting import until

pytestmark = pytest.mark.slow
AFTERWARDS = 3.0
"""Seconds in which a former leader could do something foolish: several of its checks, and a lease's time."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as p:
        yield p


def taken_over(pair: Pair) -> None:
    """The second leads and finishes what the first began."""
    began = time.monotonic()
    until(lambda: "this instance leads" in pair.second.said())
    leads = time.monotonic() - began
    until(pair.balanced)
    print(f"led after {leads:.1f} s, balanced after {time.monotonic() - began:.1f} s")


def afterwards(pair: Pair, before: int) -> None:
    """The first is back: it has sent one eviction more than `before` at most, and does not lead."""
    time.sleep(AFTERWARDS)
    late = pair.evictions("first") - before
    print(f"{dict(pair.carried_out())}; of the former leader after its lease was lost: {late}")
    assert late <= 1
    assert "no longer leading" in pair.first.said()
    assert "without the same lease" not in pair.first.said() + pair.second.said(), "it claims its own term"
    pair.check(late)
    assert pair.second.end() == 0


def test_a_leader_that_is_stopped_past_its_lease_and_goes_on_evicts_no_more(pair: Pair) -> None:
    pair.go()
    until(lambda: pair.evictions("first") >= 2)
    pair.first.signal(signal.SIGSTOP)
    time.sleep(0.2)
    before = pair.evictions("first")
    taken_over(pair)
    assert 0 < before < EVICTIONS
    assert pair.carried_out()["second"] > 0
    pair.first.signal(signal.SIGCONT)
    afterwards(pair, before)
    assert pair.first.end() == 0


def test_a_leader_that_is_stopped_between_its_check_and_the_eviction(pair: Pair) -> None:
    """Its question whether the namespace is paused is answered while it sleeps, after its lease has gone."""
    slow = pair.cluster.faults.add(Delay(1.0), user="first", resource="namespaces", verb="get", skip=4)
    pair.go()
    until(lambda: slow.hits)
    pair.first.signal(signal.SIGSTOP)
    pair.cluster.faults.clear()
    before = pair.evictions("first")
    taken_over(pair)
    pair.first.signal(signal.SIGCONT)
    afterwards(pair, before)
    assert pair.evictions("first") == before
    assert pair.first.end() == 0


@pytest.mark.parametrize(
    "where", ["at any moment", "with an eviction on its way", "with an answer on its way"]
)
def test_a_leader_that_is_cut_off_and_comes_back(where: str, pair: Pair) -> None:
    if where == "with an eviction on its way":
        pair.relay.cut_at(b"/eviction?", skip=2)
    elif where == "with an answer on its way":
        pair.cluster.faults.add(Delay(0.3), user="first", subresource="eviction")
    pair.go()
    until(lambda: pair.evictions("first") >= 2)
    if where == "with an eviction on its way":
        until(lambda: pair.relay.is_cut)
    else:
        time.sleep(0.1)
        pair.relay.cut()
    time.sleep(0.4)
    before = pair.evictions("first")
    taken_over(pair)
    assert before < EVICTIONS
    assert pair.carried_out()["second"] > 0
    pair.relay.heal()
    afterwards(pair, before)


def test_a_leader_that_is_killed_between_plan_and_eviction(pair: Pair) -> None:
    slow = pair.cluster.faults.add(Delay(5.0), user="first", resource="namespaces", verb="get", skip=3)
    pair.go()
    until(lambda: slow.hits)
    pair.first.kill()
    before = pair.evictions("first")
    pair.cluster.faults.clear()
    taken_over(pair)
    assert pair.evictions("first") == before
    pair.check()
    assert pair.second.end() == 0
