"""NodeResourcesFit: room for the pod's requests and for one more pod."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.config import Profile
from rebalancer.engine.plugins.plugin import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    AskingAlike,
    Filter,
    NodeFilter,
    Plugin,
    Score,
)
from rebalancer.engine.plugins.resources.resource_score import ResourceScore, asked
from rebalancer.engine.plugins.resources.scoring_strategy import STRATEGIES
from rebalancer.engine.state.cluster import PODS, ClusterState
from rebalancer.engine.template_rules import Amounts, asked_requests
from rebalancer.engine.version import TOO_SMALL_UNRESOLVABLE
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Rows

ORDER = (PODS, "cpu", "memory", "ephemeral-storage")
"""In which reasons are told, before those of other resources."""


_FEW = 4
"""Nodes that are compared one by one."""


class NodeResourcesFit(Plugin):
    """Rule: plugins/noderesources/fit.go, ``fitsRequest``."""

    name = "NodeResourcesFit"

    def __init__(self, state: ClusterState, profile: Profile) -> None:
        """Binds the plugin."""
        super().__init__(state, profile)
        self._filters: AskingAlike[_Filter] = AskingAlike(state)
        self._scores: AskingAlike[ResourceScore] = AskingAlike(state)

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes without enough of a requested resource."""
        wanted = asked_requests(template, self.profile)
        return self._filters.of(wanted, lambda: _Filter(self.state, wanted))

    def score(self, template: PodTemplate) -> Score | None:
        """By the profile's scoring strategy."""
        strategy = STRATEGIES[self.profile.fit_strategy]
        return self._scores.of(asked(template), lambda: strategy(self.state, template, self.profile))


class _Filter(NodeFilter):
    def __init__(self, state: ClusterState, wanted: Amounts) -> None:
        self._state = state
        in_order = sorted(wanted, key=lambda w: ORDER.index(w[0]) if w[0] in ORDER else len(ORDER))
        self._wanted = tuple((name, amount, state.allocatable(name)) for name, amount in in_order)
        super().__init__(state.table.size)

    def fits(self, rows: Rows) -> Bools:
        requested = self._state.requested
        if len(rows) <= _FEW:
            # An eviction changes one node or two: numbers are compared faster than arrays are made.
            columns = [(requested[name], amount, allocatable) for name, amount, allocatable in self._wanted]
            every = (all(taken[row] + a <= has[row] for taken, a, has in columns) for row in rows.tolist())
            return np.fromiter(every, np.bool_, len(rows))
        fits: Bools = np.ones(len(rows), dtype=np.bool_)
        for name, amount, allocatable in self._wanted:
            fits &= requested[name][rows] <= allocatable[rows] - amount
        return fits

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        requested, reasons, unresolvable = self._state.requested, [], False
        for name, amount, allocatable in self._wanted:
            has = int(allocatable[row])
            if amount > has - int(requested[name][row]):
                reasons.append("Too many pods" if name == PODS else f"Insufficient {name}")
                too_small = name != PODS and amount > has
                unresolvable |= too_small and self._state.version.has(TOO_SMALL_UNRESOLVABLE)
        return UNRESOLVABLE if unresolvable else UNSCHEDULABLE, tuple(reasons)
