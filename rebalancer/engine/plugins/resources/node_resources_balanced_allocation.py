"""NodeResourcesBalancedAllocation: nodes whose use of cpu and memory the pod brings into balance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rebalancer.engine.config import Profile
from rebalancer.engine.plugins.plugin import MAX_SCORE, AskingAlike, Plugin, Score
from rebalancer.engine.plugins.resources.resource_score import ResourceScore, asked
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.version import BEST_EFFORT_UNBALANCED, CHANGE_OF_BALANCE
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Floats, Ints, Rows


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
