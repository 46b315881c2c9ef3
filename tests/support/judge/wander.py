"""How low a cluster gets by evicting anything at any time, with luck.

A few pods are evicted at once, and placed in any order on any node that the plain filter leaves, as often as
asked. Order, budgets and harm on the way are not looked at; but all pods are placed in the end, and no
constraint has more excess than in the beginning. So what a bound says nothing can reach, this must not reach.
"""

from __future__ import annotations

from random import Random

from tests.support.judge.cells import Cells, Counts, moved

AT_ONCE = 5
"""Pods that are evicted together."""
_DETOURS = 0.15
"""How often a step is taken that leads no lower."""


def lowest(cells: Cells, rng: Random, steps: int) -> int:
    """The least excess in all that was come across."""
    began = [cells.excess(cells.start, g) for g in range(len(cells.groups))]
    counts, best = cells.start, sum(began)
    now = best
    for _ in range(steps):
        after = _step(cells, counts, rng)
        if after is None:
            continue
        excesses = [cells.excess(after, g) for g in range(len(cells.groups))]
        if sum(excesses) <= now or rng.random() < _DETOURS:
            counts, now = after, sum(excesses)
        if all(e <= b for e, b in zip(excesses, began, strict=True)):
            best = min(best, sum(excesses))
    return best


def _step(cells: Cells, counts: Counts, rng: Random) -> Counts | None:
    """After some evictions at once; None if a replacement found no node."""
    out: list[int] = []
    for _ in range(rng.randint(1, AT_ONCE)):
        places = [
            (k, n)
            for k, row in enumerate(counts)
            for n, pods in enumerate(row)
            if pods and cells.kinds[k].movable and cells.kinds[k].own
        ]
        if not places:
            return None
        # Pods of one workload more often than by chance: a deadlock takes several.
        alike = [p for p in places if p[0] in out]
        k, n = rng.choice(alike if alike and rng.random() < 0.7 else places)
        counts = moved(counts, k, n, None)
        out.append(k)
    while out:
        open_ = [(i, nodes) for i, k in enumerate(out) if (nodes := cells.feasible(counts, k))]
        if not open_:
            return None
        i, nodes = rng.choice(open_)
        row = list(counts[out[i]])
        evenly = rng.random() < 0.5
        row[min(nodes, key=lambda n: (row[n], rng.random())) if evenly else rng.choice(nodes)] += 1
        counts = (*counts[: out[i]], tuple(row), *counts[out[i] + 1 :])
        del out[i]
    return counts
