"""Skew and excess of domain counts.

Rule: podtopologyspread/filtering.go, ``minMatchNum`` and ``Filter``; KEP-3022 for minDomains.
"""

from __future__ import annotations

import numpy as np

from rebalancer.spread.arrays import Bools, Ints

NO_DOMAIN = (1 << 31) - 1
"""Upstream's minimum (MaxInt32) while no domain is eligible at all."""


def minimum(counts: Ints, eligible: Bools, min_domains: int) -> int:
    """The global minimum over the eligible domains; 0 while they are fewer than `min_domains`.

    `counts` int64[D], `eligible` bool[D].
    """
    domains = int(np.count_nonzero(eligible))
    if domains < min_domains:
        return 0
    if not domains:
        return NO_DOMAIN
    return int(counts.min() if domains == len(counts) else counts[eligible].min())


def skew(counts: Ints, eligible: Bools, min_domains: int = 1) -> int:
    """Highest count of an eligible domain minus the global minimum; 0 without eligible domains."""
    if not eligible.any():
        return 0
    return int(counts[eligible].max()) - minimum(counts, eligible, min_domains)


def excess(counts: Ints, eligible: Bools, max_skew: int, min_domains: int = 1) -> int:
    """What of the skew is beyond `max_skew`; 0 = satisfied."""
    return max(0, skew(counts, eligible, min_domains) - max_skew)
