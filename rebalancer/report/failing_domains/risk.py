"""What a failure would cost: for each workload the share of its pods that are in its fullest domain.

Domains are zones, if nodes have them, and those of the keys of the workload's own constraints, except
hostnames. The key with the largest avoidable loss is shown. The best possible share is that of an even
placement over the domains that its pods may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from rebalancer.model.pod import PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.report.failing_domains.workload_pods import WorkloadPods
from rebalancer.spread.nodes import NodeTable

ZONE = "topology.kubernetes.io/zone"
_HOSTNAME = "kubernetes.io/hostname"


class Risk(Struct, frozen=True, rename="camel"):
    """One workload.

    `lost`: the share of its running pods in its fullest domain, `domain`. `planned`: the same after the plan.
    `best`: the smallest share that a placement can have. `spread`: whether its pods carry a constraint with
    this key (default constraints of the scheduler are not looked at here).
    """

    namespace: str
    workload: str
    topology_key: str
    pods: int
    domain: str
    lost: float
    planned: float
    best: float
    spread: bool


def risks(workloads: Iterable[WorkloadPods], snapshot: Snapshot) -> tuple[Risk, ...]:
    """Every workload with at least two running pods, the largest loss first."""
    table = NodeTable.of(snapshot)
    found = [risk for w in workloads if len(w.pods) > 1 and (risk := _of(w, table)) is not None]
    return tuple(sorted(found, key=lambda r: (-r.lost, r.best - r.lost, r.namespace, r.workload)))


def _of(w: WorkloadPods, table: NodeTable) -> Risk | None:
    template = w.pods[0].template
    found = [r for key in _keys(template) if (r := _over(key, template, w.now, w.after, table)) is not None]
    if not found:
        return None
    key, domain, lost, planned, best = max(found, key=lambda r: (r[2] - r[4], r[2], r[0]))
    return Risk(
        namespace=w.namespace,
        workload=w.name,
        topology_key=key,
        pods=len(w.pods),
        domain=domain,
        lost=round(lost, 4),
        planned=round(planned, 4),
        best=round(best, 4),
        spread=any(c.topology_key == key for c in template.spread),
    )


def _keys(template: PodTemplate) -> Iterator[str]:
    yield from dict.fromkeys(
        (ZONE, *(c.topology_key for c in template.spread if c.topology_key != _HOSTNAME))
    )


def _over(
    key: str, template: PodTemplate, now: Mapping[str, int], after: Mapping[str, int], table: NodeTable
) -> tuple[str, str, float, float, float] | None:
    """(key, fullest domain, lost, planned, best); None if none of its nodes has the key."""
    domains = table.domains(key)

    def counts(per_node: Mapping[str, int]) -> Counter[str]:
        made: Counter[str] = Counter()
        for node, n in per_node.items():
            place = int(domains.ids[table.index[node]]) if node in table.index else -1
            if n and place >= 0:
                made[domains.names[place]] += n
        return made

    there = counts(now)
    if not there:
        return None
    pods = sum(now.values())
    domain = min(there, key=lambda d: (-there[d], d))
    best = best_loss(key, template, pods, table)
    worst_after = max(counts(after).values(), default=0) / pods
    return key, domain, there[domain] / pods, worst_after, min(best, there[domain] / pods)


def best_loss(key: str, template: PodTemplate, pods: int, table: NodeTable) -> float:
    """The share of so many pods that goes with the fullest domain where they are placed evenly."""
    usable = table.admitted(template) & ~table.untolerated(template.tolerations)
    size = max(int(table.domains(key).among(usable).sum()), 1)
    return -(-pods // size) / pods
