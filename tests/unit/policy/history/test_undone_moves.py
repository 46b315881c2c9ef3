"""Moves undone because a domain shrank count against their pair of domains, not against the owner."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from rebalancer.model.node import HOSTNAME
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import plan
from rebalancer.planner.plan import Plan, domains_left
from rebalancer.policy.history.ledger import Entry, Fate, Ledger, ready_late
from rebalancer.policy.history.waits import (
    SOON,
    Account,
    HistoryRules,
    Undone,
    account,
    marked,
    pairs,
    undone_pairs,
    waiting_owners,
)
from rebalancer.runtime.cycle.owners_that_wait import undone
from tests.support.build import NodeBuilder, node, nodes, snapshot, workload

ZONE = "topology.kubernetes.io/zone"
NOW = 1_000_000.0
RULES = HistoryRules()
HOUR, MINUTE = 3600.0, 60.0
PAIR = (f"{ZONE}=a", f"{ZONE}=b")
CPU = 8000


def entry(hours_ago: float, *, into: str = "b", shrank: float = 0.0, fate: Fate = Fate.DONE,
          landed: str = "b-0", cycle: str = "") -> Entry:  # fmt: skip
    """A move of web out of zone a, into a zone of two nodes."""
    at = NOW - hours_ago * HOUR
    return Entry(
        at=at, cycle=cycle or f"c{hours_ago}", namespace="default", pod="web-1", uid=f"u{at}",
        owner="ReplicaSet/default/web", node="a-0", predicted="b-0", landed=landed, fate=fate,
        leaves=(f"{ZONE}=a",), into=(f"{ZONE}={into}",), removed=shrank, room=(2 * CPU,), shrank=(shrank,),
        excess={"c": 2}, cluster="same",
    )  # fmt: skip


def seen(what: Entry, *there: NodeBuilder, at: float = NOW) -> Entry:
    """The entry after a look at these nodes."""
    [found] = marked([what], snapshot(*nodes(a=2), *there).nodes, at)
    return found


def b(i: int | str) -> NodeBuilder:
    return node(f"b-{i}").zone("b")


WHOLE = [b(0), b(1)]


@pytest.mark.parametrize(
    ("what", "there", "shrank"),
    [
        (entry(1), WHOLE, False),
        (entry(1), [b(1)], True),
        (entry(1), [b(0).not_ready(), b(1)], True),
        (entry(1), [b(0)], False),
        (entry(1), [b(1), b("new")], False),
        (entry(1), [], True),
        (entry(25), [b(1)], False),
        (entry(1, fate=Fate.ELSEWHERE), [b(1)], False),
    ],
    ids=[
        "its node is there", "its node is gone", "its node is not Ready", "another node is gone",
        "another has taken the place of its node", "the zone is gone", "it went a day later",
        "it was elsewhere anyway",
    ],
)  # fmt: skip
def test_a_move_is_undone_if_its_domain_shrinks_soon(
    what: Entry, there: Sequence[NodeBuilder], shrank: bool
) -> None:
    assert any(seen(what, *there).shrank) is shrank
    assert SOON == 24 * HOUR


def test_nodes_that_take_the_place_of_others_within_a_quarter_of_an_hour_undo_nothing() -> None:
    gap = seen(entry(1), b(1))
    assert not any(seen(gap, *WHOLE, at=NOW + 10 * MINUTE).shrank)
    assert any(seen(gap, *WHOLE, at=NOW + 20 * MINUTE).shrank), "for so long it was smaller"
    gone = seen(entry(1))
    assert any(seen(gone, *WHOLE, at=NOW + 5 * MINUTE).shrank), "a zone that was away was not replaced"


def test_a_node_that_was_not_ready_for_a_moment_undoes_nothing_and_its_owner_may_still_be_in_a_loop() -> None:
    blip = seen(entry(1), b(0).not_ready(), b(1))
    assert (blip.removed, any(blip.shrank)) == (0.0, True)
    over = seen(blip, *WHOLE, at=NOW + 2 * MINUTE)
    assert (over.removed, any(over.shrank)) == (0.0, False)


@pytest.mark.parametrize(("minutes", "undone"), [(1, False), (3, True)])
def test_so_it_is_with_the_last_node_of_a_domain_as_long_as_it_keeps_its_pods(
    minutes: int, undone: bool
) -> None:
    away = seen(replace(entry(1), room=(CPU,)), b(0).not_ready())
    assert any(away.shrank)
    still = seen(away, b(0).not_ready(), at=NOW + minutes * MINUTE)
    back = seen(still, b(0), at=NOW + (minutes + 1) * MINUTE)
    assert any(back.shrank) is undone


def test_what_was_seen_first_is_kept() -> None:
    found = seen(seen(entry(2), b(1)), b(1), at=NOW + HOUR)
    assert (found.removed, found.shrank) == (NOW, (NOW,))


def test_a_replacement_that_failed_with_its_node_does_not_count_against_its_owner() -> None:
    failed = replace(entry(1, fate=Fate.FAILED, landed=""), into=(), room=(), shrank=())
    found = waiting_owners(Ledger(entries=(failed,)), RULES, now=NOW, cycle="x", cluster=lambda _: "same")
    assert [r.code for r in found["ReplicaSet/default/web"]] == [ReasonCode.DID_NOT_HELP]
    gone = Ledger(entries=(seen(failed),))
    assert waiting_owners(gone, RULES, now=NOW, cycle="x", cluster=lambda _: "same") == {}


@pytest.mark.parametrize("fate", [Fate.DONE, Fate.FAILED])
def test_nodes_whose_names_do_not_come_again_count_as_one_pair_for_the_owner(fate: Fate) -> None:
    """An autoscaler adds a node, on which web may not even start, and takes it again, three times."""
    moves = [
        replace(
            entry(hours, fate=fate, landed=f"n-{hours}", shrank=NOW - hours * HOUR + 10 * MINUTE),
            leaves=(f"{HOSTNAME}=a-{hours}",),
            into=(f"{HOSTNAME}=n-{hours}",),
        )
        for hours in (0.25, 0.75, 1.25)
    ]
    ledger = Ledger(entries=tuple(reversed(moves)))
    for wait in (True, False):
        cluster = snapshot(
            *nodes(a=1, b=1), workload("web" if wait else "api").spread("hostname").placed({"a-0": 3})
        )
        made = plan(cluster)
        assert made.moves
        left = domains_left(cluster, made)
        found = undone(cluster.nodes, made.moves, left, ledger, RULES, now=NOW)
        assert [r.code for r in found.values()] == [ReasonCode.NODES_REMOVED] * wait
        assert (
            not wait
            or "moves of its pods to other nodes were undone 3 times" in next(iter(found.values())).message
        )


def outages(*minutes: tuple[float, float]) -> Ledger:
    """Moves made, and undone, so many minutes ago."""
    return Ledger(entries=tuple(entry(at / 60, shrank=NOW - gone * MINUTE) for at, gone in minutes))


WAITED: list[tuple[str, Ledger, Undone | None]] = [
    ("once", outages((20, 5)), Undone(1, NOW + 5 * MINUTE)),
    ("once, and ten minutes ago", outages((20, 10)), None),
    ("twice within an hour", outages((50, 40), (20, 5)), Undone(2, NOW + 25 * MINUTE)),
    ("three times", outages((80, 70), (50, 40), (20, 5)), Undone(3, NOW + 115 * MINUTE)),
    ("five times", outages(*((i * 30, i * 30 - 20) for i in (5, 4, 3, 2, 1))), Undone(5, NOW + 350 * MINUTE)),
    ("several moves by one outage", outages((60, 5), (50, 5), (20, 5)), Undone(1, NOW + 5 * MINUTE)),
    ("node by node", outages((20, 9), (20, 7), (20, 5)), Undone(1, NOW + 5 * MINUTE)),
    ("made as the first was undone", outages((30, 20), (20, 5)), Undone(1, NOW + 5 * MINUTE)),
    ("it went well for an hour in between", outages((100, 90), (80, 5)), Undone(1, NOW + 5 * MINUTE)),
    ("the other one was yesterday", outages((1500, 1440), (20, 5)), Undone(1, NOW + 5 * MINUTE)),
]  # fmt: skip


@pytest.mark.parametrize(("ledger", "waits"), [w[1:] for w in WAITED], ids=[w[0] for w in WAITED])
def test_the_more_often_in_a_row_the_longer_is_waited(ledger: Ledger, waits: Undone | None) -> None:
    assert undone_pairs(ledger, RULES, NOW) == ({PAIR: waits} if waits else {})
    assert undone_pairs(ledger, HistoryRules(after_undone=()), NOW) == {}
    assert undone_pairs(ledger, RULES, NOW + 6 * HOUR) == {}, "nothing is waited for for ever"


@pytest.mark.parametrize(
    ("tries", "wait"),
    [((5,), 10), ((20, 5), 30), ((60, 20, 5), 120), ((240, 60, 20, 5), 360), ((400, 240, 60, 20, 5), 360),
     ((1000, 400, 240, 60, 20, 5), 360), ((800, 5), 10)],
)  # fmt: skip
def test_the_more_often_no_node_came_the_longer_no_move_waits_for_one(
    tries: tuple[int, ...], wait: int
) -> None:
    """So many minutes ago; longer than twice the longest wait ago says nothing any more."""
    entries = [entry((m + 6) / 60, fate=Fate.UNDONE, landed="", shrank=NOW - m * MINUTE) for m in tries]
    ledger = Ledger(entries=tuple(entries))
    until = NOW + (wait - 5) * MINUTE
    found = undone_pairs(ledger, RULES, NOW, Fate.UNDONE)
    assert found == {PAIR: Undone(1 if tries == (800, 5) else len(tries), until)}
    assert undone_pairs(ledger, RULES, NOW) == {}, "other moves do not wait"


def test_domains_of_one_key_make_a_pair() -> None:
    assert pairs((f"{ZONE}=a", "rack=1"), (f"{ZONE}=b", "rack=1")) == [PAIR]


TIRED = outages((50, 40), (20, 5))


def left_alone(there: Snapshot, made: Plan, ledger: Ledger) -> dict[str, Reason]:
    return undone(there.nodes, made.moves, domains_left(there, made), ledger, RULES, now=NOW)


def test_an_owner_waits_while_its_only_way_is_shut() -> None:
    there = snapshot(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    found = left_alone(there, plan(there), TIRED)
    [(owner, reason)] = found.items()
    assert (owner, reason.code) == ("ReplicaSet/default/web", ReasonCode.NODES_REMOVED)
    assert reason.message.startswith("waits until 14:11:40Z: moves from ")
    assert f"{ZONE}=a to {ZONE}=b were undone 2 times" in reason.message
    assert "`rebalancer once --execute` does not wait" in reason.remedy


def test_it_goes_on_where_another_domain_is_open() -> None:
    there = snapshot(*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    assert left_alone(there, plan(there), TIRED) == {}


def test_an_owner_waits_while_no_node_comes_where_its_move_would_wait_for_one() -> None:
    there = snapshot(*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    made = plan(there)
    waiting = replace(made, moves=tuple(replace(m, awaits=(f"{ZONE}=b",)) for m in made.moves))
    in_vain = Ledger(entries=(entry(1, shrank=NOW - 60, fate=Fate.UNDONE),))
    assert left_alone(there, made, in_vain) == {}
    [reason] = left_alone(there, waiting, in_vain).values()
    assert f"a move from {ZONE}=a to {ZONE}=b has waited once" in reason.message


@pytest.mark.parametrize(("into", "fate"), [("b", Fate.DONE), ("a", Fate.FAILED)])
def test_a_replacement_that_is_ready_late_has_come_if_it_is_out_of_the_domain(into: str, fate: Fate) -> None:
    there = snapshot(*nodes(b=1), workload("web").placed({"b-0": 1}))
    (pod,) = there.pods
    failed = replace(entry(1, into=into, fate=Fate.FAILED), replacement=pod.key)
    assert [e.fate for e in ready_late([failed], there.pods)] == [fate]


def test_the_owner_itself_is_in_no_loop() -> None:
    def waits(*entries: Entry) -> list[ReasonCode]:
        found = waiting_owners(Ledger(entries=entries), RULES, now=NOW, cycle="now", cluster=lambda _: "same")
        return [r.code for reasons in found.values() for r in reasons]

    assert waits(entry(3), entry(2), entry(1)) == [ReasonCode.EVICTION_LOOP]
    assert waits(*(entry(h, shrank=NOW) for h in (3, 2, 1))) == []


def test_the_account_of_the_week() -> None:
    entries = [entry(h, shrank=NOW - (h - 0.5) * HOUR if h < 15 else 0.0) for h in range(1, 21)]
    found = account(Ledger(entries=(*entries, entry(200, shrank=NOW))), NOW)
    assert (found, found.contradicts) == (Account(14, 20, 14), True)
    assert not Account(2, 3, 2).contradicts
    assert not Account(3, 20, 3).contradicts


def test_one_outage_that_undoes_everything_is_no_contradiction() -> None:
    entries = [entry(h, shrank=NOW) for h in range(1, 14)]
    found = account(Ledger(entries=tuple(entries)), NOW)
    assert (found, found.contradicts) == (Account(13, 13, 1), False)
