"""NodeResourcesFit: room for the pod's requests and for one more pod."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from typing import Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rebalancer.engine.config import Profile, ResourceWeight, ShapePoint
from rebalancer.engine.plugins.plugin import (
    MAX_SCORE,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    AskingAlike,
    Filter,
    NodeFilter,
    Plugin,
    Score,
)
from rebalancer.engine.state.cluster import NONZERO_CPU, NONZERO_MEMORY, PODS, ClusterState
from rebalancer.engine.template_rules import Amounts, asked_requests, is_counted, is_scalar
from rebalancer.engine.version import BEST_EFFORT_UNBALANCED, CHANGE_OF_BALANCE, TOO_SMALL_UNRESOLVABLE
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Floats, Ints, Rows, int64

# What the resource scores have in common: for each resource, the node's use with the pod on it.
#
# Rule: plugins/noderesources/resource_allocation.go. A scalar resource that the pod does not ask for is
# left out, and so is, node by node, a resource that the node does not have.


class Resource(Struct, frozen=True, eq=False):
    """A scored resource: the pod's amount, the nodes' allocatable, the name of the column of requests."""

    weight: int
    amount: int
    allocatable: Ints
    column: str


def asked(template: PodTemplate) -> Hashable:
    """Equal for templates with equal scores of resources."""
    return frozenset(template.requests.items()), template.scored_cpu, template.scored_memory


class ResourceScore(Score):
    """A score of each node alone, by its resources; subclasses say how (`computed`)."""

    def __init__(
        self,
        state: ClusterState,
        template: PodTemplate,
        resources: Iterable[ResourceWeight],
        *,
        nonzero: bool,
    ) -> None:
        """`nonzero`: assume the scheduler's defaults for containers that ask for no cpu or memory."""
        self.state = state
        amounts = {name: int64(amount) for name, amount in template.requests.items()}
        columns: dict[str, str] = {}
        if nonzero:
            amounts |= {"cpu": template.scored_cpu, "memory": template.scored_memory}
            columns = {"cpu": NONZERO_CPU, "memory": NONZERO_MEMORY}
        wanted = tuple(resources)
        self.asks = any(amounts.get(r.name, 0) for r in wanted)
        self.resources = tuple(
            Resource(r.weight, amounts.get(r.name, 0), state.allocatable(r.name), columns.get(r.name, r.name))
            for r in wanted
            if is_counted(r.name) and (amounts.get(r.name, 0) or not is_scalar(r.name))
        )
        self._values = self.computed(np.arange(state.table.size))

    def used(self, resource: Resource, rows: Rows) -> Ints:
        """int64[rows]: requests on the node, the pod's included."""
        return self.state.requested[resource.column][rows] + resource.amount

    def computed(self, rows: Rows) -> Ints:
        """int64[rows]: the scores of these nodes."""
        raise NotImplementedError

    def update(self, rows: Rows) -> None:
        """Scores the changed nodes again."""
        if len(rows):
            self._values[rows] = self.computed(rows)

    def copied(self) -> Self:
        """One that is brought up to date by itself."""
        other = copy(self)
        other._values = self._values.copy()
        return other

    def values(self, feasible: Bools) -> Ints:  # noqa: ARG002
        """Not normalised."""
        return self._values


# NodeResourcesFit's scoring strategies.
#
# Rules: plugins/noderesources/least_allocated.go, most_allocated.go, requested_to_capacity_ratio.go;
# plugins/helper/shape_score.go. All divisions are Go's, towards zero.

MAX_UTILIZATION = 100
MAX_SHAPE_SCORE = 10


class _Strategy(ResourceScore):
    """The weighted mean of a score for each resource."""

    def __init__(self, state: ClusterState, template: PodTemplate, profile: Profile) -> None:
        self.profile = profile
        super().__init__(state, template, profile.fit_resources, nonzero=True)

    def computed(self, rows: Rows) -> Ints:
        total: Ints = np.zeros(len(rows), dtype=np.int64)
        weights: Ints = np.zeros(len(rows), dtype=np.int64)
        for resource in self.resources:
            allocatable = resource.allocatable[rows]
            score = self.scored(self.used(resource, rows), np.maximum(allocatable, 1))
            weight: Ints = resource.weight * self.counted(score, allocatable)
            total += score * weight
            weights += weight
        return self.mean(total, weights)

    def scored(self, used: Ints, allocatable: Ints) -> Ints:
        raise NotImplementedError

    def counted(self, score: Ints, allocatable: Ints) -> Ints:  # noqa: ARG002
        present: Ints = (allocatable != 0).astype(np.int64)
        return present

    def mean(self, total: Ints, weights: Ints) -> Ints:
        mean: Ints = total // np.maximum(weights, 1)
        return mean


class LeastAllocated(_Strategy):
    """The free share; none where the pod does not fit."""

    def scored(self, used: Ints, allocatable: Ints) -> Ints:
        """Free share in percent."""
        share: Ints = (allocatable - used) * MAX_SCORE // allocatable
        return np.where(used > allocatable, 0, share)


class MostAllocated(_Strategy):
    """The used share, at most all."""

    def scored(self, used: Ints, allocatable: Ints) -> Ints:
        """Used share in percent."""
        share: Ints = np.minimum(used, allocatable) * MAX_SCORE // allocatable
        return share


class RequestedToCapacityRatio(_Strategy):
    """A broken line over the used share; resources that score 0 do not count in the mean."""

    def __init__(self, state: ClusterState, template: PodTemplate, profile: Profile) -> None:
        """Tabulates the line for 0–100 %."""
        self._line: Ints = np.array(
            [at(profile.fit_shape, p) for p in range(MAX_UTILIZATION + 1)], dtype=np.int64
        )
        super().__init__(state, template, profile)

    def scored(self, used: Ints, allocatable: Ints) -> Ints:
        """The line's value at the used share."""
        percent: Ints = np.minimum(used, allocatable) * MAX_UTILIZATION // allocatable
        return self._line[percent]

    def counted(self, score: Ints, allocatable: Ints) -> Ints:
        """Only what scores."""
        present: Ints = ((allocatable != 0) & (score > 0)).astype(np.int64)
        return present

    def mean(self, total: Ints, weights: Ints) -> Ints:
        """Rounded, half up."""
        rounded: Ints = np.floor(total / np.maximum(weights, 1) + 0.5).astype(np.int64)
        return rounded


def at(shape: tuple[ShapePoint, ...], percent: int) -> int:
    """The broken line at a utilization, scaled to 0–100."""
    points = [(p.utilization, p.score * (MAX_SCORE // MAX_SHAPE_SCORE)) for p in shape]
    for i, (x, y) in enumerate(points):
        if percent <= x:
            if i == 0:
                return y
            x0, y0 = points[i - 1]
            rise = (y - y0) * (percent - x0)
            return y0 + (abs(rise) // (x - x0)) * (1 if rise >= 0 else -1)
    return points[-1][1]


STRATEGIES: dict[str, type[_Strategy]] = {
    "LeastAllocated": LeastAllocated,
    "MostAllocated": MostAllocated,
    "RequestedToCapacityRatio": RequestedToCapacityRatio,
}


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


# NodeResourcesBalancedAllocation: nodes whose use of cpu and memory the pod brings into balance.


class NodeResourcesBalancedAllocation(Plugin):
    """Rule: plugins/noderesources/balanced_allocation.go. A pod that requests nothing is skipped.

    From 1.36 the score is how much the pod improves the balance, 50 + (50 + with − without) / 2; before, the
    balance with the pod.
    """

    name = "NodeResourcesBalancedAllocation"

    def __init__(self, state: ClusterState, profile: Profile) -> None:
        """Binds the plugin."""
        super().__init__(state, profile)
        self._scores: AskingAlike[_Score] = AskingAlike(state)

    def score(self, template: PodTemplate) -> Score | None:
        """The balance that the pod leaves, and from 1.36 what it changes."""
        found = self._scores.of(
            asked(template),
            lambda: _Score(self.state, template, self.profile.balanced_resources, nonzero=False),
        )
        skips = self.state.version.has(BEST_EFFORT_UNBALANCED)
        return found if found.asks or not skips else None


class _Score(ResourceScore):
    def computed(self, rows: Rows) -> Ints:
        after = self._balance(rows, with_pod=True)
        if not self.state.version.has(CHANGE_OF_BALANCE):
            return after
        half = MAX_SCORE // 2
        change: Ints = after - self._balance(rows, with_pod=False)
        return half + (half + change) // 2

    def _balance(self, rows: Rows, *, with_pod: bool) -> Ints:
        """int64[rows]: 100 · (1 − standard deviation of the used shares of what the node has)."""
        shares = np.zeros((len(self.resources), len(rows)))
        exists = np.zeros(shares.shape, dtype=np.bool_)
        for i, resource in enumerate(self.resources):
            allocatable = resource.allocatable[rows]
            used = self.used(resource, rows) - (0 if with_pod else resource.amount)
            exists[i] = allocatable != 0
            np.divide(used, allocatable, out=shares[i], where=exists[i])
        np.minimum(shares, 1.0, out=shares)
        score: Ints = ((1 - _deviation(shares, exists)) * float(MAX_SCORE)).astype(np.int64)
        return score


def _deviation(shares: Floats, exists: npt.NDArray[np.bool_]) -> Floats:
    """[rows]: standard deviation over the resources [R, rows] that exist; two of them are a special case."""
    if len(shares) < 2:
        return np.zeros(shares.shape[1])
    if len(shares) == 2:
        return np.where(exists[0] & exists[1], np.abs((shares[0] - shares[1]) / 2), 0.0)
    number = exists.sum(axis=0)
    mean = shares.sum(axis=0) / np.maximum(number, 1)
    square = np.where(exists, (shares - mean) * (shares - mean), 0.0).sum(axis=0)
    deviation = np.sqrt(square / np.maximum(number, 1))
    highest = np.where(exists, shares, -np.inf).max(axis=0)
    lowest = np.where(exists, shares, np.inf).min(axis=0)
    spread: Floats = np.where(number == 2, (highest - lowest) / 2, deviation)
    return spread
