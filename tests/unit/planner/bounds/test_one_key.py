"""The closed form for one key, against all placements there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner.bounds.one_key import Band, Level, fewest_moves, least_excess


class Case(NamedTuple):
    """Counts per domain, what stays, what fits, and the constraint."""

    counts: tuple[int, ...]
    floor: tuple[int, ...]
    ceiling: tuple[int, ...]
    max_skew: int
    enough: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    counts = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    return Case(
        tuple(counts),
        tuple(draw(st.integers(0, c)) for c in counts),
        tuple(c + draw(st.integers(0, 4)) for c in counts),
        draw(st.integers(1, 3)),
        draw(st.booleans()),
    )


def placements(total: int, floor: tuple[int, ...], ceiling: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every way to put `total` pods into the domains."""
    if not floor:
        if total == 0:
            yield ()
        return
    for here in range(floor[0], min(ceiling[0], total) + 1):
        for rest in placements(total - here, floor[1:], ceiling[1:]):
            yield (here, *rest)


def excess(placed: tuple[int, ...], case: Case) -> int:
    return max(0, max(placed) - (min(placed) if case.enough else 0) - case.max_skew)


def solved(case: Case, residual: int) -> Level | None:
    band = Band(np.array(case.floor), np.array(case.ceiling))
    return fewest_moves(np.array(case.counts), band, case.max_skew, case.enough, residual)


QUICK = settings(max_examples=250, derandomize=True, deadline=None, database=None)


@QUICK
@given(cases(), st.integers(0, 4))
def test_the_fewest_moves_are_those_of_the_best_placement(case: Case, residual: int) -> None:
    every = [p for p in placements(sum(case.counts), case.floor, case.ceiling) if excess(p, case) <= residual]
    found = solved(case, residual)
    if not every:
        assert found is None
        return
    assert found is not None
    moves = {p: sum(max(0, b - a) for b, a in zip(case.counts, p, strict=True)) for p in every}
    assert found.moves == min(moves.values())
    within = [p for p in every if (np.array(p) >= found.lower).all() and (np.array(p) <= found.upper).all()]
    assert found.moves == min(moves[p] for p in within), "a best placement lies in the band that is given"


@QUICK
@given(cases(), st.integers(0, 4))
def test_whatever_lies_in_the_band_has_no_more_than_the_residual(case: Case, residual: int) -> None:
    found = solved(case, residual)
    if found is not None:
        lower, upper = tuple(map(int, found.lower)), tuple(map(int, found.upper))
        for p in placements(sum(case.counts), lower, upper):
            assert excess(p, case) <= residual


@QUICK
@given(cases())
def test_the_least_excess_is_that_of_the_best_placement(case: Case) -> None:
    now = excess(case.counts, case)
    band = Band(np.array(case.floor), np.array(case.ceiling))
    least = min(excess(p, case) for p in placements(sum(case.counts), case.floor, case.ceiling))
    assert least_excess(np.array(case.counts), band, case.max_skew, case.enough, now) == least


def test_what_has_no_place_at_all_is_told() -> None:
    case = Case((3, 3), (0, 0), (2, 2), 1, True)
    assert solved(case, 5) is None


def test_two_empty_zones_take_half_the_pods() -> None:
    case = Case((4, 4, 0, 0), (0,) * 4, (8,) * 4, 1, True)
    least, all_but_one = solved(case, 0), solved(case, 1)
    assert least is not None
    assert all_but_one is not None
    assert (least.moves, all_but_one.moves) == (4, 2)
