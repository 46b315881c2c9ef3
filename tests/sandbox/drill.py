"""Random clusters lose a zone each, in sandbox and drill: `python -m tests.sandbox.drill --count 50`."""

from __future__ import annotations

import argparse
import sys
from random import Random

from rebalancer.drill import drill
from rebalancer.drill.lost import Manner
from tests.support.build import decoded
from tests.support.clusters.random_clusters import Size, random_cluster
from tests.support.sandbox.failing import failed
from tests.support.scheduler.plain import ZONE, Json, labels_of

_SIZES: tuple[Size, ...] = ("small", "tiny", "full")
_SEEDS = 3


def differs(listed: list[Json], key: str, value: str, seeds: int = _SEEDS) -> str:
    """What the drill and the sandbox say differently of one failure; "" if the drill says what some seed of
    the sandbox's scheduler does: which of equally good nodes is taken can matter."""
    said = []
    for seed in range(seeds):
        found = failed(listed, key, value, seed)
        drilled = drill(decoded(found.at_rest), keys=(key,))
        [one] = [d for d in drilled.today if d.failure.value == value]
        if one.pending + one.waiting == found.pending:
            return ""
        said.append(f"seed {seed}: drill {one.pending + one.waiting}, sandbox {found.pending}")
    return "; ".join(said)


def outside(listed: list[Json], key: str, value: str, seed: int) -> str:
    """Where the sandbox leaves a number of pods Pending that is not in the drill's range: nodes that fall
    silent or are deleted, all at once and one by one; "" if all are in it."""
    said = []
    manners: tuple[tuple[Manner, bool], ...] = ("silent", False), ("removed", True)
    for manner, deleted in manners:
        for one_by_one in (False, True):
            found = failed(listed, key, value, seed, one_by_one=one_by_one, deleted=deleted)
            [one] = drill(decoded(found.at_rest), keys=(f"{key}={value}",), manner=manner).today
            if not one.least <= found.pending - one.waiting <= one.most:
                order = "one by one" if one_by_one else "at once"
                said.append(f"{manner}, {order}: {found.pending}, not in {one.least} to {one.most}")
    return "; ".join(said)


def cluster(number: int) -> tuple[list[Json], str]:
    """A random cluster, and a zone of it."""
    rng = Random(f"drill/{number}")
    listed = list(random_cluster(rng, _SIZES[number % 3], pending=number % 5 == 0))
    zones = sorted({labels_of(o).get(ZONE, "") for o in listed if o["kind"] == "Node"} - {""})
    return listed, rng.choice(zones) if zones else ""


def main() -> int:
    """Prints what differs; 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    differing = 0
    for number in range(options.first, options.first + options.count):
        listed, zone = cluster(number)
        if zone and (found := differs(listed, ZONE, zone)):
            differing += 1
            print(f"cluster {number}, zone {zone}: {found}", flush=True)
    print(f"{options.count} clusters, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
