"""Cells: nodes that are interchangeable for a component, taken together.

Two nodes fall into one cell when they lie in the same domain of every key that groups nodes (zone) and, where
a key gives each node a domain of its own (hostname), count the same there, hold the same pods of the
component and have as much room. The integer program then has a variable per cell, not per node.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b

import numpy as np

from rebalancer.planner.cluster.components import Component
from rebalancer.spread.arrays import Bools, Ints, first_places, numbered


def digest(*arrays: Ints) -> bytes:
    """Sixteen bytes that stand for these arrays in a memo. Those of 5,000 nodes would take 40 kB each, and a
    search remembers thousands."""
    made = blake2b(digest_size=16)
    for array in arrays:
        made.update(array.tobytes())
    return made.digest()


def digest_of(placed: Ints) -> bytes:
    """`digest` of a placement, int64[Q, N], of which few entries are not 0."""
    flat = placed.reshape(-1)
    places = np.flatnonzero(flat)
    return digest(places, flat[places])


class CellStructure:
    """What of a component's cells no placement changes."""

    def __init__(self, component: Component, apart: Ints | None = None) -> None:
        """`apart`: int64[N], nodes with different numbers are not taken together."""
        own = component.own_domain
        n_nodes = component.start.shape[1]
        self.component = component
        self.single: Bools = np.logical_or.reduce([np.zeros(n_nodes, dtype=np.bool_), *own])
        columns: list[Ints] = [] if apart is None else [apart]
        for group, alone, base in zip(component.groups, own, component.base, strict=True):
            columns.append(alone.astype(np.int64))
            columns.append(
                np.where(alone, base[group.domain_of], group.domain_of) if group.size else group.domain_of
            )
        # Where every key groups nodes, only sums over the domain matter, and who can go there at all.
        columns.extend(np.where(self.single, fixed, 0) for fixed in component.fixed)
        columns.extend(np.where(self.single, room, room > 0) for room in component.useful_room())
        self.numbers = numbered(np.zeros(n_nodes, dtype=np.int64), columns)

    def cells(self, placed: Ints) -> Cells:
        """The cells of a placement, int64[Q, N]."""
        return Cells(self, placed)


class Cells:
    """The cells of a placement.

    `of`: int64[N], each node's cell. `size[c]`: nodes in it. `shared[g][c]`: the domain of group g in which
    the whole cell lies, -1 none; where `alone[g][c]`, each of its nodes is a domain of its own, with
    `count_alone[g][c]` pods that no move changes. `key`: equal for placements that differ by a permutation
    of nodes of one cell only.
    """

    def __init__(self, structure: CellStructure, placed: Ints) -> None:
        self._component = structure.component
        self.of: Ints = numbered(structure.numbers, (np.where(structure.single, p, 0) for p in placed))
        self.size: Ints = np.bincount(self.of)
        self._first = first = first_places(self.of)
        here = np.where(structure.single[first], placed[:, first], 0)
        self.key = digest(structure.numbers[first], here, self.size, self.sums(placed))

    @cached_property
    def alone(self) -> list[Bools]:
        """bool[C] for each group."""
        return [alone[self._first] for alone in self._component.own_domain]

    @cached_property
    def shared(self) -> list[Ints]:
        """int64[C] for each group."""
        groups = zip(self._component.groups, self.alone, strict=True)
        return [np.where(alone, -1, g.domain_of[self._first]) for g, alone in groups]

    def domains(self, group: int) -> list[int]:
        """The domain of the group that each cell lies in as a whole, or is; -1 where there is none."""
        own = self._component.groups[group].domain_of[self._first]
        whole = np.where(self.alone[group] & (self.size > 1), -1, own)
        return [int(d) for d in whole]

    @cached_property
    def count_alone(self) -> list[Ints]:
        """int64[C] for each group."""
        component = self._component
        return [
            np.where(alone, base[group.domain_of[self._first]], 0)
            if group.size
            else np.zeros(len(self), dtype=np.int64)
            for group, alone, base in zip(component.groups, self.alone, component.base, strict=True)
        ]

    def sums(self, per_node: Ints) -> Ints:
        """int64[Q, C] of an int64[Q, N]."""
        return np.stack(
            [np.bincount(self.of, weights=pods, minlength=len(self)) for pods in per_node]
        ).astype(np.int64)

    def __len__(self) -> int:
        """The number of cells."""
        return len(self.size)
