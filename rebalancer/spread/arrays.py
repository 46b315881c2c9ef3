"""Array types, and integer columns over the nodes that are copied on write.

A simulated copy of the cluster shares every column with the original until one of the two writes to it. A
copy thus costs a few dictionaries and not the arrays of 5,000 nodes.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from hashlib import sha256
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int32]
Rows = npt.NDArray[np.intp]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=np.generic)

INT64_MAX = (1 << 63) - 1
_TABLE = 16
"""Up to so many times as many values as there are nodes, a table numbers them faster than sorting does."""


def int64(value: int) -> int:
    """The value limited to Go's int64, as Quantity.Value limits it."""
    if -INT64_MAX <= value <= INT64_MAX:
        return value
    return INT64_MAX if value > 0 else -INT64_MAX


def frozen(array: npt.NDArray[np.generic]) -> None:
    """Makes an array read-only, because many share it."""
    array.setflags(write=False)


def first_places(numbers: Ints) -> Rows:
    """The first place of each number that occurs, the lowest number first.

    As `numpy.unique` says, but without sorting: the numbers are -1 or more, and few beyond their size.
    """
    first = np.full(int(numbers.max(initial=-1)) + 2, -1, dtype=np.intp)
    # Of assignments to one place the last one counts, and that is the first in the order of the array.
    first[numbers[::-1] + 1] = np.arange(len(numbers) - 1, -1, -1)
    return first[first >= 0]


def members(numbers: Ints, wanted: Ints) -> Bools:
    """Which of the numbers are among those that are wanted; as `numpy.isin`, for numbers of 0 or more."""
    found = np.zeros(int(max(numbers.max(initial=0), wanted.max(initial=0))) + 1, dtype=np.bool_)
    found[wanted] = True
    return found[numbers]


def among(size: int, *rows: Rows) -> Bools:
    """bool[size]: the nodes of any of these lists."""
    found = np.zeros(size, dtype=np.bool_)
    for some in rows:
        found[some] = True
    return found


def numbered(numbers: Ints, columns: Iterable[npt.NDArray[Any]]) -> Ints:
    """int64[N]: a number for each distinct combination of the numbers (0 or more) and the columns' values, in
    the order of the combinations."""
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        if span == 1:
            continue
        values = numbers * span + (column - low)
        if int(values.max()) < _TABLE * len(values):
            found = np.bincount(values) > 0
            numbers = (np.cumsum(found) - 1)[values]
        else:
            _, numbers = np.unique(values, return_inverse=True)
            numbers = numbers.reshape(-1).astype(np.int64)
    return numbers


def narrow(counts: Ints) -> npt.NDArray[np.signedinteger[Any]]:
    """The same numbers, 0 or more, in the narrowest type that holds them all."""
    return counts.astype(np.min_scalar_type(-1 - int(counts.max(initial=0))))


class Shared:
    """Equal arrays, held once, as long as anybody holds one. What is given to it is not to be changed."""

    def __init__(self) -> None:
        """None yet."""
        self._known: WeakValueDictionary[Hashable, npt.NDArray[np.generic]] = WeakValueDictionary()
        self._rows: WeakValueDictionary[bytes, Rows] = WeakValueDictionary()

    def of(self, array: npt.NDArray[T]) -> npt.NDArray[T]:
        """The array that is held for all that are equal to this one."""
        key = array.dtype.str, array.shape, sha256(array.tobytes()).digest()
        return self._known.setdefault(key, array)  # type: ignore[return-value]

    def rows(self, mask: Bools) -> Rows:
        """The numbers of the nodes in a set, bool[N]; one array for equal sets."""
        key = sha256(np.packbits(mask).tobytes()).digest()
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = np.flatnonzero(mask)
        return found


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
        """The column's present values. Callers must not change them, nor use them after the next write."""
        return self._values.get(key, self._zero)

    def set(self, key: K, values: Ints) -> None:
        """Replaces a column by an array, which then belongs to this object."""
        self._values[key] = values
        self._own.add(key)

    def latest(self, key: K) -> Ints:
        """A column that was written, from now on the one that was asked for latest."""
        values = self._values[key] = self._values.pop(key)
        return values

    def keep_latest(self, most: int) -> None:
        """Drops the columns that were written, or asked for as the latest, longest ago: so many stay."""
        while len(self._values) > most:
            key = next(iter(self._values))
            del self._values[key]
            self._own.discard(key)

    def add(self, key: K, row: int, amount: int) -> None:
        """Adds `amount` at one node."""
        if key not in self._own:
            self._values[key] = self[key].copy()
            self._own.add(key)
        self._values[key][row] += amount

    def add_all(self, key: K, rows: Rows, amount: int) -> None:
        """Adds `amount` at each of the nodes, as often as it is named."""
        self.add(key, 0, 0)
        np.add.at(self._values[key], rows, amount)

    def copy(self) -> Columns[K]:
        """An independent copy; the arrays are shared until either side writes."""
        other: Columns[K] = Columns.__new__(Columns)
        other.size = self.size
        other._values = dict(self._values)
        other._own = set()
        other._zero = self._zero
        self._own = set()
        return other


# The domains of a topology key over the eligible nodes, in natural order (node-2 before node-10).
#
# Constraints with the same key and the same eligible nodes share one `Layout`.

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
        there = np.zeros(len(names) + 1, dtype=np.bool_)
        there[ids[eligible]] = True  # -1, of no value, is the last place
        present = np.flatnonzero(there[:-1])
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
