"""The advice on missing room is the fewest nodes, by a judge that tries all.

python -m tests.property.test_room --count 200 --seed 0
"""

from __future__ import annotations

import argparse
from collections import Counter

import pytest

from rebalancer.planner import PlanOptions, plan
from rebalancer.room import Room, room
from tests.support.clusters.cramped import cramped
from tests.support.judge.room import least_with

_SHARE = 12


def judged(seed: int) -> Room:
    """The advice, held to the judge."""
    case = cramped(seed)
    made = plan(case.snapshot)
    found = room(case.snapshot, PlanOptions(), made)
    stays = [c for c in made.constraints if c.residual_excess]
    assert found.excess == sum(c.residual_excess for c in stays)
    if not stays:
        assert found == Room() or not found.nodes
        return found
    places, works = case.for_those({w.rpartition("/")[2] for c in stays for w in c.workloads})
    assert found.proved, f"seed {seed}: {found}"
    by_planning = any(not n.free for n in found.nodes)
    number = 0 if by_planning else found.number
    for fewer in range(number):
        reached = least_with(places, works, case.kinds, fewer)
        assert reached > found.least, f"seed {seed}: {fewer} nodes leave {reached} as well"
    assert least_with(places, works, case.kinds, number) == found.least, f"seed {seed}"
    if found.least and number < 3:
        more = least_with(places, works, case.kinds, number + 1)
        assert more == found.least, f"seed {seed}: one more node leaves {more}"
    return found


@pytest.mark.parametrize("part", range(4))
def test_no_fewer_nodes_would_do(part: int) -> None:
    found = [judged(seed) for seed in range(part * _SHARE, (part + 1) * _SHARE)]
    assert any(r.nodes for r in found), "nothing is short of room: nothing is shown"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    numbers, left = Counter[int](), 0
    for seed in range(given.seed, given.seed + given.count):
        found = judged(seed)
        if found.excess:
            numbers[found.number] += 1
            left += found.left > found.least
    print(f"{numbers.total()} of {given.count} clusters keep an excess; nodes: {sorted(numbers.items())}")
    print(f"in {left} of them evictions alone then leave more than the least")


if __name__ == "__main__":
    main()
