"""What a plan costs: up to 5,000 nodes with 150,000 pods, each size in a process of its own.

`python -m tests.perf.planner` prints each with what was planned; `python -m tests.perf planner` its targets.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from rebalancer.planner import PlanOptions, plan
from tests.perf import Figure
from tests.perf.clusters.cluster import Kind, synthetic

MEMORY = 300
"""MiB above the snapshot that a plan may take."""


class Size(NamedTuple):
    """A cluster and what is planned for it; `skewed`: the share of workloads that is violated; `target`: CPU
    seconds."""

    text: str
    nodes: int
    workloads: int
    skewed: float
    kind: Kind = "hard"
    replicas: int = 30
    target: float | None = None


SIZES = (
    Size("1,000 nodes, 30,000 pods, 1,000 workloads violated", 1000, 1000, 1.0),
    Size("5,000 nodes, 150,000 pods, 300 of 5,000 violated", 5000, 5000, 0.06, target=5),
    Size("5,000 nodes, 150,000 pods, 2,000 of 5,000 violated", 5000, 5000, 0.4, target=20),
    Size("5,000 nodes, 100,000 pods, 5,000 of 5,000 violated", 5000, 5000, 1.0, replicas=20, target=60),
    Size("1,000 nodes, 30,000 pods, 50 of 1,000 violated, soft", 1000, 1000, 0.05, "soft"),
    Size("1,000 nodes, 30,000 pods, 1,000 violated, the system's", 1000, 1000, 1.0, "system"),
    Size("5,000 nodes, 150,000 pods, 300 of 5,000, the system's", 5000, 5000, 0.06, "system"),
)
"""One workload in four has two keys."""


class Cost(msgspec.Struct, frozen=True):
    """What one plan took, and what it is. `seconds` of CPU; `memory`: MiB above the snapshot."""

    seconds: float
    memory: float
    evictions: int
    waves: int
    excess: int
    left: int
    optimal: bool


def run() -> Iterator[Figure]:
    """CPU seconds and memory of each size."""
    for number, size in enumerate(SIZES):
        found = cost(number)
        yield Figure(size.text, found.seconds, "CPU s", size.target, True)
        yield Figure("    above the snapshot", found.memory, "MiB", MEMORY if size.target else None, True)


def cost(number: int) -> Cost:
    """The cost of the size of this number, in a new process: the highest memory of one never falls."""
    command = [sys.executable, "-m", "tests.perf.planner", str(number)]
    return msgspec.json.decode(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout, type=Cost)


def _measured(s: Size) -> Cost:
    snapshot = synthetic(s.nodes, s.workloads, s.replicas, skewed=s.skewed, both_keys=0.25, kind=s.kind)
    before, began = _highest(), time.process_time()
    found = plan(snapshot, PlanOptions(soft="ignore" if s.kind == "hard" else "predicted"))
    return Cost(
        seconds=time.process_time() - began,
        memory=_highest() - before,
        evictions=len(found.moves),
        waves=len(found.waves),
        excess=found.excess,
        left=found.residual_excess,
        optimal=found.optimal,
    )


def _highest() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(wanted: list[str]) -> None:
    """Prints what each size takes; with a number, that size's cost as JSON."""
    if wanted:
        sys.stdout.buffer.write(msgspec.json.encode(_measured(SIZES[int(wanted[0])])))
        return
    for number, size in enumerate(SIZES):
        c = cost(number)
        print(
            f"{size.text}: {c.seconds:.1f} CPU s, {c.memory:.0f} MiB above the snapshot, "
            f"{c.evictions} evictions in {c.waves} waves, excess {c.excess} -> {c.left}, optimal {c.optimal}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
