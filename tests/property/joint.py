"""Plans random clusters with joint moves and plays each of these in many orders.

    python -m tests.property.joint --plays 250000 --seed 1

Says how many were played, and each that went otherwise than the plan says.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from random import Random

from rebalancer.planner import plan
from rebalancer.planner.options import PlanOptions
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import decoded
from tests.support.clusters.random_clusters import Size, random_cluster
from tests.support.judge.jointly import play, sets_of
from tests.support.scheduler.state import State

JOINT = PlanOptions(joint="all", policy=PolicyOptions(in_flight_per_owner=Limit(percent=100)))
SIZES: tuple[Size, ...] = ("tiny", "small", "small", "full")
EACH = 150
"""Orders in which a joint move is played."""


def played(seed: int, each: int = EACH) -> tuple[int, int, list[str]]:
    """(joint moves, plays, problems) of one cluster."""
    rng = Random(f"joint/{seed}")
    listed = list(random_cluster(rng, SIZES[seed % len(SIZES)], pending=seed % 5 == 0))
    made = plan(decoded(listed), JOINT)
    found = sets_of(made, State.of(listed))
    bad = [f"seed {seed}: {what}" for state, s in found for _ in range(each) for what in play(state, s, rng)]
    return len(found), len(found) * each, bad


def main() -> int:
    """Plays until so many have been played, or the time is over."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--plays", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=1e9)
    asked = arguments.parse_args()
    until, total, bad = time.monotonic() + asked.seconds, Counter[str](), list[str]()
    seed = asked.seed
    while total["plays"] < asked.plays and time.monotonic() < until:
        moves, plays, found = played(seed)
        total.update(clusters=1, moves=moves, plays=plays, with_moves=bool(moves), problems=len(found))
        bad += found
        for line in dict.fromkeys(found):
            sys.stdout.write(f"{line}\n")
        seed += 1
    sys.stdout.write(f"{dict(total)}, seeds {asked.seed} to {seed - 1}\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
