"""Random workloads shrink to every number: what the steered ReplicaSet keeps is as spread as it can be.

python -m tests.property.test_scale_in --count 500 --seed 0
"""

from __future__ import annotations

import argparse
from collections import Counter

import pytest

from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.prevention.steering import SteeredOwner, steer
from tests.support.build import decoded
from tests.support.clusters.scale_in import FORMS, Shrinking, shrinking
from tests.support.judge.scale_in import best_order, excess, left_after, priced

EVERYWHERE = ScaleInOptions(mode="all")
SEEDS = 500
_PARTS = 5


def steered(case: Shrinking) -> SteeredOwner:
    return next(o for o in steer(decoded(case.objects), EVERYWHERE).owners if "web" in o.owner.name)


def costs_of(found: SteeredOwner) -> dict[str, int]:
    return {c.pod.name: c.cost for c in found.changes}


def ends(case: Shrinking, costs: dict[str, int]) -> list[tuple[int, int]]:
    """The excess that each number of pods leaves, from one less than there are down to none."""
    pods = priced(case.pods, costs)
    return [excess(case.rules, left_after(pods, n)) for n in reversed(range(len(pods)))]


def judged(seed: int) -> tuple[str, int, int, int]:
    """(form, numbers of pods, those that end in excess unsteered where a nested order need not, steered)."""
    case = shrinking(seed)
    found = steered(case)
    with_costs, without = ends(case, costs_of(found)), ends(case, {})
    best = best_order(case.rules, case.nodes)
    total = sum(e[0] for e in with_costs), sum(e[1] for e in with_costs)
    assert total == best, f"seed {seed} ({case.form}): {total} summed over all numbers, {best} is possible"
    if len(case.rules) == 1 and not any(case.rules[0].others.values()) and not case.rules[0].min_domains > 1:
        start = excess(case.rules, case.nodes)
        for before, after in zip([start, *with_costs], with_costs, strict=False):
            assert after <= before, f"seed {seed}: one key, and a scale-in made it worse"
    worse = sum(a > b for a, b in zip(without, with_costs, strict=True))
    return case.form, len(without), worse, sum(e != (0, 0) for e in with_costs)


@pytest.mark.parametrize("part", range(_PARTS))
def test_a_steered_scale_in_ends_as_spread_as_a_nested_order_can(part: int) -> None:
    found = [judged(seed) for seed in range(part * SEEDS // _PARTS, (part + 1) * SEEDS // _PARTS)]
    assert {form for form, *_ in found} == set(FORMS)
    assert sum(worse for *_, worse, _ in found) > 0, "unsteered it would have been as good: nothing is shown"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=SEEDS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    numbers, worse, stays = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(given.seed, given.seed + given.count):
        form, n, w, s = judged(seed)
        numbers[form] += n
        worse[form] += w
        stays[form] += s
    for form in FORMS:
        share = 100 * worse[form] / numbers[form]
        more = f"{worse[form]} ({share:.0f} %) end with more excess unsteered"
        print(f"{form}: {numbers[form]} scale-ins, {more}, {stays[form]} keep what no order avoids")


if __name__ == "__main__":
    main()
