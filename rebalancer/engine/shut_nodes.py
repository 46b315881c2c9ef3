"""Which nodes are shut to a pod, by what shuts them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from rebalancer.engine.framework import Framework
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints

NOMINATED = "held for pods that are nominated"


class Shut(Struct, frozen=True, eq=False):
    """Nodes that are shut to a pod for one cause.

    `plugin`: the filter, "" for pods that are nominated for the node. `cause`: a spread constraint by maxSkew
    and key, else the filter's own reasons. `nodes`: bool[N], where it is the first cause, in the scheduler's
    order. `alone`: bool[N], where it is the only one.
    """

    plugin: str
    cause: str
    nodes: Bools
    alone: Bools

    @property
    def count(self) -> int:
        """How many nodes it is the first cause for."""
        return int(np.count_nonzero(self.nodes))


def shut_nodes(framework: Framework, template: PodTemplate) -> tuple[Shut, ...]:
    """Every node that does not take the pod, under its first cause; the cause of most nodes first."""
    table = framework.state.table
    asked = framework.questions(template)
    failed: Ints = np.zeros(table.size, dtype=np.int64)
    for question in asked:
        failed += ~question.pass_
    left = ~framework.feasible(template)
    found: list[Shut] = []
    for question in asked:
        first = left & ~question.pass_
        left = left & question.pass_
        rows = np.flatnonzero(first)
        texts = (question.words or ", ".join(question.why(row)) for row in rows.tolist())
        for cause, mask in _by_text(texts, rows.tolist(), table.size).items():
            found.append(Shut(question.plugin, cause, mask, mask & (failed == 1)))
    if left.any():
        found.append(Shut("", NOMINATED, left, left))
    return tuple(sorted(found, key=lambda s: (-s.count, s.plugin, s.cause)))


def told(shut: Iterable[Shut]) -> str:
    """The causes in words: `6 nodes: maxSkew 1 over zone; 2 nodes: Insufficient cpu`."""
    return "; ".join(f"{s.count:,} {'node' if s.count == 1 else 'nodes'}: {s.cause}" for s in shut)


def _by_text(texts: Iterable[str], rows: list[int], size: int) -> dict[str, Bools]:
    found: dict[str, Bools] = {}
    for text, row in zip(texts, rows, strict=True):
        if text not in found:
            found[text] = np.zeros(size, dtype=np.bool_)
        found[text][row] = True
    return found
