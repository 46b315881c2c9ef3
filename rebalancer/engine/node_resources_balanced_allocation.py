"""NodeResourcesBalancedAllocation: nodes whose use of cpu and memory the pod brings into balance."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.plugin import MAX_SCORE, Plugin, Score
from rebalancer.engine.resource_score import ResourceScore
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Ints, Rows


class NodeResourcesBalancedAllocation(Plugin):
    """Rule: plugins/noderesources/balanced_allocation.go. A pod that requests nothing is skipped.

    From 1.36 the score is how much the pod improves the balance, 50 + (50 + with − without) / 2; before, the
    balance with the pod.
    """

    name = "NodeResourcesBalancedAllocation"

    def score(self, template: PodTemplate) -> Score | None:
        """The balance that the pod leaves, and from 1.36 what it changes."""
        found = _Score(self.state, template, self.profile.balanced_resources, nonzero=False)
        skips = self.state.version.balance_skips_best_effort
        return found if found.asks or not skips else None


class _Score(ResourceScore):
    def computed(self, rows: Rows) -> Ints:
        after = self._balance(rows, with_pod=True)
        if not self.state.version.balance_counts_change:
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
        number = exists.sum(axis=0)
        total = shares.sum(axis=0)
        mean = np.divide(total, number, out=np.zeros(len(rows)), where=number > 0)
        square = np.zeros(len(rows))
        for share, there in zip(shares, exists, strict=True):
            square += np.where(there, (share - mean) * (share - mean), 0.0)
        deviation = np.sqrt(np.divide(square, number, out=np.zeros(len(rows)), where=number > 0))
        # Two resources take a short cut upstream, which rounds differently.
        pair = number == 2
        if pair.any():
            first = np.where(exists, shares, -np.inf).max(axis=0)
            second = np.where(exists, shares, np.inf).min(axis=0)
            np.copyto(deviation, np.abs((first - second) / 2), where=pair)
        score: Ints = ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)
        return score
