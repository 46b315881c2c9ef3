"""Integer columns over the nodes, copied on write.

A what-if branch of the cluster shares every column with its origin until one of the two writes to it, so
that a branch costs a few dictionary copies and not the arrays of 5,000 nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int32]
Rows = npt.NDArray[np.intp]

K = TypeVar("K", bound=Hashable)

INT64_MAX = (1 << 63) - 1


def int64(value: int) -> int:
    """The value as far as Go's int64 holds it; Quantity.Value saturates as well."""
    return max(-INT64_MAX, min(INT64_MAX, value))


def frozen(array: npt.NDArray[np.generic]) -> None:
    """Makes an array that is shared by many read-only."""
    array.setflags(write=False)


class Columns(Generic[K]):
    """Named int64[N] columns; a column that was never written is all zero."""

    def __init__(self, size: int) -> None:
        """Columns over `size` nodes."""
        self.size = size
        self._values: dict[K, Ints] = {}
        self._own: set[K] = set()
        self._zero: Ints = np.zeros(size, dtype=np.int64)
        frozen(self._zero)

    def __contains__(self, key: object) -> bool:
        """Whether the column was ever written."""
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        """Names of the columns written so far."""
        return iter(self._values)

    def __getitem__(self, key: K) -> Ints:
        """The column's values now; callers only read it, and not beyond the next write."""
        return self._values.get(key, self._zero)

    def set(self, key: K, values: Ints) -> None:
        """Replaces a column by an array that is this object's from now on."""
        self._values[key] = values
        self._own.add(key)

    def add(self, key: K, row: int, amount: int) -> None:
        """Adds `amount` at one node."""
        if key not in self._own:
            self._values[key] = self[key].copy()
            self._own.add(key)
        self._values[key][row] += amount

    def copy(self) -> Columns[K]:
        """An independent copy; the arrays are shared until either side writes."""
        other: Columns[K] = Columns.__new__(Columns)
        other.size = self.size
        other._values = dict(self._values)
        other._own = set()
        other._zero = self._zero
        self._own = set()
        return other
