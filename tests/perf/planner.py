"""How long a plan takes: 1,000 nodes with 1,000 violated workloads; 5,000 nodes with 150,000 pods."""

from __future__ import annotations

import resource
import time
from typing import NamedTuple

from rebalancer.planner import PlanOptions, plan
from tests.perf.clusters.cluster import Kind, synthetic


class Size(NamedTuple):
    """A cluster and what is planned for it; `skewed`: the share of workloads that is violated."""

    text: str
    nodes: int
    workloads: int
    skewed: float
    kind: Kind = "hard"


SIZES = (
    Size("1,000 nodes, 30,000 pods, 1,000 workloads violated (one in four by two keys)", 1000, 1000, 1.0),
    Size("5,000 nodes, 150,000 pods, 5,000 workloads, 300 violated", 5000, 5000, 0.06),
    Size("1,000 nodes, 30,000 pods, 1,000 workloads, 50 violated, soft", 1000, 1000, 0.05, "soft"),
    Size("1,000 nodes, 30,000 pods, 1,000 workloads violated, the system's", 1000, 1000, 1.0, "system"),
    Size(
        "5,000 nodes, 150,000 pods, 5,000 workloads, 300 violated, the system's", 5000, 5000, 0.06, "system"
    ),
)


def main() -> None:
    """Prints seconds and evictions for each size."""
    for s in SIZES:
        snapshot = synthetic(s.nodes, s.workloads, 30, skewed=s.skewed, both_keys=0.25, kind=s.kind)
        began = time.perf_counter()
        found = plan(snapshot, PlanOptions(soft="ignore" if s.kind == "hard" else "predicted"))
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{s.text}: {seconds:.1f} s, {len(found.moves)} evictions in {len(found.waves)} waves, "
            f"bound {found.lower_bound}, excess {found.excess} -> {found.residual_excess}, "
            f"optimal {found.optimal}, peak {peak:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
