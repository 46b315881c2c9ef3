"""The domains that eligible nodes make, in natural order: one value for all constraints of one key."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rebalancer.spread.arrays import Bools, Ids, Ints, frozen


class Layout:
    """Domains of one key over one set of eligible nodes.

    `rows`: int64[N], each node's domain, -1 where the node is not eligible; `names[d]` is the label value.
    """

    def __init__(self, ids: Ids, names: tuple[str, ...], ranks: Ints, eligible: Bools) -> None:
        """`ids`, `names`: every node's label value; `ranks` int64[len(names)]: their natural order."""
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

    def by_domain(self, per_node: Ints) -> Ints:
        """int64[D] of an int64[N]."""
        weights = per_node[self._inside]
        return np.bincount(self._domains, weights=weights, minlength=self.size).astype(np.int64)


def ranks(names: Iterable[str]) -> Ints:
    """int64[D]: each name's place in natural order."""
    every = list(names)
    found = np.empty(len(every), dtype=np.int64)
    found[sorted(range(len(every)), key=lambda i: natural(every[i]))] = np.arange(len(every))
    return found


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A key that sorts node-2 before node-10."""
    parts: list[tuple[int, int | str]] = []
    digits = ""
    text = ""
    for ch in name:
        if ch.isascii() and ch.isdigit():
            if text:
                parts.append((1, text))
                text = ""
            digits += ch
        else:
            if digits:
                parts.append((0, int(digits)))
                digits = ""
            text += ch
    if digits:
        parts.append((0, int(digits)))
    if text:
        parts.append((1, text))
    return tuple(parts)
