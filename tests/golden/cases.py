"""What is planned: scenarios, random clusters by seed, tangled clusters, the clusters of the benchmark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import PlanOptions
from tests.perf.clusters.cluster import synthetic
from tests.support.build import decoded
from tests.support.clusters.random_clusters import Size, random_cluster
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.scheduler.plain import Json

_TANGLED = Path(__file__).parent.parent / "scenarios" / "tangled"


@dataclass(frozen=True)
class Case:
    """A snapshot and how it is planned; `slow`: takes more than a second or two. `nightly`: takes so long
    that the test suite leaves it to the night, as others are like it."""

    name: str
    snapshot: Callable[[], Snapshot]
    options: PlanOptions = field(default_factory=PlanOptions)
    slow: bool = False

    @property
    def nightly(self) -> bool:
        return self.name in _NIGHTLY


_NIGHTLY = {
    *(f"random_{number:03}" for number in (11, 35, 43, 55, 59, 67)),
    *(f"tangled_{name}" for name in ("t01", "t03", "t11", "t12")),
    "perf_1000_nodes",
    "perf_5000_nodes",
}


def cases() -> list[Case]:
    """All cases, quick ones first."""
    found = [
        *(Case(name, partial(_scenario, name)) for name in SCENARIOS),
        *(_random(number) for number in range(1, 101)),
        *(
            Case(f"tangled_{path.name.split('.')[0]}", partial(_file, path), slow=True)
            for path in sorted(_TANGLED.glob("*.json.gz"))
        ),
        Case("perf_1000_nodes", partial(_perf, 1000, 1000, 1.0), slow=True),
        Case("perf_5000_nodes", partial(_perf, 5000, 5000, 0.06), slow=True),
    ]
    return sorted(found, key=lambda c: c.slow)


def _random(number: int) -> Case:
    """Sizes and options in turn; every fifth cluster has Pending pods."""
    sizes: tuple[Size, ...] = ("small", "tiny", "small", "full")
    size = sizes[number % 4]
    options = (
        PlanOptions(),
        PlanOptions(soft="predicted", certainty="likely"),
        PlanOptions(certainty="likely"),
    )[number % 3]
    slow = size == "full" and number % 8 != 3
    return Case(f"random_{number:03}", partial(_seeded, number, size), options, slow)


def _scenario(name: str) -> Snapshot:
    return decoded(scenario(name))


def _seeded(seed: int, size: Size) -> Snapshot:
    return decoded(random_cluster(Random(10_000 + seed), size, pending=seed % 5 == 0))


def _file(path: Path) -> Snapshot:
    items: list[Json] = json.loads(gzip.decompress(path.read_bytes()))["items"]
    return decoded(items)


def _perf(nodes: int, workloads: int, skewed: float) -> Snapshot:
    return synthetic(nodes, workloads, 30, skewed=skewed, both_keys=0.25)
