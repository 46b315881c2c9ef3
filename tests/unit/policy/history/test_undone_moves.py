"""Moves undone by the removal of nodes count against their pair of domains, not against the owner."""

from __future__ import annotations

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.policy.ledger import Entry, Fate, Ledger
from rebalancer.policy.waits import (
    SOON,
    Account,
    HistoryRules,
    account,
    marked,
    pairs,
    undone_pairs,
    waiting_owners,
)
from rebalancer.runtime.cycle.memory import undone
from tests.support.build import nodes, snapshot, workload

ZONE = "topology.kubernetes.io/zone"
NOW = 1_000_000.0
RULES = HistoryRules(max_returns=2)
HOUR = 3600.0


def entry(hours_ago: float, *, into: str = "b", removed: float = 0.0, fate: Fate = Fate.DONE,
          landed: str = "b-0", cycle: str = "") -> Entry:  # fmt: skip
    """A move of web out of zone a."""
    at = NOW - hours_ago * HOUR
    return Entry(
        at=at, cycle=cycle or f"c{hours_ago}", namespace="default", pod="web-1", uid=f"u{at}",
        owner="ReplicaSet/default/web", node="a-0", predicted=landed, landed=landed, fate=fate,
        leaves=(f"{ZONE}=a",), into=(f"{ZONE}={into}",), removed=removed, excess={"c": 2}, cluster="same",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("what", "removed"),
    [
        (entry(1), True),
        (entry(1, landed="c-0"), False),
        (entry(25), False),
        (entry(1, fate=Fate.ASTRAY), False),
    ],
    ids=["its node is gone", "its node is there", "it went a day later", "it was astray anyway"],
)
def test_a_move_is_undone_if_its_node_goes_soon(what: Entry, removed: bool) -> None:
    [found] = marked([what], {"a-0", "c-0"}, NOW)
    assert bool(found.removed) is removed
    assert SOON == 24 * HOUR


def test_when_it_was_seen_first_is_kept() -> None:
    [found] = marked([entry(2, removed=NOW - HOUR)], set(), NOW)
    assert found.removed == NOW - HOUR


def test_the_pair_of_domains_is_worn_after_two_cycles_and_no_other_is() -> None:
    pair = (f"{ZONE}=a", f"{ZONE}=b")
    twice = Ledger(entries=(entry(3, removed=NOW - 2 * HOUR), entry(1, removed=NOW)))
    assert undone_pairs(twice, RULES, NOW) == {pair: 2}
    assert undone_pairs(twice, RULES, NOW + RULES.retry_after) == {}
    assert undone_pairs(twice, HistoryRules(max_returns=0), NOW) == {}
    once = Ledger(entries=(entry(1, removed=NOW, cycle="c"), entry(1.1, removed=NOW, cycle="c")))
    assert undone_pairs(once, RULES, NOW) == {}, "one removal undid two moves of one cycle"
    assert pairs((f"{ZONE}=a", "rack=1"), (f"{ZONE}=b", "rack=1")) == [pair]


TIRED = Ledger(entries=(entry(3, removed=NOW - 2 * HOUR), entry(1, removed=NOW)))


def test_an_owner_rests_while_its_only_way_is_worn() -> None:
    there = snapshot(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    found = undone(there, plan(there), TIRED, RULES, now=NOW)
    assert {o: r.code for o, r in found.items()} == {"ReplicaSet/default/web": ReasonCode.NODES_REMOVED}
    assert f"moves from {ZONE}=a to {ZONE}=b were undone 2 times" in found["ReplicaSet/default/web"].message


def test_it_goes_on_where_another_domain_is_open() -> None:
    there = snapshot(*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    assert undone(there, plan(there), TIRED, RULES, now=NOW) == {}


def test_the_owner_itself_is_in_no_loop() -> None:
    def rests(*entries: Entry) -> list[ReasonCode]:
        found = waiting_owners(Ledger(entries=entries), RULES, now=NOW, cycle="now", cluster=lambda _: "same")
        return [r.code for r in found.values()]

    assert rests(entry(3), entry(2), entry(1)) == [ReasonCode.EVICTION_LOOP]
    assert rests(*(entry(h, removed=NOW) for h in (3, 2, 1))) == []


def test_the_account_of_the_week() -> None:
    entries = [entry(h, removed=NOW if h < 15 else 0.0) for h in range(1, 21)]
    found = account(Ledger(entries=(*entries, entry(200, removed=NOW))), NOW)
    assert (found, found.contradicts) == (Account(14, 20), True)
    assert not Account(2, 3).contradicts
    assert not Account(3, 20).contradicts
