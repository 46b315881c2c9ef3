"""`python -m tests.outages --seed 0 --count 3`: every history so many times, as a table.

With --real on $KUBECONFIG's cluster, where somebody plays the kubelets of nodes that are made (KWOK).
"""

from __future__ import annotations

import argparse
import os
import sys
from time import process_time

from tests.outages.histories import HISTORIES
from tests.outages.real import EMBEDDED_ONLY
from tests.outages.world import Figures, World

_HEAD = (
    *("history", "zones, nodes, workloads, pods", "mended after", "of it evicting", "evictions", "useless"),
    *("Pending by it", "below a budget", "Pending pod-minutes"),
)


def row(name: str, world: World, f: Figures) -> tuple[str, ...]:
    """One line of the table."""
    mended = "never" if f.mended is None else f"{f.mended / 60:.0f} min"
    sizes = f"{len(world.zones)}, {f.nodes}, {f.workloads}, {f.pods}"
    numbers = (f.evictions, f.useless, f.pending, f.below, round(f.waiting / 60))
    return (name, sizes, mended, f"{f.repair:.0f} s", *map(str, numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--only", default="", help="part of a history's name")
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--workloads", type=int, default=10)
    parser.add_argument("--real", action="store_true", help="on the cluster of $KUBECONFIG")
    parser.add_argument("--pace", type=float, default=10.0, help="with --real: all waits are so much shorter")
    given = parser.parse_args()
    where = {"real": os.environ["KUBECONFIG"], "pace": given.pace} if given.real else {}
    print("| " + " | ".join(_HEAD) + " |\n" + "|---" * len(_HEAD) + "|", flush=True)
    bad = 0
    for seed in range(given.seed, given.seed + given.count):
        for name, history in HISTORIES.items():
            if given.only not in name:
                continue
            if given.real and name in EMBEDDED_ONLY:
                print(f"{name}: skipped, {EMBEDDED_ONLY[name]}", file=sys.stderr, flush=True)
                continue
            start = process_time()
            world = World(seed, most_nodes=given.nodes, most_workloads=given.workloads, **where)
            history(world)
            found = world.play()
            print("| " + " | ".join(row(name, world, found)) + " |", flush=True)
            took = f"{name}: seed {seed}, {process_time() - start:.1f} s of CPU"
            print(took, *found.untrue, file=sys.stderr, flush=True)
            bad += found.bad
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
