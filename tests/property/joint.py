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
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import decoded, node, objects, workload
from tests.support.clusters.random_clusters import Size, random_cluster
from tests.support.judge.jointly import play, sets_of
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State

JOINT = PlanOptions(joint="all", policy=PolicyOptions(in_flight_per_owner=Limit(percent=100)))
SIZES: tuple[Size, ...] = ("tiny", "small")
EACH = 150
"""Orders in which a joint move is played."""


def tight(rng: Random) -> list[Json]:
    """Full nodes, and workloads of which each zone has pods too many of one and too few of another."""
    zones = "abc"[: rng.randint(2, 3)]
    machines = [f"{z}-{i}" for z in zones for i in range(rng.randint(1, 2))]
    names = [f"w{i}" for i in range(rng.randint(2, 4))]
    placed = {w: dict.fromkeys(machines, rng.randint(1, 3)) for w in names}
    for _ in range(rng.randint(1, 3)):
        one, other = rng.sample(names, 2)
        here, there = rng.sample(machines, 2)
        placed[one][here] += 1
        placed[one][there] -= min(1, placed[one][there])
        placed[other][there] += 1
        placed[other][here] -= min(1, placed[other][here])
    spare = rng.choice((0, 0, 0, 1))
    owners = []
    for w in names:
        made = workload(w, rng.choice(("ReplicaSet", "ReplicaSet", "StatefulSet"))).spread("zone", 1)
        if rng.random() < 0.3:
            made = made.spread("hostname", rng.choice((1, 2)))
        owners.append(made.placed({m: n for m, n in placed[w].items() if n}))
    room = {m: sum(placed[w][m] for w in names) for m in machines}
    return objects(
        *(node(m).zone(m[0]).pods(room[m] + (spare if m == machines[0] else 0)) for m in machines), *owners
    )


def deadlocked(rng: Random) -> list[Json]:
    """A workload by zone and by hostname, whose fullest zone has its pods on few of its nodes."""
    sizes = {z: rng.randint(1, 3) for z in "abc"}
    machines = {z: [f"{z}-{i}" for i in range(n)] for z, n in sizes.items()}
    full = rng.choice("abc")
    placed = {m: 1 for z in "abc" if z != full for m in machines[z]}
    placed[machines[full][0]] = rng.randint(2, 5)
    web = workload("web").spread("zone", 1).spread("hostname", 1).placed(placed)
    return objects(*(node(m).zone(z) for z in "abc" for m in machines[z]), web)


def cluster(seed: int, rng: Random) -> list[Json]:
    """Of the seed: a random one, or one in which single moves come to nothing."""
    if seed % 5 == 0:
        return list(random_cluster(rng, SIZES[seed // 5 % len(SIZES)], pending=seed % 25 == 0))
    return tight(rng) if seed % 5 < 4 else deadlocked(rng)


def played(seed: int, each: int = EACH) -> tuple[int, int, list[str]]:
    """(joint moves, plays, problems) of one cluster."""
    rng = Random(f"joint/{seed}")
    listed = cluster(seed, rng)
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
        if seed % 200 == 0:
            sys.stdout.write(f"{dict(total)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(total)}, seeds {asked.seed} to {seed - 1}\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
