"""Nodes that are interchangeable for a component, taken together.

Two nodes fall into one cell when they lie in the same domain of every key that groups nodes (zone) and, where
a key gives each node a domain of its own (hostname), count the same there, hold the same pods of the
component and have as much room. The integer program then has a variable per cell, not per node.
"""

from __future__ import annotations

import numpy as np

from rebalancer.planner.component import Component
from rebalancer.spread.arrays import Bools, Ints


class Cells:
    """The cells of a placement.

    `of`: int64[N], each node's cell. `size[c]`: nodes in it. `shared[g][c]`: the domain of group g in which
    the whole cell lies, -1 none; where `alone[g][c]`, each of its nodes is a domain of its own, with
    `count_alone[g][c]` pods that no move changes. `key`: equal for placements that differ by a permutation
    of interchangeable nodes only.
    """

    def __init__(self, component: Component, placed: Ints) -> None:
        groups, own = component.groups, component.own_domain
        single = np.zeros(placed.shape[1], dtype=np.bool_)
        columns: list[Ints] = []
        for g, alone, base in zip(groups, own, component.base, strict=True):
            single |= alone
            columns.append(alone.astype(np.int64))
            columns.append(np.where(alone, base[g.rows], g.rows) if g.size else g.rows)
        # Where every key groups nodes, only sums over the domain matter.
        per_node = (*placed, *component.fixed, *component.useful_room)
        columns.extend(np.where(single, values, 0) for values in per_node)
        table = np.stack(columns, axis=1)
        unique, first, inverse, size = np.unique(
            table, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        self.of: Ints = inverse.reshape(-1).astype(np.int64)
        self.size: Ints = size.astype(np.int64)
        sums = self.sums(placed)
        self.key = unique.tobytes() + self.size.tobytes() + sums.tobytes()
        self.alone: list[Bools] = [alone[first] for alone in own]
        self.shared = [np.where(a[first], -1, g.rows[first]) for g, a in zip(groups, own, strict=True)]
        self.count_alone = [
            np.where(a[first], base[g.rows[first]], 0) if g.size else np.zeros(len(first), dtype=np.int64)
            for g, a, base in zip(groups, own, component.base, strict=True)
        ]

    def sums(self, per_node: Ints) -> Ints:
        """int64[Q, C] of an int64[Q, N]."""
        return np.stack([np.bincount(self.of, weights=row, minlength=len(self)) for row in per_node]).astype(
            np.int64
        )

    def __len__(self) -> int:
        """The number of cells."""
        return len(self.size)
