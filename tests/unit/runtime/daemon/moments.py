"""A watch cache that shows one snapshot after the other."""

from __future__ import annotations

from collections.abc import Mapping

from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Identity, Snapshot
from rebalancer.planner import plan
from rebalancer.spread.constraint import Constraint


class Moments:
    def __init__(self, first: Snapshot) -> None:
        self.current = first
        self._generation = 0

    def show(self, snapshot: Snapshot) -> None:
        self.current = snapshot
        self._generation += 1

    def snapshot(self, now: float) -> Snapshot:  # noqa: ARG002
        return self.current

    def pods(self) -> Mapping[Identity, Pod]:
        return {(p.namespace, p.name): p for p in self.current.pods}

    def generation(self, kind: str) -> int:  # noqa: ARG002
        return self._generation

    def violated(self) -> dict[Constraint, int]:
        """As the index says."""
        return {c.constraint: c.excess for c in plan(self.current).constraints if c.excess}
