"""NodeResourcesFit's scoring strategies.

Rules: plugins/noderesources/least_allocated.go, most_allocated.go, requested_to_capacity_ratio.go;
plugins/helper/shape_score.go. All divisions are Go's, towards zero.
"""

from __future__ import annotations

import numpy as np

from rebalancer.engine.config import Profile, ShapePoint
from rebalancer.engine.plugins.plugin import MAX_SCORE
from rebalancer.engine.plugins.resources.resource_score import ResourceScore
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Ints, Rows

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
