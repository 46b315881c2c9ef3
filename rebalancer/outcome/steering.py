"""What became of the deletion costs that keep a ReplicaSet's spread when it shrinks."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rebalancer.prevention.scale_in.steering import CostChange, Steering


class CostResult(StrEnum):
    """What became of one pod's cost."""

    WRITTEN = "written"
    RECORDED = "would-write"
    """Dry run."""
    CHANGED = "changed"
    """The pod has changed since it was looked at: it is looked at again."""
    GONE = "gone"
    """The pod is gone."""
    FAILED = "failed"
    """The API server refused it or did not answer; it is tried again."""


class CostOutcome(Struct, frozen=True, eq=False):
    """One pod's cost. `message`: what went wrong, "" if nothing did."""

    change: CostChange
    result: CostResult
    message: str = ""


class SteeringReport(Struct, frozen=True, eq=False, kw_only=True):
    """One look at all owners that are steered. `waiting`: changes that come later, because their owner was
    written to within the last minute, or because the round was ended. `seconds`: what finding them took."""

    steering: Steering
    outcomes: tuple[CostOutcome, ...] = ()
    waiting: int = 0
    seconds: float = 0.0

    def count(self, result: CostResult) -> int:
        """How many outcomes are of that kind."""
        return sum(o.result is result for o in self.outcomes)
