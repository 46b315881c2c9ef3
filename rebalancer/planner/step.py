"""One move of a walk, and the walk."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.simulation import Made
from rebalancer.planner.trial import Verdict
from rebalancer.spread.arrays import Ints, Rows


class Step(Struct, frozen=True, eq=False):
    """One move of a walk: the victim of class `q` on node `row`, and the node where the plan lands it.

    `destinations`: every node in question. `certain`: the walk ends as predicted wherever this replacement
    and those of the earlier moves land. `open`: the nodes that are surely open, for each way in which earlier
    replacements of the component may have landed.
    """

    pod: Pod
    q: int
    row: int
    landed: int
    verdict: Verdict
    destinations: Rows
    certain: bool
    open: tuple[Rows, ...] = ()

    @property
    def made(self) -> Made:
        """The move as the plan predicts it."""
        return Made(self.pod, self.verdict.replacement, self.landed)


class Walk(Struct, frozen=True, eq=False):
    """The best walk found, which ends at an excess of `residual`.

    `least`: excess of the best final state; `bound`: moves that a final state with an excess of `residual`
    takes at least; `proved`: the walk surely reaches the best final state, in as few moves.
    """

    steps: tuple[Step, ...]
    least: int
    bound: int
    residual: int
    proved: bool


def reached(placed: Ints, steps: Iterable[Step]) -> tuple[object, ...]:
    """Equal where the same pods are gone and the placement, int64[Q, N], is the same: so are open moves."""
    return (placed.tobytes(), *sorted((s.q, s.row) for s in steps))
