"""Random small clusters in which pods lack room or zones, with the same in plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rebalancer.model.snapshot import Snapshot
from tests.support.build import node, snapshot, workload
from tests.support.judge.room import Place, Rule, Work

_SHAPES = (200, 400, 700)


@dataclass(frozen=True, slots=True)
class Cramped:
    """A cluster; its nodes and workloads, called w0, w1, …; `used`: cpu of each workload by node."""

    snapshot: Snapshot
    places: tuple[Place, ...]
    works: tuple[Work, ...]
    used: tuple[dict[str, int], ...]

    def for_those(self, names: set[str]) -> tuple[list[Place], list[Work]]:
        """The nodes as these workloads find them, whose pods alone move, and these workloads."""
        stay = [u for i, u in enumerate(self.used) if f"w{i}" not in names]
        places = [Place(p.name, p.zone, p.cpu - sum(u.get(p.name, 0) for u in stay)) for p in self.places]
        return places, [w for i, w in enumerate(self.works) if f"w{i}" in names]

    @property
    def kinds(self) -> list[Place]:
        """What could be added: each size in each zone, and in new zones where some are missing."""
        zones = sorted({p.zone for p in self.places})
        most = max((r.min_domains for w in self.works for r in w.rules), default=1)
        zones += [f"new {i}" for i in range(most - len(zones))]
        return [Place("", zone, cpu) for zone in zones for cpu in sorted({p.cpu for p in self.places})]


def cramped(seed: int) -> Cramped:
    """The cluster of this seed."""
    rng = Random(f"cramped/{seed}")
    zones = "ab" if rng.random() < 0.5 else "abc"
    places = [Place(f"n{i}", zones[i % len(zones)], rng.choice(_SHAPES)) for i in range(rng.randint(2, 4))]
    free = {p.name: p.cpu for p in places}
    works, built, used = [], [], []
    for i in range(rng.randint(1, 2)):
        cpu = rng.choice((100, 150, 300))
        rules = [Rule(True, rng.choice((1, 1, 2)), rng.choice((1, 1, 3)))]
        if rng.random() < 0.3:
            rules.append(Rule(False, rng.choice((1, 2))))
        counts = dict[str, int]()
        for _ in range(rng.randint(2, 5)):
            fits = [n for n, left in free.items() if left >= cpu]
            if not fits:
                break
            # Those that are there stay together.
            close = [n for n in fits if n in counts] if rng.random() < 0.7 else []
            name = rng.choice(close or fits)
            counts[name] = counts.get(name, 0) + 1
            free[name] -= cpu
        made = workload(f"w{i}").requests(cpu=f"{cpu}m").placed(counts)
        for rule in rules:
            made.spread("zone" if rule.by_zone else "hostname", rule.max_skew, min_domains=rule.min_domains)
        works.append(Work(sum(counts.values()), cpu, tuple(rules)))
        built.append(made)
        used.append({name: cpu * n for name, n in counts.items()})
    machines = [node(p.name).zone(p.zone).cpu(f"{p.cpu}m") for p in places]
    return Cramped(snapshot(machines, *built), tuple(places), tuple(works), tuple(used))
