"""Skew and excess of domain counts.

Rule: podtopologyspread/filtering.go, ``minMatchNum`` and ``Filter``; KEP-3022 for minDomains.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

import numpy as np
import numpy.typing as npt

from rebalancer.spread.arrays import Bools, Ints, Layout, Rows
from rebalancer.spread.nodes import Domains
from rebalancer.spread.tally import Measure, Tally

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


# Pods by topology domain, kept up to date from the nodes that changed.


class DomainCounts:
    """A measure summed by domain over the nodes that take part.

    `counts`: int64[D], of the nodes that take part. `on_node`: int64[N], of every node.
    """

    def __init__(self, tally: Tally, measure: Measure, domains: Domains, nodes: Bools) -> None:
        """`nodes`: bool[N], the nodes whose pods are summed."""
        self.domains = domains
        self.nodes = nodes
        self._tally = tally
        self._measure = tally.number(measure)
        self.on_node: Ints = tally.numbered(self._measure).copy()
        self.counts = domains.sum(self.on_node, nodes)

    def update(self, rows: Rows) -> None:
        """Brings the counts up to date after pods changed on the nodes `rows`."""
        now = self._tally.numbered(self._measure)[rows]
        change = now - self.on_node[rows]
        for i in change.nonzero()[0].tolist():
            row = rows[i]
            self.on_node[row] = now[i]
            domain = self.domains.ids[row]
            if domain >= 0 and self.nodes[row]:
                self.counts[domain] += change[i]


# Counts by the name of a domain, as a plan shows them.


class PerDomain(Mapping[str, int]):
    """A read-only mapping from each domain's name to its count, in the order of the layout.

    A constraint by hostname has as many domains as the cluster has nodes, and a plan lists thousands of
    constraints. So all of them share the names, and each holds its numbers only.
    """

    __slots__ = ("_counts", "_layout")

    def __init__(self, layout: Layout, counts: npt.NDArray[np.signedinteger[Any]]) -> None:
        """`counts`: one for each domain of the layout; nobody changes them any more."""
        self._layout = layout
        self._counts = counts

    def __getitem__(self, name: str) -> int:
        """The count of a domain; KeyError if there is none of this name."""
        return int(self._counts[self._layout.places[name]])

    def __iter__(self) -> Iterator[str]:
        """The names, in natural order."""
        return iter(self._layout.names)

    def __len__(self) -> int:
        """How many domains there are."""
        return self._layout.size

    def items(self) -> ItemsView[str, int]:
        """Names with counts."""
        return self.plain().items()

    def values(self) -> ValuesView[int]:
        """The counts."""
        return self.plain().values()

    def plain(self) -> dict[str, int]:
        """Domain → count."""
        return dict(zip(self._layout.names, self._counts.tolist(), strict=True))

    def __repr__(self) -> str:
        """As the dictionary of `plain`."""
        return repr(self.plain())
