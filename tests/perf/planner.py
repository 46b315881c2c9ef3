"""How long a plan takes: 1,000 nodes with 1,000 violated workloads; 5,000 nodes with 150,000 pods."""

from __future__ import annotations

import resource
import time

from rebalancer.planner import plan
from tests.perf.cluster import synthetic

SIZES = (
    (
        "1,000 nodes, 30,000 pods, 1,000 workloads violated (one in four by two keys)",
        1000,
        1000,
        30,
        1.0,
        0.25,
    ),
    ("5,000 nodes, 150,000 pods, 5,000 workloads, 300 violated", 5000, 5000, 30, 0.06, 0.25),
)


def main() -> None:
    """Prints seconds and evictions for each size."""
    for text, nodes, workloads, replicas, skewed, both_keys in SIZES:
        snapshot = synthetic(nodes, workloads, replicas, skewed=skewed, both_keys=both_keys)
        began = time.perf_counter()
        found = plan(snapshot)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{text}: {seconds:.1f} s, {len(found.moves)} evictions in {len(found.waves)} waves, "
            f"bound {found.lower_bound}, excess {found.excess} -> {found.residual_excess}, "
            f"optimal {found.optimal}, peak {peak:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
