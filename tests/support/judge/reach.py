"""How far a naive planner walks: solve the integer program, evict one pod that it wants moved, look, again.

Landings are by chance and the program is solved anew after each, so what it reaches has been walked to; that
makes it a witness against a plan that leaves more excess behind, or needs many more evictions.
"""

from __future__ import annotations

from random import Random

from tests.support.judge.bound import Bound, bound
from tests.support.judge.cells import Cells, Counts
from tests.support.judge.exhaustive import Place, Value, landings


def reach(cells: Cells, goal: Bound, rng: Random, seconds: float = 5) -> tuple[Value, list[Place]]:
    """(remaining excess, evictions) of one naive walk, and its victims."""
    counts, victims = cells.start, list[Place]()
    best: tuple[Value, list[Place]] = ((cells.total_excess(counts), 0), [])
    target = goal.target
    while best[0][0] > goal.excess and len(victims) < goal.evictions + 5:
        step = _step(cells, counts, target, rng)
        if step is None:
            break
        place, counts = step
        victims.append(place)
        best = min(best, ((cells.total_excess(counts), len(victims)), list(victims)))
        target = bound(cells, counts, seconds).target
    return best


def _step(cells: Cells, counts: Counts, target: Counts, rng: Random) -> tuple[Place, Counts] | None:
    """A victim that the target wants gone, or else any that is admissible, and where that led."""
    places = [(k, n) for k, row in enumerate(counts) for n, c in enumerate(row) if c]
    rng.shuffle(places)
    if target:
        places.sort(key=lambda p: counts[p[0]][p[1]] <= target[p[0]][p[1]])
    for k, n in places:
        ends = landings(cells, counts, k, n)
        if ends is not None:
            return (k, n), rng.choice(sorted(ends))
    return None


def witness(cells: Cells, goal: Bound, seeds: int = 3) -> Value:
    """The worst of a few naive walks: what a plan should not be behind."""
    return max(reach(cells, goal, Random(seed))[0] for seed in range(seeds))
