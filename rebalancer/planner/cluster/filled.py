"""Whether pods that go anywhere could leave one of some nodes no room: by their sum, or each whole."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from rebalancer.engine.state.cluster import PODS
from rebalancer.spread.arrays import Bools, Ints, Rows

_CHOICES = 256
"""Choices of several pods, so many of each kind, that are told apart."""


def never_filled(
    rows: Rows, free: Mapping[str, Ints], asks: Mapping[str, int], coming: Mapping[str, int]
) -> int:
    """How many of these nodes surely keep room for a pod wherever others go that hold so much together, with
    `PODS` their number. `free`: int64[N] by resource."""
    for r, amount in asks.items():
        rows = rows[free[r][rows] >= amount]
    filled = 0
    for r, amount in asks.items():
        # Those that are filled most cheaply could be full.
        costs = np.cumsum(np.sort(free[r][rows] - amount + 1))
        filled += int(np.searchsorted(costs, coming.get(r, 0), side="right"))
    # Each pod fills one node at most.
    return max(0, len(rows) - min(filled, coming.get(PODS, filled)))


def all_filled(needs: Ints, takes: Ints, may: Bools, numbers: tuple[int, ...]) -> bool:
    """Whether so many pods of each kind, each whole on one node, could fill all nodes. `needs`: int64[K, R],
    a node is full by so much of any resource; `takes`: int64[T, R]; `may`: bool[T, K], the nodes that a kind
    can go to. True where they are too many to tell."""
    if np.prod(np.array(numbers) + 1.0) > _CHOICES:
        return True
    together, possible, at = _unions(numbers)
    held, reached = together @ takes, np.arange(len(together)) == 0
    for need, here in zip(needs, may.T, strict=True):
        fills = (held >= need).any(axis=1) & (together[:, ~here] == 0).all(axis=1)
        pairs = possible & reached[:, None] & fills
        reached = np.zeros_like(reached)
        reached[at[pairs]] = True
    return bool(reached.any())


@lru_cache(maxsize=32)
def _unions(numbers: tuple[int, ...]) -> tuple[Ints, Bools, Ints]:
    """int64[S, T]: every choice of so many of each; bool[S, S]: which of them can be made together; and
    int64[S, S]: the choice that two of them are then."""
    shape = tuple(n + 1 for n in numbers)
    every = np.indices(shape).reshape(len(shape), -1).T.astype(np.int64)
    sums: Ints = every[:, None, :] + every[None, :, :]
    possible: Bools = np.logical_and.reduce(sums <= np.array(numbers), axis=-1)
    at: Ints = np.ravel_multi_index(tuple(np.moveaxis(np.minimum(sums, numbers), -1, 0)), shape)
    return every, possible, at
