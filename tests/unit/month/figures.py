"""What a month comes to on a cluster in balance: the figures of docs/prevention.md.

python -m tests.unit.month.figures --workloads 25 --seed 101
"""

from __future__ import annotations

import argparse

from rebalancer.planner import PlanOptions
from rebalancer.report.simulated import month_table
from rebalancer.runtime.commands.reports import month
from tests.support.build import decoded
from tests.support.clusters.ordinary import ordinary


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", type=int, default=25)
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--days", type=int, default=30)
    given = parser.parse_args()
    cluster = decoded(ordinary(given.workloads, given.seed))
    print(month_table(month(cluster, PlanOptions(), days=given.days, seed=given.seed)), end="")


if __name__ == "__main__":
    main()
