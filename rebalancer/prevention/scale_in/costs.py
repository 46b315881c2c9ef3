"""Deletion costs that make a ReplicaSet delete its pods in an order, with the fewest changes.

Pods that may go in any turn among each other share a cost. A pod without a cost counts as 0, and that is what
the pods have that stay longest; what goes earlier costs less. So most pods of a small workload need no cost,
and pods that come or go seldom change those of others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence

from rebalancer.prevention.scale_in.order import Order
from rebalancer.prevention.scale_in.problem import NOWHERE, Problem


def deletion_costs(problem: Problem, order: Order) -> tuple[int, ...]:
    """The cost of each pod, in the order in which they go: it never falls from one pod to the next."""
    steps = _steps(problem, order)
    present = _present(problem, order)
    values = _values([Counter(present[turn] for turn in step) for step in steps])
    costs = [0] * len(present)
    for step, value in zip(steps, values, strict=True):
        for turn in step:
            costs[turn] = value
    return tuple(costs)


def _present(problem: Problem, order: Order) -> list[int]:
    """What each pod of the order costs now."""
    gone = Counter[int]()
    costs = []
    for cell in order.cells:
        costs.append(problem.costs[cell][gone[cell]])
        gone[cell] += 1
    return costs


def _steps(problem: Problem, order: Order) -> list[list[int]]:
    """The turns of the order in runs, those that stay longest first.

    The pods of a run lower the same count, in every constraint, and the highest count before the run and the
    lowest after it are so near that no turn among them makes more excess than the order does.
    """
    levels = problem.levels(problem.pods)
    heights: list[Hashable] = []
    spans = [[level.span for level in levels]]
    excess = [[level.excess for level in levels]]
    for c in order.cells:
        places = list(zip(levels, problem.cells[c], strict=True))
        heights.append(tuple(level.of[d] if d != NOWHERE else NOWHERE for level, d in places))
        for level, d in places:
            level.take(d)
        spans.append([level.span for level in levels])
        excess.append([level.excess for level in levels])

    def harmless(first: int, last: int) -> bool:
        if len(problem.spreads) == 1:
            return True  # Of one constraint the same counts follow, by whatever domain they begin.
        return all(
            spans[first][g][1] - spans[last + 1][g][0] - s.max_skew <= max(0, excess[between][g])
            for g, s in enumerate(problem.spreads)
            for between in range(first + 1, last + 1)
        )

    runs: list[list[int]] = []
    for turn in reversed(range(len(order.cells))):
        alike = runs and heights[turn] == heights[runs[-1][0]]
        if alike and harmless(turn, runs[-1][0]):
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return runs


def _values(steps: Sequence[Counter[int]]) -> list[int]:
    """A cost for each step, each less than the one before and none above 0, such that most pods keep theirs.

    `steps`: how many pods of each step have which cost now. With the number of the step added, costs that may
    stand together do not rise: the heaviest such sequence is kept, and the others follow it closely.
    """
    offers = [(i, cost + i, pods) for i, step in enumerate(steps) for cost, pods in step.items()]
    offers = [(i, height, pods) for i, height, pods in offers if height <= 0]
    # Of the sequences that end with a height: the heaviest, as (-height, weight), both rising; and its end.
    ends: list[tuple[int, int, int]] = []
    before: dict[int, int] = {}
    waiting: list[tuple[int, int, int]] = []
    step = -1

    def settle() -> None:
        for low, weight, offer in waiting:
            at = bisect_left(ends, (low,))
            if at and ends[at - 1][1] >= weight:
                continue
            if at < len(ends) and ends[at][0] == low and ends[at][1] >= weight:
                continue
            while at < len(ends) and ends[at][1] <= weight:
                del ends[at]
            ends.insert(at, (low, weight, offer))
        waiting.clear()

    for offer, (i, height, pods) in enumerate(offers):
        if i != step:
            settle()
            step = i
        at = bisect_right(ends, (-height, 1 << 62, 0))
        weight = pods
        if at:
            weight += ends[at - 1][1]
            before[offer] = ends[at - 1][2]
        waiting.append((-height, weight, offer))
    settle()
    kept: dict[int, int] = {}
    last: int | None = ends[-1][2] if ends else None
    while last is not None:
        i, height, _ = offers[last]
        kept[i] = height
        last = before.get(last)
    values, height = [], 0
    for i in range(len(steps)):
        height = kept.get(i, height)
        values.append(height - i)
    return values
