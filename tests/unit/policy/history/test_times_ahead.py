"""Times of the ledger that lie in the future count as now, and nothing is lost by that."""

from __future__ import annotations

from rebalancer.policy.history.ledger import Circuit, Claim, Count, Entry, Ledger
from rebalancer.policy.history.ledger_json import decode
from rebalancer.policy.history.ledgers_merged import as_of, merged
from rebalancer.policy.options import Refused

NOW = 1_000_000.0


def entry(at: float) -> Entry:
    return Entry(
        at=at, cycle="c", namespace="n", pod="p", uid="u", owner="ReplicaSet/n/o", node="a", predicted="b"
    )


def test_what_is_past_stays_as_it_is() -> None:
    claim = Claim(until=NOW + 50, made=NOW - 50)
    past = Ledger(
        looked=NOW - 1,
        entries=(entry(NOW - 5), entry(NOW + 1)),
        counted={"o": (Count(5, 2), Count(int(NOW), 3))},
        violated={"k": NOW - 9},
        irreplaceable={"Deployment/n/o": NOW - 9},
        refused={"u": Refused(NOW - 9, "d", "no")},
        claims={"a": claim},
    )
    assert as_of(past, NOW, 100.0) == past


def test_what_is_in_the_future_is_now() -> None:
    ahead = Ledger(
        looked=NOW + 99,
        entries=(entry(NOW + 99),),
        counted={"o": (Count(int(NOW), 3), Count(int(NOW) + 9999, 4), Count(int(NOW) + 99_999, 5))},
        violated={"k": NOW + 99},
        irreplaceable={"Deployment/n/o": NOW + 99},
        refused={"u": Refused(NOW + 99, "d", "no")},
        claims={"a": Claim(until=NOW + 9999 + 60, made=NOW + 9999), "b": Claim(until=NOW + 9999)},
    )
    found = as_of(ahead, NOW, 100.0)
    assert found.irreplaceable == {"Deployment/n/o": NOW}
    assert found.refused == {"u": Refused(NOW, "d", "no")}
    assert found.looked == found.entries[0].at == found.violated["k"] == NOW
    assert sum(c.evictions for c in found.counted["o"]) == 12
    assert max(c.at for c in found.counted["o"]) <= NOW + 5
    assert found.claims["a"].until == NOW + 60
    assert found.claims["b"].until == NOW + 100


def test_a_breaker_that_is_closed_only_in_the_future_has_not_been_closed() -> None:
    edited = as_of(Ledger(circuit=Circuit(closed=NOW + 10_800)), NOW, 60.0)
    assert edited.circuit == Circuit()
    mine = Ledger(circuit=Circuit(until=NOW + 600, trips=1, opened=NOW - 5))
    assert merged(edited, mine).circuit == mine.circuit


def test_a_claim_of_a_term_that_no_lease_can_have_is_put_aside_and_no_other() -> None:
    told = list[str]()
    text = (
        '{"version": 1, "claims": {"ghost": {"until": 2e6, "term": 1125899906842624}, "a": {"until": 2e6}}}'
    )
    assert list(decode(text, lambda part, _: told.append(part)).claims) == ["a"]
    assert told == ["claims[ghost]"]


def test_a_refusal_that_cannot_be_right_is_put_aside_and_no_other() -> None:
    told = list[str]()
    text = '{"version": 1, "refused": {"u": [5.0, "d", "no"], "v": [-1, "d", "no"], "w": "no"}}'
    found = decode(text, lambda part, _: told.append(part)).refused
    assert found == {"u": Refused(5.0, "d", "no")}
    assert told == ["refused[v]", "refused[w]"]
