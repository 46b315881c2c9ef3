"""What goes with each zone if it fails, now and after the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from rebalancer.model.snapshot import Snapshot
from rebalancer.report.failing_domains.risk import ZONE, best_loss
from rebalancer.report.failing_domains.workload_pods import WorkloadPods
from rebalancer.spread.nodes import NodeTable


class DomainLoss(Struct, frozen=True, rename="camel"):
    """One zone. `pods`: of the report's workloads; `whole`: how many workloads of at least two pods it takes
    with it altogether; `beyond`: how many lose more than an even placement would. `worst` is the one that
    loses most beyond that, with the share it loses, "" if none does. `planned_…`: the same after the plan."""

    topology_key: str
    domain: str
    nodes: int
    pods: int
    planned_pods: int
    whole: int
    planned_whole: int
    beyond: int
    planned_beyond: int
    worst: str
    lost: float
    planned_lost: float


class _Tally:
    """One zone at one moment."""

    def __init__(self) -> None:
        self.pods = self.whole = self.beyond = 0

    def add(self, here: int, every: int, best: float) -> None:
        self.pods += here
        if every > 1 and here:
            self.whole += here == every
            self.beyond += here / every > best


def domain_losses(workloads: Iterable[WorkloadPods], snapshot: Snapshot) -> tuple[DomainLoss, ...]:
    """Every zone in natural order; nothing where no node has one."""
    table = NodeTable.of(snapshot)
    zones = table.domains(ZONE)
    of_node = {n.name: n.labels[ZONE] for n in snapshot.nodes if ZONE in n.labels}
    now = {z: _Tally() for z in zones.names}
    after = {z: _Tally() for z in zones.names}
    worst: dict[str, tuple[float, str, float, float]] = {}
    for w in workloads:
        every = len(w.pods)
        best = best_loss(ZONE, w.pods[0].template, every, table)
        before, then = _by_zone(w.now, of_node), _by_zone(w.after, of_node)
        for zone in before.keys() | then.keys():
            now[zone].add(before[zone], every, best)
            after[zone].add(then[zone], every, best)
            lost = before[zone] / every
            found = (lost - best, f"{w.namespace}/{w.name}", lost, then[zone] / every)
            if every > 1 and lost > best and (zone not in worst or found[0] > worst[zone][0]):
                worst[zone] = found
    nodes = Counter(of_node.values())
    return tuple(
        DomainLoss(
            topology_key=ZONE,
            domain=z,
            nodes=nodes[z],
            pods=now[z].pods,
            planned_pods=after[z].pods,
            whole=now[z].whole,
            planned_whole=after[z].whole,
            beyond=now[z].beyond,
            planned_beyond=after[z].beyond,
            worst=worst[z][1] if z in worst else "",
            lost=round(worst[z][2], 4) if z in worst else 0.0,
            planned_lost=round(worst[z][3], 4) if z in worst else 0.0,
        )
        for z in zones.names
    )


def _by_zone(per_node: Mapping[str, int], of_node: Mapping[str, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node, n in per_node.items():
        if n and node in of_node:
            found[of_node[node]] += n
    return found
