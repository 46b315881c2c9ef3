"""Nodes that are interchangeable for a component, taken together.

Two nodes fall into one cell when they lie in the same domain of every key that groups nodes (zone) and, where
a key gives each node a domain of its own (hostname), count the same there, hold the same pods of the
component and have as much room. The integer program then has a variable per cell, not per node.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rebalancer.planner.component import Component
from rebalancer.spread.arrays import Bools, Ints


class CellStructure:
    """What of a component's cells no placement changes."""

    def __init__(self, component: Component) -> None:
        own = component.own_domain
        n = component.start.shape[1]
        self.component = component
        self.single: Bools = np.logical_or.reduce([np.zeros(n, dtype=np.bool_), *own])
        columns: list[Ints] = []
        for g, alone, base in zip(component.groups, own, component.base, strict=True):
            columns.append(alone.astype(np.int64))
            columns.append(np.where(alone, base[g.rows], g.rows) if g.size else g.rows)
        # Where every key groups nodes, only sums over the domain matter, and who can go there at all.
        columns.extend(np.where(self.single, fixed, 0) for fixed in component.fixed)
        columns.extend(np.where(self.single, room, room > 0) for room in component.useful_room)
        self.kind = _numbered(np.zeros(n, dtype=np.int64), columns)

    def cells(self, placed: Ints) -> Cells:
        """The cells of a placement, int64[Q, N]."""
        return Cells(self, placed)


class Cells:
    """The cells of a placement.

    `of`: int64[N], each node's cell. `size[c]`: nodes in it. `shared[g][c]`: the domain of group g in which
    the whole cell lies, -1 none; where `alone[g][c]`, each of its nodes is a domain of its own, with
    `count_alone[g][c]` pods that no move changes. `key`: equal for placements that differ by a permutation
    of interchangeable nodes only.
    """

    def __init__(self, structure: CellStructure, placed: Ints) -> None:
        component = structure.component
        table = _numbered(structure.kind, (np.where(structure.single, p, 0) for p in placed))
        _, first, of, size = np.unique(table, return_index=True, return_inverse=True, return_counts=True)
        self.of: Ints = of.reshape(-1).astype(np.int64)
        self.size: Ints = size.astype(np.int64)
        here = np.where(structure.single[first], placed[:, first], 0)
        self.key = b"".join(x.tobytes() for x in (structure.kind[first], here, self.size, self.sums(placed)))
        own, groups = component.own_domain, component.groups
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


def _numbered(kind: Ints, columns: Iterable[Ints]) -> Ints:
    """int64[N]: a number for each distinct combination, in the order of the combinations' values."""
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        if span > 1:
            _, kind = np.unique(kind * span + (column - low), return_inverse=True)
            kind = kind.reshape(-1).astype(np.int64)
    return kind
