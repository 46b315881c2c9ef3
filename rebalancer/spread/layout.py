"""The domains of a topology key over the eligible nodes, in natural order (node-2 before node-10).

Constraints with the same key and the same eligible nodes share one `Layout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from rebalancer.spread.arrays import Bools, Ids, Ints, Rows, frozen

_DIGITS = re.compile("([0-9]+)")


class Layout:
    """The domains of one key over one set of eligible nodes.

    `rows`: int64[N], the number of each node's domain, -1 if the node is not eligible. `names[d]`: the label
    value of domain d. `own_domain`: bool[N], nodes that are the only eligible one of their domain, as with
    hostname.
    """

    def __init__(self, ids: Ids, names: tuple[str, ...], ranks: Ints, eligible: Bools) -> None:
        """`ids` and `names`: the label value of every node. `ranks`: int64[len(names)], the values' natural
        order."""
        present = np.unique(ids[eligible])
        present = present[present >= 0]
        present = present[np.argsort(ranks[present])]
        self.names = tuple(names[i] for i in present.tolist())
        self.size = len(self.names)
        place = np.full(len(names) + 1, -1, dtype=np.int64)
        place[present] = np.arange(self.size)
        self.rows: Ints = np.where(eligible, place[ids], -1)
        frozen(self.rows)
        self._inside = np.flatnonzero(self.rows >= 0)
        self._domains = self.rows[self._inside]
        alone = len(self._inside) == self.size
        if self.size:
            self.own_domain = (self.rows >= 0) & (np.bincount(self._domains)[self.rows] == 1)
        else:
            self.own_domain = np.zeros(len(self.rows), dtype=np.bool_)
        frozen(self.own_domain)
        # As with hostname: each domain's count is that of its only node.
        self._only_node: Rows | None = self._inside[np.argsort(self._domains)] if alone else None

    @cached_property
    def places(self) -> dict[str, int]:
        """The number of the domain of each name."""
        return {name: d for d, name in enumerate(self.names)}

    def by_domain(self, per_node: Ints) -> Ints:
        """Sums an int64[N] by domain: int64[D]."""
        if self._only_node is not None:
            return per_node[self._only_node].astype(np.int64, copy=False)
        weights = per_node[self._inside]
        return np.bincount(self._domains, weights=weights, minlength=self.size).astype(np.int64)

    def summed(self, parts: Iterable[tuple[Rows, Ints, int]]) -> Ints:
        """int64[D]: the sums of values at some nodes, each part with what its values are multiplied by."""
        found = np.zeros(self.size + 1, dtype=np.int64)
        for rows, values, weight in parts:
            np.add.at(found, self.rows[rows], values * weight)  # -1, of no domain, is the last place
        return found[:-1]

    def by_domain_of_few(self, per_node: Ints) -> Ints:
        """`by_domain`, quicker where most nodes have nothing."""
        nodes = (per_node != 0).nonzero()[0]
        counts = np.zeros(self.size + 1, dtype=np.int64)
        np.add.at(counts, self.rows[nodes], per_node[nodes])  # -1, of no domain, is the last place
        return counts[:-1]


def ranks(names: Iterable[str]) -> Ints:
    """int64[D]: the place of each name in natural order."""
    every = list(names)
    found = np.empty(len(every), dtype=np.int64)
    found[sorted(range(len(every)), key=lambda i: natural(every[i]))] = np.arange(len(every))
    return found


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A key that sorts node-2 before node-10."""
    parts = enumerate(_DIGITS.split(name))  # text and digits take turns
    return tuple((0, int(part)) if i % 2 else (1, part) for i, part in parts if part)
