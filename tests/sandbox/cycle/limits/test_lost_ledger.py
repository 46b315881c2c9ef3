"""A ledger that somebody deletes, cuts, edits or sets back: that lifts no cap and closes no breaker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from rebalancer.kube.config_maps import KEY, QUARANTINE, Ledgers
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner import PlanOptions
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.ledger import Entry, Fate, Ledger, Totals
from rebalancer.policy.history.ledger_json import decode, encode
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from tests.support.runs.machine import PLACE, Machine
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.sandbox import Reply
from tests.support.servers.api import QUICK, connected

CAPPED = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_total_per_hour=Limit(number=1))))
"""One eviction an hour."""
ONE = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_total=Limit(number=1))))
"""One eviction a cycle."""


@contextmanager
def process(
    m: Machine, name: str, rules: HistoryRules | None = None, *, terms: list[int] | None = None
) -> Iterator[Memory]:
    """The memory of one process, which ends with the block. The last of `terms` is that in which it leads."""
    m.number += 1
    terms = terms or [m.number]
    with connected(m.server) as c:
        memory = Memory(
            m.time,
            rules or HistoryRules(),
            store=Ledgers(c, PLACE, writer=name, wait=m.time.wait, backoff=QUICK),
            limits=CircuitLimits(pause=600),
            writer=name,
            term=lambda: terms[-1],
            silent=600.0,
        )
        yield memory
        memory.leave()


def cycle(m: Machine, memory: Memory, options: object = EXECUTE) -> Run:
    m.time.at += 5
    m.time.during = lambda _: None
    return Run(m.server, options, hands=m.hands, time=m.time, around=Surroundings(memory=memory))  # type: ignore[arg-type]


def rewritten(m: Machine, change: Callable[[str], str]) -> None:
    """Changes what stands in the ledger."""
    m.server.store.modify(
        "ConfigMap", PLACE.name, "default", lambda o: o["data"].update({KEY: change(o["data"][KEY])})
    )


def without(text: str, *keys: str) -> str:
    return json.dumps({k: v for k, v in json.loads(text).items() if k not in keys})


def deleted(m: Machine) -> None:
    m.server.store.delete("ConfigMap", PLACE.name, "default")


def emptied(m: Machine) -> None:
    m.server.store.modify("ConfigMap", PLACE.name, "default", lambda o: o.pop("data"))


LOST: dict[str, Callable[[Machine], None]] = {
    "deleted": deleted,
    "emptied": emptied,
    "cut in the middle": lambda m: rewritten(m, lambda text: text[:-20]),
    "replaced by what an earlier day had": lambda m: rewritten(m, lambda _: encode(Ledger()).decode()),
    "edited": lambda m: rewritten(m, lambda text: without(text, "entries", "circuit", "totals")),
    "edited by somebody who knows the format": lambda m: rewritten(
        m, lambda text: encode(replace(decode(text), entries=(), serial=99)).decode()
    ),
}


@pytest.mark.parametrize("how", LOST)
def test_what_a_process_remembers_of_its_evictions_outlasts_the_ledger(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Machine() as m, process(m, "a") as memory:
        assert cycle(m, memory, CAPPED).report.evicted == 1
        for _ in range(3):
            LOST[how](m)
            run = cycle(m, memory, CAPPED)
            assert (run.report.end, run.report.evicted) == (End.CAPPED, 0), run.report.message
            assert len(m.ledger().entries) == 1
        LOST[how](m)
        memory.leave()
        with process(m, "its successor") as next_one:
            assert cycle(m, next_one, CAPPED).report.evicted == 0
        m.time.at += 3600
        assert cycle(m, memory, CAPPED).report.evicted == 1
    assert "has less than this process remembers, which holds: 1 more evictions" in caplog.text


@contextmanager
def succeeded(m: Machine, terms: list[int] | None = None) -> Iterator[Memory]:
    """The memory of a process that has led; an hour later another one has evicted as many as it may, and is
    still there."""
    with process(m, "a", terms=terms) as memory:
        assert cycle(m, memory, ONE).report.evicted == 1
        m.time.at += 3600
        with process(m, "b") as other:
            assert cycle(m, other, CAPPED).report.evicted == 1
            yield memory


@pytest.mark.parametrize("how", ["emptied", "cut in the middle"])
def test_who_led_before_and_ends_does_not_make_a_damaged_ledger_look_whole(how: str) -> None:
    with Machine() as m:
        with succeeded(m) as memory:
            LOST[how](m)
            memory.leave()
        with process(m, "c") as next_one:
            held = cycle(m, next_one, CAPPED).report
    assert (held.end, held.evicted) == (End.HELD, 0)
    assert "nobody knows which caps are used up" in held.message


@pytest.mark.parametrize("claimed", [True, False])
def test_who_reads_while_another_leads_does_not_know_all_later(claimed: bool) -> None:
    terms = [1]
    with Machine() as m, succeeded(m, terms) as memory:
        rewritten(m, lambda text: json.dumps(json.loads(text) | {"entries": "cut"}))
        if claimed:
            memory.load()
            memory.save()
        terms.append(m.number + 1)
        assert cycle(m, memory, CAPPED).report.end is End.HELD


@pytest.mark.parametrize("how", ["emptied", "cut in the middle"])
def test_who_led_before_does_not_know_what_others_have_evicted_since(how: str) -> None:
    terms = [1]
    with Machine() as m, process(m, "a", terms=terms) as memory:
        assert cycle(m, memory, CAPPED).report.evicted == 1
        m.time.at += 3600
        with process(m, "b") as other:
            assert cycle(m, other, CAPPED).report.evicted == 1
        LOST[how](m)
        terms.append(m.number + 1)
        held = cycle(m, memory, CAPPED).report
        assert (held.end, held.evicted) == (End.HELD, 0)
        assert "nobody knows which caps are used up" in held.message
        m.time.at += 3600
        assert cycle(m, memory, ONE).report.evicted == 1
        # What is written from now on it knows.
        LOST[how](m)
        assert cycle(m, memory, ONE).report.end is not End.HELD


@pytest.mark.parametrize("how", LOST)
def test_a_breaker_that_a_process_has_opened_outlasts_the_ledger(how: str) -> None:
    with Machine() as m, process(m, "a") as memory:
        fault = m.server.faults.add(Reply(500), subresource="eviction")
        assert cycle(m, memory).report.end is End.ABORTED
        m.server.faults.remove(fault)
        LOST[how](m)
        held = cycle(m, memory).report
        assert held.reason is not None
        assert (held.end, held.evicted, held.reason.code) == (End.HELD, 0, ReasonCode.CIRCUIT_OPEN)
        m.time.at += 600
        assert cycle(m, memory).report.evicted > 0
        assert m.ledger().circuit.trips == 0


def test_a_person_who_evicts_beside_an_open_breaker_does_not_close_it_before_its_time() -> None:
    """The daemon could not tell this from a ledger that somebody has edited."""
    with Machine() as m, process(m, "a") as memory:
        fault = m.server.faults.add(Reply(500), subresource="eviction")
        cycle(m, memory, ONE)
        m.server.faults.remove(fault)
        assert cycle(m, memory, ONE).report.end is End.HELD
        person = m.cycle(options=ONE, limits=CircuitLimits(pause=600), attended=True)
        assert person.report.evicted == 1
        with connected(m.server) as c:
            store = Ledgers(c, PLACE, writer="x", wait=m.time.wait)
            store.save(replace(store.load(), claims={}))
        assert cycle(m, memory, ONE).report.end is End.HELD
        m.time.at += 600
        assert cycle(m, memory, ONE).report.evicted == 1


@pytest.mark.parametrize("how", ["cut in the middle", "emptied"])
def test_a_ledger_that_cannot_be_read_by_who_remembers_nothing_means_an_hour_of_caution(how: str) -> None:
    with Machine() as m:
        with process(m, "a") as memory:
            assert cycle(m, memory, ONE).report.evicted == 1
        LOST[how](m)
        with process(m, "b") as memory:
            held = cycle(m, memory, ONE).report
        assert held.reason is not None
        assert (held.end, held.evicted, held.reason.code) == (End.HELD, 0, ReasonCode.CIRCUIT_OPEN)
        assert "ConfigMap default/rebalancer-ledger could not be read" in held.message
        assert "nothing is evicted before 04:33:" in held.message
        assert "delete ConfigMap default/rebalancer-ledger" in held.reason.remedy
        assert (
            QUARANTINE in m.server.store.get("ConfigMap", PLACE.name, "default")["data"] or how == "emptied"
        )
        # It is the same for the next one, and for a person who does not wait for the breaker.
        m.time.at += 3500
        assert m.cycle(options=ONE, attended=True).report.end is End.HELD
        m.time.at += 120
        with process(m, "c") as memory:
            assert cycle(m, memory, ONE).report.evicted == 1


def test_what_is_put_aside_leaves_the_ledger_room() -> None:
    """A ConfigMap holds so many bytes, not letters; what it does not hold would stop all evictions."""
    with Machine() as m, connected(m.server) as c:
        m.keep(Ledger())
        rewritten(m, lambda _: "\U0001f6d1" * 250_000)
        store = Ledgers(c, PLACE, writer="x", wait=m.time.wait)
        store.save(replace(store.load(), entries=(replace(ENTRY, message="x" * 500_000),)))
        data = m.server.store.get("ConfigMap", PLACE.name, "default")["data"]
    assert data[QUARANTINE]
    assert sum(len(value.encode()) for value in data.values()) <= 2**20


def test_who_deletes_a_ledger_that_could_not_be_read_begins_as_in_a_first_run() -> None:
    with Machine() as m:
        m.keep(Ledger(totals=Totals(evictions=500, as_predicted=500, in_a_row=500)))
        LOST["cut in the middle"](m)
        with process(m, "a", HistoryRules(canary=5)) as memory:
            assert cycle(m, memory, ONE).report.end is End.HELD
            deleted(m)
            assert cycle(m, memory, ONE).report.evicted == 1
            assert memory.canary_left == 4


ENTRY = Entry(
    at=1_999_999_990.0,
    cycle="x",
    namespace="default",
    pod="web-1",
    uid="u1",
    owner="ReplicaSet/default/api",
    node="a-0",
    predicted="b-0",
    fate=Fate.FAILED,
    cluster="x",
)
ODD: dict[str, dict[str, object]] = {
    "an owner without slashes": {"owner": "web"},
    "a time that is none": {"at": "yesterday"},
    "a time before there was any": {"at": -5.0},
    "a time that no page can show": {"at": 1e300},
    "a fate that nobody knows": {"fate": "eaten"},
    "no pod": {"pod": None},
    "a negative number": {"destinations": -1},
}


@pytest.mark.parametrize("odd", ODD)
def test_an_entry_that_cannot_be_right_is_put_aside_and_ends_no_cycle(
    odd: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Machine() as m:
        right = Ledger(entries=(ENTRY, replace(ENTRY, uid="u2")), totals=Totals(in_a_row=9))
        m.keep(right)
        text = json.loads(encode(right))
        text["entries"][1] |= ODD[odd]
        rewritten(m, lambda _: json.dumps(text))
        with process(m, "a", HistoryRules(canary=3, retry_after=60.0)) as memory:
            memory.begin()
            assert [e.uid for e in memory.ledger.entries] == ["u1"]
            assert memory.canary_left == 3, "others are trusted no more than in a first run"
            runs = [cycle(m, memory, ONE), cycle(m, memory, ONE)]
        assert [r.report.evicted for r in runs] == [1, 1]
    assert caplog.text.count("is damaged: entries[1]: it cannot be read") == 1


@pytest.mark.parametrize(
    "part",
    [
        {"refused": {"pay/web-0": ["2026-01-01", "x", "says"]}},
        {"refused": []},
        {"shown": {"1.38": "all"}},
        {"irreplaceable": 1},
    ],
    ids=["a refusal with a time as text", "no table of refusals", "no counts", "no table of findings"],
)
def test_damage_of_what_no_cap_rests_on_keeps_no_pod(part: dict[str, object]) -> None:
    with Machine() as m:
        m.keep(Ledger(entries=(ENTRY,)))
        text = json.loads(encode(Ledger(entries=(ENTRY,)))) | part
        rewritten(m, lambda _: json.dumps(text))
        with process(m, "a", HistoryRules(canary=3, retry_after=60.0)) as memory:
            memory.begin()
            assert [e.uid for e in memory.ledger.entries] == ["u1"]
            assert memory.circuit_open() is None
            run = cycle(m, memory, ONE)
        assert run.report.evicted == 1
