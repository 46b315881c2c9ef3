"""Random clusters of a few pods whose constraints are tangled: by shared selectors, several keys, little
room."""

from __future__ import annotations

from random import Random

from tests.support.build import node, objects, workload
from tests.support.scheduler.plain import Json

_KEYS = (("zone", 85, (1, 1, 1, 2)), ("hostname", 35, (1, 1, 2, 3)), ("rack", 35, (1, 1, 2, 3)))
"""Key, how often a workload has it (percent), maxSkew."""


def tangled(seed: int) -> list[Json]:
    """The API objects of the cluster of this seed."""
    rng = Random(f"tangled/{seed}")
    machines = [f"{z}-{i}" for z in "abcd"[: rng.randint(2, 4)] for i in range(rng.choice((1, 1, 2)))]
    nodes = [
        node(m).zone(m[0]).label("rack", f"{m[0]}{rng.randint(0, 1)}").cpu(rng.choice((1, 2, 2)))
        for m in machines
    ]
    owners = []
    for name in [f"w{i}" for i in range(rng.randint(2, 3))]:
        labels = {"app": name} | ({"tier": "shared"} if rng.random() < 0.5 else {})
        selector = {"tier": "shared"} if rng.random() < 0.25 else {"app": name}
        made = workload(name).labels(**labels).requests(cpu=rng.choice(("50m", "100m", "200m", "500m")))
        for key, percent, skews in _KEYS:
            if rng.random() * 100 < percent:
                made = made.spread(key, rng.choice(skews), selector=selector)
        leaning = [rng.choice(machines) for _ in range(rng.randint(1, 3))]
        on = [rng.choice(leaning) for _ in range(rng.randint(2, 4))]
        owners.append(made.placed({m: on.count(m) for m in dict.fromkeys(on)}))
    return objects(*nodes, *owners)
