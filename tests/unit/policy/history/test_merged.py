"""Two accounts of one ledger: the entries of both are kept, and of everything else what allows less."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebalancer.policy.history.ledger import (
    COVERED,
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_SHOWN,
    OPEN,
    Circuit,
    Claim,
    Entry,
    Fate,
    Ledger,
    Opening,
    Shown,
    Totals,
    claimed,
    oldest_first,
    rival,
)
from rebalancer.policy.history.ledger_json import decode, encode, within_limits
from rebalancer.policy.history.ledgers_merged import merged
from rebalancer.policy.options import Refused


def entry(at: float, pod: str, message: str = "") -> Entry:
    return Entry(
        at=at,
        cycle="c1",
        namespace="default",
        pod=pod,
        uid=pod,
        owner="ReplicaSet/default/web",
        node="a-0",
        predicted="b-0",
        message=message,
    )


def test_entries_of_both_are_kept_in_the_order_of_time_and_of_one_entry_the_own() -> None:
    theirs = Ledger(entries=(entry(1, "a"), entry(3, "c", "theirs")))
    mine = Ledger(entries=(entry(2, "b"), entry(3, "c", "mine")))
    found = merged(theirs, mine)
    assert [(e.pod, e.message) for e in found.entries] == [("a", ""), ("b", ""), ("c", "mine")]


def test_what_the_present_cycle_intended_and_has_taken_back_does_not_come_again() -> None:
    intended = replace(entry(2, "a"), fate=Fate.INTENDED)
    others = (replace(intended, cycle="c2"), replace(entry(3, "b"), fate=Fate.UNKNOWN))
    assert merged(Ledger(entries=(intended, *others)), Ledger(), "c1").entries == others
    assert merged(Ledger(entries=(intended, *others)), Ledger()).entries == (intended, *others)


@pytest.mark.parametrize("fate", [Fate.INTENDED, Fate.UNKNOWN])
def test_of_two_times_of_one_eviction_the_later_counts(fate: Fate) -> None:
    one, other = Ledger(entries=(entry(5, "a"),)), Ledger(entries=(replace(entry(3, "a"), fate=fate),))
    assert {merged(*both).entries[0].at for both in ((one, other), (other, one))} == {5}


def test_of_what_decisions_have_shown_the_account_that_allows_less_counts() -> None:
    theirs = {"a": Shown(1.0, COVERED), "b": Shown(2.0, 5, "no"), "c": Shown(3.0, COVERED)}
    mine = {"a": Shown(4.0, 3), "b": Shown(1.0, 9), "d": Shown(5.0, COVERED)}
    assert merged(Ledger(shown=theirs), Ledger(shown=mine)).shown == {
        "a": Shown(4.0, 3),
        "b": Shown(2.0, 5, "no"),
        "c": Shown(3.0, 0),
        "d": Shown(5.0, COVERED),
    }


def test_what_decisions_have_shown_is_bounded_and_what_cannot_be_right_is_put_aside() -> None:
    many = {f"v|p|{i}": Shown(float(i), 1, "wrong" if not i else "") for i in range(2 * MOST_SHOWN)}
    kept = within_limits(Ledger(shown=many)).shown
    assert len(kept) == MOST_SHOWN
    assert {"v|p|0", f"v|p|{2 * MOST_SHOWN - 1}"} <= kept.keys(), "a disagreement stays, and the latest"
    aside: list[str] = []
    text = '{"version":1,"shown":{"a":{"agrees":-1},"b":{"agrees":3},"c":{"agrees":99999}}}'
    found = decode(text, lambda part, _: aside.append(part))
    assert (found.shown, aside) == ({"b": Shown(0.0, 3)}, ["shown[a]", "shown[c]"])


def test_a_violation_lasts_as_the_newer_account_says_and_from_the_later_beginning_on() -> None:
    one, other = {"x": 1.0, "y": 5.0}, {"x": 2.0, "z": 7.0}
    theirs_is_newer = merged(Ledger(violated=one, looked=9.0), Ledger(violated=other, looked=8.0))
    mine_is_newer = merged(Ledger(violated=one, looked=8.0), Ledger(violated=other, looked=8.0))
    assert (theirs_is_newer.violated, theirs_is_newer.looked) == ({"x": 2.0, "y": 5.0}, 9.0)
    assert (mine_is_newer.violated, mine_is_newer.looked) == ({"x": 2.0, "z": 7.0}, 8.0)


def test_of_what_became_of_an_eviction_the_account_holds_that_says_or_forbids_more() -> None:
    """And nothing else of it: an entry that was edited counts when and for whom it was made."""
    done, failed = (replace(entry(3, "c"), fate=f) for f in (Fate.DONE, Fate.FAILED))
    edited = replace(failed, at=1.0, owner="ReplicaSet/default/other")
    assert merged(Ledger(entries=(edited,)), Ledger(entries=(done,))).entries == (failed,)
    assert merged(Ledger(entries=(done,)), Ledger(entries=(failed,))).entries == (failed,)
    assert merged(Ledger(entries=(done,)), Ledger(entries=(entry(3, "c"),))).entries == (done,)


def test_entries_that_one_has_counted_already_are_not_counted_twice() -> None:
    numbers = range(1, MOST_ENTRIES + 31)
    all_of_them = tuple(replace(entry(float(n), f"p{n}"), fate=Fate.DONE) for n in numbers)
    theirs = within_limits(Ledger(entries=all_of_them))
    mine = Ledger(entries=all_of_them[:MOST_ENTRIES])
    assert merged(theirs, mine) == theirs
    assert merged(mine, theirs) == theirs


def test_a_release_that_has_not_ended_is_not_forgotten_for_newer_entries() -> None:
    newer = tuple(replace(entry(float(n), f"p{n}"), fate=Fate.DONE) for n in range(10, MOST_ENTRIES + 10))
    open_ = tuple(replace(entry(1.0, f.value), fate=f) for f in OPEN)
    ended = replace(entry(1.0, "c"), fate=Fate.DONE)
    for kept in (
        within_limits(Ledger(entries=(ended, *open_, *newer))),
        merged(Ledger(entries=(ended, *open_)), Ledger(entries=newer)),
    ):
        assert [e for e in kept.entries if e.at < 10] == [*open_]
        assert len(kept.entries) == MOST_ENTRIES


def test_of_the_present_cycle_nothing_is_forgotten_for_newer_entries() -> None:
    own = replace(entry(1.0, "own"), fate=Fate.DONE, cycle="now")
    newer = tuple(replace(entry(float(n), f"p{n}"), fate=Fate.DONE) for n in range(10, MOST_ENTRIES + 10))
    for kept in (
        within_limits(Ledger(entries=(own, *newer)), "now"),
        merged(Ledger(entries=(own,)), Ledger(entries=newer), "now"),
    ):
        assert kept.entries == (own, *newer[1:])


def test_what_owners_wait_for_longest_is_forgotten_last() -> None:
    """And nothing of the last hour: cool-downs rest on it."""
    hours = [replace(entry(3600.0 * h, f"h{h}"), fate=Fate.DONE) for h in range(1, 24)]
    no_help = replace(entry(3600.0 * 2 + 1, "a"), fate=Fate.ELSEWHERE)
    gated = replace(entry(1.0, "g"), fate=Fate.DONE, gates=("queue",))
    now = [replace(entry(3600.0 * 24 + n, f"p{n}"), fate=Fate.DONE) for n in range(MOST_ENTRIES - 12)]
    kept = within_limits(Ledger(entries=oldest_first((gated, no_help, *hours, *now)))).entries
    assert kept == oldest_first((gated, no_help, *hours[-10:], *now))


def test_a_ledger_that_is_full_of_evictions_still_knows_the_domains_and_violations() -> None:
    entries = tuple(replace(entry(float(n), f"p{n}", "x" * 500), fate=Fate.DONE) for n in range(MOST_ENTRIES))
    openings = {f"zone={z}": {"": Opening(1.0, 7.0)} for z in "abc"}
    kept = within_limits(Ledger(entries=entries, openings=openings, violated={"x": 1.0}))
    assert (kept.openings, kept.violated) == (openings, {"x": 1.0})
    assert 500 < len(kept.entries) < MOST_ENTRIES


def test_domains_leave_entries_half_of_the_room() -> None:
    """Of the ways in which domains were shut the latest stay. What is open stays as a whole, or goes."""
    entries = tuple(replace(entry(float(n), f"p{n}"), fate=Fate.DONE) for n in range(MOST_ENTRIES))
    shut = {
        f"zone={z}": {"": Opening(1.0)} | {f"{i:0900}": Opening(1.0, i) for i in range(1, 500)} for z in "ab"
    }
    kept = within_limits(Ledger(entries=entries, openings=shut, violated={"x": 1.0}))
    assert (kept.entries, kept.violated) == (entries, {"x": 1.0})
    times = sorted(o.shut for own in kept.openings.values() for o in own.values() if o.shut)
    every = sorted(o.shut for own in shut.values() for o in own.values() if o.shut)
    assert times == every[-len(times) :]
    assert len(encode(kept)) > MOST_BYTES - 2000, "no more of them went than had to"
    open_ = {f"zone={z}": {f"{i:0900}": Opening(1.0) for i in range(500)} for z in "ab"}
    assert within_limits(Ledger(entries=entries, openings=open_)) == Ledger(entries=entries)


def test_who_cannot_be_replaced_has_been_so_since_the_first_of_them_saw_it() -> None:
    theirs = Ledger(irreplaceable={"Deployment/a/x": 1.0, "Deployment/a/y": 5.0})
    found = merged(theirs, Ledger(irreplaceable={"Deployment/a/x": 2.0, "Deployment/a/z": 7.0}))
    assert found.irreplaceable == {"Deployment/a/x": 1.0, "Deployment/a/y": 5.0, "Deployment/a/z": 7.0}


def test_what_was_seen_last_of_a_domain_holds() -> None:
    """A former leader leads again, and knows the zone as it was."""
    mine = Ledger(
        looked=10.0, openings={"zone=c": {"": Opening(1.0, several=True)}, "zone=d": {"": Opening()}}
    )
    theirs = Ledger(looked=20.0, openings={"zone=c": {"": Opening(1.0, 15.0), "x:NoSchedule": Opening(15.0)}})
    found = merged(theirs, mine).openings
    assert found["zone=c"] == {"": Opening(1.0, 15.0, several=True), "x:NoSchedule": Opening(15.0)}
    assert found["zone=d"] == {"": Opening()}
    assert merged(mine, theirs).openings == found


def test_that_a_domain_shrank_is_known_to_a_former_leader_too() -> None:
    mine = replace(entry(1, "a"), fate=Fate.DONE, into=("zone=c",), room=(8,))
    theirs = replace(mine, room=(0,), shrank=(5.0,))
    for account in (
        merged(Ledger(entries=(theirs,)), Ledger(entries=(mine,))),
        merged(Ledger(entries=(mine,)), Ledger(entries=(theirs,))),
    ):
        assert account.entries == (theirs,)


def test_of_two_refusals_of_one_pod_the_later_holds() -> None:
    early, late = Refused(1.0, "d", "no"), Refused(2.0, "e", "never")
    theirs, mine = Ledger(refused={"u": late, "v": early}), Ledger(refused={"u": early, "w": late})
    assert merged(theirs, mine).refused == {"u": late, "v": early, "w": late}
    assert merged(mine, theirs).refused == {"u": late, "v": early, "w": late}


def test_the_breaker_is_open_for_as_long_as_one_of_them_says() -> None:
    shorter, longer = Circuit(until=10.0, trips=3), Circuit(until=20.0, trips=1)
    assert merged(Ledger(circuit=longer), Ledger(circuit=shorter)).circuit == longer
    assert merged(Ledger(circuit=shorter), Ledger(circuit=longer)).circuit == longer


def test_a_breaker_that_was_closed_for_good_is_closed_unless_one_of_them_opened_it_later() -> None:
    opened = Circuit(until=20.0, trips=1, opened=10.0)
    closed = Circuit(closed=21.0)
    later = Circuit(until=30.0, trips=1, opened=25.0)
    edited = Circuit(closed=19.0)  # nobody closes one before its time
    for one, other, left in (
        (opened, closed, closed),
        (closed, later, later),
        (opened, later, later),
        (opened, edited, opened),
    ):
        assert merged(Ledger(circuit=one), Ledger(circuit=other)).circuit == left
        assert merged(Ledger(circuit=other), Ledger(circuit=one)).circuit == left


def test_evictions_in_a_row_are_the_fewer_and_all_other_counts_the_more() -> None:
    theirs, mine = Totals(evictions=9, elsewhere=1, in_a_row=4), Totals(evictions=7, failed=2, in_a_row=6)
    found = merged(Ledger(totals=theirs), Ledger(totals=mine)).totals
    assert found == Totals(evictions=9, as_predicted=0, elsewhere=1, failed=2, in_a_row=4)


def test_claims_are_theirs_until_the_own_one_is_written_anew() -> None:
    theirs = {"other": Claim(until=50.0)}
    assert merged(Ledger(claims=theirs), Ledger(claims={"me": Claim(until=60.0)})).claims == theirs


NOW = 1000.0
CLAIMS: list[tuple[str, dict[str, Claim], str | None]] = [
    ("nobody else claims it", {"me": Claim(NOW + 60, 4)}, None),
    ("another has claimed the same term", {"b": Claim(NOW + 60, 4)}, "b acts"),
    ("its claim has run out", {"b": Claim(NOW, 4)}, None),
    ("its claim ends in a moment", {"b": Claim(NOW + 1, 4)}, "b acts"),
    ("a former holder of the lease", {"b": Claim(NOW + 60, 3)}, None),
    ("a later one", {"b": Claim(NOW + 60, 5)}, "b has taken over"),
    (
        "of several the latest is named",
        {"b": Claim(NOW + 60, 5), "c": Claim(NOW + 60, 4)},
        "b has taken over",
    ),
    ("and of equal ones the last by name", {"c": Claim(NOW + 9, 4), "b": Claim(NOW + 60, 4)}, "c acts"),
]


@pytest.mark.parametrize(("claims", "says"), [c[1:] for c in CLAIMS], ids=[c[0] for c in CLAIMS])
def test_who_else_claims_the_ledger_in_this_term_or_a_later_one_is_a_rival(
    claims: dict[str, Claim], says: str | None
) -> None:
    found = rival(claims, "me", 4, NOW)
    assert (found is None) if says is None else (found is not None and found.message.startswith(says))
    mine = Claim(NOW + 60, 4)
    assert claimed(claims, "me", mine, NOW) == {
        name: claim
        for name, claim in {**claims, "me": mine}.items()
        if name == "me" or (claim.until > NOW and claim.term >= 4)
    }
