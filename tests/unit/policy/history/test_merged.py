"""Two accounts of one ledger: the entries of both are kept, and of everything else what allows less."""

from __future__ import annotations

from rebalancer.policy.history.fence import Claim
from rebalancer.policy.history.ledger import Circuit, Entry, Ledger, Totals
from rebalancer.policy.history.merged import merged


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


def test_a_violation_that_both_know_began_when_the_later_of_the_two_says() -> None:
    found = merged(Ledger(violated={"x": 1.0, "y": 5.0}), Ledger(violated={"x": 2.0, "z": 7.0}))
    assert found.violated == {"x": 2.0, "y": 5.0, "z": 7.0}


def test_who_cannot_be_replaced_has_been_so_since_the_first_of_them_saw_it() -> None:
    theirs = Ledger(irreplaceable={"Deployment/a/x": 1.0, "Deployment/a/y": 5.0})
    found = merged(theirs, Ledger(irreplaceable={"Deployment/a/x": 2.0, "Deployment/a/z": 7.0}))
    assert found.irreplaceable == {"Deployment/a/x": 1.0, "Deployment/a/y": 5.0, "Deployment/a/z": 7.0}


def test_the_breaker_is_open_for_as_long_as_one_of_them_says() -> None:
    shorter, longer = Circuit(until=10.0, trips=3), Circuit(until=20.0, trips=1)
    assert merged(Ledger(circuit=longer), Ledger(circuit=shorter)).circuit == longer
    assert merged(Ledger(circuit=shorter), Ledger(circuit=longer)).circuit == longer


def test_evictions_in_a_row_are_the_fewer_and_all_other_counts_the_more() -> None:
    theirs, mine = Totals(evictions=9, astray=1, in_a_row=4), Totals(evictions=7, failed=2, in_a_row=6)
    found = merged(Ledger(totals=theirs), Ledger(totals=mine)).totals
    assert found == Totals(evictions=9, as_predicted=0, astray=1, failed=2, in_a_row=4)


def test_claims_are_theirs_until_the_own_one_is_written_anew() -> None:
    theirs = {"other": Claim(until=50.0)}
    assert merged(Ledger(claims=theirs), Ledger(claims={"me": Claim(until=60.0)})).claims == theirs
