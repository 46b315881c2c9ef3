"""Counts by the name of a domain, as a plan shows them."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

import numpy as np
import numpy.typing as npt

from rebalancer.spread.layout import Layout


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
        """The same as a dictionary."""
        return dict(zip(self._layout.names, self._counts.tolist(), strict=True))

    def __repr__(self) -> str:
        """As that dictionary."""
        return repr(self.plain())
