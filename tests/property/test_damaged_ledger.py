"""Whatever happens to the ledger in the cluster: who remembers evicts no more for that, and goes on."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebalancer.kube.config_maps import KEY, LedgerError, Ledgers, Place, labels_of
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.ledger import (
    COVERED,
    Circuit,
    Count,
    Entry,
    Fate,
    Ledger,
    Shown,
    Totals,
    owner_id,
)
from rebalancer.policy.history.ledger_json import encode
from rebalancer.policy.history.stabilization import Followed, first_seen
from rebalancer.policy.history.waits import HistoryRules, waiting_owners
from rebalancer.policy.options import Times
from rebalancer.runtime.cycle.memory import Memory
from tests.support.servers.api import FakeTime

NOW = 2_000_000_000.0
RULES = HistoryRules(cool_down=300.0, retry_after=6 * 3600.0, stabilization=180.0, canary=5)
LIMITS = CircuitLimits(pause=600)


def entry(number: int, ago: float, fate: Fate, owner: str) -> Entry:
    return Entry(
        at=NOW - ago,
        cycle=f"c{number}",
        namespace="shop",
        pod=f"{owner}-{number}",
        uid=f"u{number}",
        owner=f"Deployment/shop/{owner}",
        node="a-0",
        predicted="b-0",
        fate=fate,
        excess={"zone": 2},
        leaves=("zone=a",),
        into=("zone=b",),
        cluster="as it is",
    )


KNOWN = Ledger(
    writer="a",
    serial=7,
    looked=NOW - 20,
    entries=(
        entry(1, 9000, Fate.DONE, "api"),
        entry(2, 7000, Fate.FAILED, "web"),
        entry(3, 1200, Fate.DONE, "api"),
        entry(4, 600, Fate.DONE, "api"),
        entry(5, 60, Fate.DONE, "db"),
    ),
    counted={owner_id("Deployment/shop/web"): (Count(int(NOW - 1800), 3),)},
    violated={"zone": NOW - 100, "host": NOW - 900},
    totals=Totals(evictions=8, as_predicted=7, failed=1, in_a_row=3),
    circuit=Circuit(until=NOW + 300, trips=1, reason="unwell", opened=NOW - 300),
    shown={
        "v1.38.0|p|NodePorts takes": Shown(NOW - 50, COVERED),
        "v1.38.0|p|NodePorts rejects": Shown(NOW - 60, 7, "shop/web-1: the scheduler put it on a-0"),
    },
)


class Stored:
    """A connection to a server whose ledger reads so."""

    def __init__(self, text: str) -> None:
        self.text = text

    def request(self, *_: Any, **__: Any) -> Any:
        meta = {"name": "l", "resourceVersion": "1", "labels": labels_of("ledger")}
        return SimpleNamespace(body=json.dumps({"metadata": meta, "data": {KEY: self.text}}).encode())


def remembering(text: str, known: Ledger) -> Memory | None:
    """A process with that memory, which reads that text; None: it was refused, so that nothing is evicted."""
    time = FakeTime(at=NOW)
    store = Ledgers(Stored(text), Place("default", "l"), writer="a", wait=time.wait)  # type: ignore[arg-type]
    memory = Memory(time, RULES, store=store, limits=LIMITS, writer="a")
    memory.ledger = known
    try:
        memory.begin()
    except LedgerError:
        return None
    return memory


def many(times: Times) -> int:
    return sum(n for _, n in times)


def at_least_as_strict(found: Memory, usual: Memory) -> None:
    """Caps, rests, breaker, canary, and since when violations are known."""
    mine, theirs = usual.earlier(), found.earlier()
    assert many(theirs.last_hour) >= many(mine.last_hour)
    assert all(many(theirs.last_day[owner]) >= many(each) for owner, each in mine.last_day.items())
    assert found.canary_left >= usual.canary_left
    assert found.circuit_open() is not None
    witnesses = [m.witness("v1.38.0") for m in (found, usual)]
    assert witnesses[0].doubted.keys() >= witnesses[1].doubted.keys()
    rest = [
        waiting_owners(m.ledger, RULES, now=NOW, cycle="x", cluster=lambda _: "as it is")
        for m in (found, usual)
    ]
    assert rest[0].keys() >= rest[1].keys()
    since = [
        first_seen(m.ledger, ("zone", "host", "x"), lambda _: 0.0, Followed(), now=NOW)
        for m in (found, usual)
    ]
    assert all(since[0][k] >= at for k, at in since[1].items())


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """The ledger with some of it cut, or with other bytes, names, values or types."""
    text = encode(KNOWN).decode()
    how = draw(st.sampled_from(["cut", "bytes", "tree", "tree", "tree"]))
    if how == "cut":
        return text[: draw(st.integers(0, len(text)))]
    if how == "bytes":
        raw = bytearray(text.encode())
        for _ in range(draw(st.integers(1, 5))):
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(32, 126))
        return raw.decode()
    tree = json.loads(text)
    for _ in range(draw(st.integers(1, 4))):
        change(draw, tree)
    return json.dumps(tree)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(0, 4e9),
    st.text(max_size=4),
    st.just([]),
    st.just({}),
)


def change(draw: st.DrawFn, tree: Any) -> None:
    """One place in the tree: gone, renamed, or something else."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        if isinstance(tree[key], dict | list) and tree[key] and draw(st.booleans()):
            tree = tree[key]
            continue
        how = draw(st.sampled_from(["gone", "renamed", "other", "other"]))
        value = tree.pop(key) if how != "other" else None
        if how == "other":
            tree[key] = draw(VALUES)
        elif how == "renamed" and isinstance(tree, dict):
            tree[draw(st.text(max_size=5))] = value
        return


@given(damaged())
def test_a_damaged_ledger_lets_nothing_through_that_the_whole_one_would_not(text: str) -> None:
    usual = remembering(encode(KNOWN).decode(), KNOWN)
    assert usual is not None
    found = remembering(text, KNOWN)
    if found is not None:
        at_least_as_strict(found, usual)
        encode(found.ledger)


@given(damaged())
def test_who_remembers_nothing_goes_on_with_what_is_left_or_waits(text: str) -> None:
    found = remembering(text, Ledger())
    if found is not None:
        found.earlier()
        found.circuit_open()
        encode(found.ledger)


def test_the_whole_ledger_is_read_as_it_was_written() -> None:
    for known in (KNOWN, Ledger()):
        found = remembering(encode(KNOWN).decode(), known)
        assert found is not None
        assert found.ledger == replace(KNOWN, version=1)
