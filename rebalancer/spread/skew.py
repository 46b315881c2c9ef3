"""Skew and excess of domain counts.

Rule: podtopologyspread/filtering.go, ``minMatchNum`` and ``Filter``; KEP-3022 for minDomains.
"""

from __future__ import annotations

import numpy as np

from rebalancer.spread.arrays import Bools, Ints

NO_DOMAIN = (1 << 31) - 1
"""The minimum that upstream uses (MaxInt32) while no domain is eligible at all."""


def lowest(least: int, domains: int, min_domains: int) -> int:
    """The global minimum: the lowest count (`least`) of so many eligible domains; 0 while there are fewer of
    them than `min_domains`."""
    return 0 if domains < min_domains else least if domains else NO_DOMAIN


def beyond(most: int, minimum: int, max_skew: int) -> int:
    """The part of the skew, from the global minimum to the highest count, that is above `max_skew`."""
    return max(0, most - minimum - max_skew)


def minimum(counts: Ints, min_domains: int, eligible: Bools | None = None) -> int:
    """`lowest` of counts. `counts` int64[D], `eligible` bool[D]; None = all of them."""
    domains = len(counts) if eligible is None else int(np.count_nonzero(eligible))
    if domains < min_domains or not domains:
        return lowest(0, domains, min_domains)
    return int(counts.min() if domains == len(counts) else counts[eligible].min())


def skew(counts: Ints, min_domains: int) -> int:
    """Highest count minus the global minimum; 0 without domains. `counts` int64[D]: the eligible ones."""
    return int(counts.max()) - minimum(counts, min_domains) if len(counts) else 0


def excess(counts: Ints, max_skew: int, min_domains: int) -> int:
    """The part of the skew that is above `max_skew`; 0 = satisfied."""
    return beyond(int(counts.max()), minimum(counts, min_domains), max_skew) if len(counts) else 0
