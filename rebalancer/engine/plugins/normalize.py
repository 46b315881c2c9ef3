"""The normalisation that several plugins share.

Rule: plugins/helper/normalize_score.go, ``DefaultNormalizeScore``: 0–100 by the highest raw score.
"""

from __future__ import annotations

import numpy as np

from rebalancer.engine.plugins.plugin import MAX_SCORE, Score
from rebalancer.spread.arrays import Bools, Ints


class DefaultNormalized(Score):
    """A static raw score, scaled by its highest value over the feasible nodes."""

    def __init__(self, raw: Ints, *, reverse: bool) -> None:
        """`raw` int64[N], not negative; `reverse`: the lowest is the best."""
        self._raw = raw if raw.any() else None
        self._reverse = reverse
        constant = np.int64(MAX_SCORE if reverse else 0)
        self._constant: Ints = np.broadcast_to(constant, raw.shape)

    def values(self, feasible: Bools) -> Ints:
        """Scaled; all equal where no feasible node scores at all."""
        if self._raw is None:
            return self._constant
        highest = int(self._raw.max(where=feasible, initial=0))
        if highest == 0:
            return self._constant
        scaled = MAX_SCORE * self._raw // highest
        return MAX_SCORE - scaled if self._reverse else scaled
