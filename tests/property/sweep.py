"""Runs the planner over many random clusters and lists what the judge holds against it.

    python -m tests.property.sweep --count 2000 --seed 1 --size full
    python -m tests.property.sweep --engine --count 2000     the engine's invariants instead (engine_fuzz.py)

Each failing cluster is written to a file that `kubectl`-style readers take (a List), named by its seed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from random import Random
from tempfile import gettempdir

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import Plan, plan
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import Limit, PolicyOptions
from tests.property.engine import fuzz as engine_fuzz
from tests.support.clusters.random_clusters import Size, random_cluster
from tests.support.judge.verdict import Verdict, judge_plan

SIDE_BY_SIDE = PlanOptions(policy=PolicyOptions(in_flight_per_owner=Limit(percent=100)))
"""As many moves of one owner in a wave as hold in every interleaving."""

Job = tuple[int, Size, int, bool, int]


def one(job: Job) -> tuple[Job, Verdict]:
    """Judges the cluster of one seed; planning that outlasts the limit is given up."""
    seed, size, keys, compare, limit = job
    cluster = random_cluster(Random(seed), size, pending=waits(seed), keys=keys)

    def limited(snapshot: Snapshot) -> Plan:
        signal.alarm(limit)
        try:
            return plan(snapshot, SIDE_BY_SIDE)
        finally:
            signal.alarm(0)

    signal.signal(signal.SIGALRM, _give_up)
    return job, judge_plan(cluster, limited, compare=compare, cycles=compare)


def _give_up(_signal: int, _frame: object) -> None:
    raise TimeoutError("planning was given up")


def waits(seed: int) -> bool:
    """Every tenth cluster has Pending pods."""
    return seed % 10 == 0


def main() -> int:
    """Prints failures as they come, then figures; exit code 1 if there were failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="small")
    parser.add_argument("--keys", type=int, default=0, help="topology keys in use; 0: as it comes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=int, default=20, help="seconds that planning may take")
    parser.add_argument("--quick", action="store_true", help="no comparison with bound and search")
    parser.add_argument(
        "--dump", type=Path, default=Path(gettempdir()) / "sweep", help="folder for failing clusters"
    )
    parser.add_argument("--engine", action="store_true", help="check the engine's invariants instead")
    options = parser.parse_args()
    if options.engine:
        return engine(range(options.seed, options.seed + options.count), options.jobs)
    jobs: list[Job] = [
        (seed, options.size, options.keys, not options.quick, options.limit)
        for seed in range(options.seed, options.seed + options.count)
    ]
    began = time.perf_counter()
    figures = Figures()
    with Pool(options.jobs) as pool:
        for job, verdict in pool.imap_unordered(one, jobs):
            figures.add(verdict)
            report(job, verdict, options.dump)
    figures.show(time.perf_counter() - began)
    return 1 if figures.failed else 0


def engine(seeds: range, jobs: int) -> int:
    """The engine's invariants on the cluster of each seed."""
    began, broken = time.perf_counter(), 0
    with Pool(jobs) as pool:
        for seed, found in zip(seeds, pool.imap(engine_fuzz.check, seeds, chunksize=20), strict=True):
            broken += bool(found)
            for invariant, text in found:
                print(f"{invariant:20} seed {seed}: {text}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s, {len(seeds)} clusters, {broken} break an invariant")
    return 1 if broken else 0


def report(job: Job, verdict: Verdict, folder: Path) -> None:
    """One line per finding, and the cluster to a file."""
    if not verdict.findings:
        return
    seed, size, keys, *_ = job
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{size}-{keys}-{seed}.json"
    items = random_cluster(Random(seed), size, pending=waits(seed), keys=keys)
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for category, text in verdict.findings:
        print(f"{category:20} {size} seed {seed}: {text}  [{path}]", flush=True)


class Figures:
    """Sums over all clusters."""

    def __init__(self) -> None:
        self.count = Counter[str]()
        self.categories = Counter[str]()
        self.notes = Counter[str]()
        self.slowest = 0.0
        self.widest = 0
        self.failed = 0

    def add(self, verdict: Verdict) -> None:
        """Adds one cluster."""
        c, plan_ = self.count, verdict.plan
        c["clusters"] += 1
        c["violated"] += verdict.excess > 0
        self.failed += bool(verdict.findings)
        self.categories.update({category for category, _ in verdict.findings})
        self.notes.update({category for category, _ in verdict.notes})
        self.slowest = max(self.slowest, verdict.seconds)
        if plan_ is None:
            return
        c["with moves"] += bool(plan_.moves)
        c["moves"] += len(plan_.moves)
        c["called optimal"] += plan_.optimal
        value = (plan_.residual_excess, len(plan_.moves))
        if verdict.best is not None:
            c["searched"] += 1
            c["as good as the search"] += value == verdict.best.value
        if verdict.bound is not None and verdict.bound.proved:
            goal = verdict.bound
            c["bounded"] += 1
            c["excess of the bound"] += value[0] == goal.excess
            if value[0] == goal.excess:
                c["evictions at most bound + 1"] += value[1] <= goal.evictions + 1
                c["evictions of the bound"] += value[1] == goal.evictions
                self.widest = max(self.widest, value[1] - goal.evictions)

    def show(self, seconds: float) -> None:
        """Prints them."""
        print(f"\n{seconds:.0f} s, slowest plan {self.slowest:.2f} s, most above the bound {self.widest}")
        for name, figure in self.count.items():
            print(f"  {name:30} {figure}")
        for title, found in (("failures", self.categories), ("notes", self.notes)):
            print(f"{title}: {dict(found.most_common()) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
