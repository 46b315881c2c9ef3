"""Tables over nodes say what sorting them says; equal arrays are one."""

from __future__ import annotations

import numpy as np
import pytest

from rebalancer.spread.arrays import Shared, first_places, members

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [0, 1, 5, 60])
def test_first_places_are_those_that_unique_gives(size: int) -> None:
    numbers = RNG.integers(-1, 9, size)
    _, first = np.unique(numbers, return_index=True)
    assert first_places(numbers).tolist() == first.tolist()


@pytest.mark.parametrize("wanted", [np.zeros(0, dtype=np.int64), np.array([3]), np.array([0, 7, 90])])
def test_members_are_those_that_isin_gives(wanted: np.ndarray) -> None:
    numbers = RNG.integers(0, 9, 50)
    assert members(numbers, wanted).tolist() == np.isin(numbers, wanted).tolist()


def test_equal_arrays_are_one_and_kinds_are_kept_apart() -> None:
    shared = Shared()
    one = shared.of(np.array([1, 2]))
    assert shared.of(np.array([1, 2])) is one
    assert shared.of(np.array([2, 1])) is not one
    assert shared.of(one.view(np.float64)).dtype == np.float64
