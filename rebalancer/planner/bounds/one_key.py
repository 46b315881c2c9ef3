"""One key, closed form: the least excess, and the fewest moves that reach it.

With the lowest count raised to L and the highest lowered to L + maxSkew + R, a domain has to give what it
holds above, or take what it lacks below; domains in between absorb the difference. The answer is the best L.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.spread.arrays import Ints


class Band(Struct, frozen=True, eq=False):
    """What each domain can hold: `floor` int64[D] pods that stay, `ceiling` int64[D] the most it can take."""

    floor: Ints
    ceiling: Ints


class Level(Struct, frozen=True, eq=False):
    """A best final state: after `moves`, every domain holds between `lower` and `upper`, int64[D]."""

    moves: int
    lower: Ints
    upper: Ints


def fewest_moves(
    counts: Ints, band: Band, max_skew: int, enough_domains: bool, residual: int
) -> Level | None:
    """The fewest moves to an excess of at most `residual`; None if no placement has so little.

    `counts` int64[D], D > 0. With too few domains (minDomains) the minimum counts as 0.
    """
    width = max_skew + residual
    total = int(counts.sum())
    lows = np.arange(total // len(counts) + 1 if enough_domains else 1)
    lower = np.maximum(band.floor[None, :], lows[:, None])
    upper = np.minimum(band.ceiling[None, :], lows[:, None] + width)
    possible = (lower <= upper).all(axis=1) & (lower.sum(axis=1) <= total) & (total <= upper.sum(axis=1))
    if not possible.any():
        return None
    give = np.maximum(counts[None, :] - upper, 0).sum(axis=1)
    take = np.maximum(lower - counts[None, :], 0).sum(axis=1)
    moves = np.where(possible, np.maximum(give, take), np.iinfo(np.int64).max)
    best = int(np.argmin(moves))
    return Level(int(moves[best]), lower[best], upper[best])


def least_excess(counts: Ints, band: Band, max_skew: int, enough_domains: bool, now: int) -> int:
    """The least excess that any placement has; never above `now`."""
    low, high = 0, now
    while low < high:
        middle = (low + high) // 2
        if fewest_moves(counts, band, max_skew, enough_domains, middle) is None:
            low = middle + 1
        else:
            high = middle
    return low
