"""A cluster as it is after a good day: workloads in balance over three zones, of a size that is asked for."""

from __future__ import annotations

from random import Random

from tests.support.build import node, objects, workload
from tests.support.scheduler.plain import Json

ZONES = "abc"


def ordinary(workloads: int, seed: int = 0) -> list[Json]:
    """The objects. A third of the workloads is spread over nodes, too; pods fill the nodes to some 60 %."""
    rng = Random(f"ordinary/{seed}")
    replicas = [rng.choice((2, 3, 3, 4, 6, 6, 9, 12)) for _ in range(workloads)]
    cpu = [rng.choice((100, 250, 500)) for _ in range(workloads)]
    per_zone = max(3, sum(r * c for r, c in zip(replicas, cpu, strict=True)) // 14_000 + 1)
    names = [f"{zone}-{i}" for i in range(per_zone) for zone in ZONES]
    free = dict.fromkeys(names, 8000)
    made = []
    for i in range(workloads):
        own = workload(f"w{i:03d}").requests(cpu=f"{cpu[i]}m").spread("zone", 1)
        if rng.random() < 1 / 3:
            own.spread("hostname", 1)
        counts: dict[str, int] = {}
        for pod in range(replicas[i]):
            zone = ZONES[(pod + i) % len(ZONES)]
            here = [n for n in names if n.startswith(zone)]
            best = min(here, key=lambda n: (counts.get(n, 0), -free[n]))
            counts[best] = counts.get(best, 0) + 1
            free[best] -= cpu[i]
        made.append(own.placed(counts))
    machines = [node(n).zone(n[0]).cpu(8).room(memory="64Gi") for n in names]
    return objects(machines, *made)
