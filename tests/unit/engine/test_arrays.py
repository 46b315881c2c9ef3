"""Tables over nodes say what sorting them says; equal arrays are one."""

from __future__ import annotations

import numpy as np
import pytest

from rebalancer.spread.arrays import Layout, Shared, among, first_places, members, numbered
from rebalancer.spread.constraint import PerDomain

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
    assert shared.of(one.reshape(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("spans", [(3, 2), (1000, 1000)], ids=["few values", "more than a table holds"])
def test_combinations_are_numbered_in_the_order_of_their_values(spans: tuple[int, int]) -> None:
    columns = [RNG.integers(-2, span, 50) for span in spans]
    _, expected = np.unique(np.stack(columns), axis=1, return_inverse=True)
    assert numbered(np.zeros(50, dtype=np.int64), columns).tolist() == expected.reshape(-1).tolist()


def test_equal_sets_of_nodes_have_one_list_of_numbers() -> None:
    shared = Shared()
    mask = among(9, np.array([2, 5]), np.array([5, 8]))
    assert shared.rows(mask).tolist() == [2, 5, 8]
    assert shared.rows(mask.copy()) is shared.rows(mask)


def layout() -> Layout:
    """Two domains of two nodes, one of one, one node that is not eligible."""
    ids = np.array([0, 1, 0, 2, 1, 2], dtype=np.int32)
    eligible = np.array([True, True, True, True, True, False])
    return Layout(ids, ("n10", "n2", "n1"), np.array([2, 1, 0]), eligible)


def test_counts_of_a_few_pods_are_those_of_all_nodes() -> None:
    per_node = np.array([3, 0, 1, 0, 0, 7])
    assert layout().by_domain_of_few(per_node).tolist() == layout().by_domain(per_node).tolist() == [0, 0, 4]


def test_a_node_alone_in_its_domain_is_known() -> None:
    assert layout().own_domain.tolist() == [False, False, False, True, False, False]


def test_counts_per_domain_are_a_mapping_in_the_order_of_the_names() -> None:
    counts = PerDomain(layout(), np.array([5, 0, 4], dtype=np.int32))
    assert list(counts.items()) == [("n1", 5), ("n2", 0), ("n10", 4)]
    assert counts == {"n1": 5, "n2": 0, "n10": 4}
    assert counts["n10"] == 4
    assert list(counts.values()) == [5, 0, 4]
    assert "n3" not in counts
