"""What a failure would cost: for each workload the share of its pods in its fullest domain.

Over zones, where nodes have them, and over the keys of the workload's own constraints, nodes' names left out;
the key that tells most is shown. The best possible share is that of an even placement over the domains that
its pods may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.spread.nodes import NodeTable

_ZONE = "topology.kubernetes.io/zone"
_HOSTNAME = "kubernetes.io/hostname"
_NEVER_SPREAD = frozenset({"DaemonSet", "Node"})


class Risk(Struct, frozen=True, rename="camel"):
    """One workload. `lost`: share of its running pods that go with `domain`, the fullest; `planned`: the same
    after the plan; `best`: the smallest that any placement has. `spread`: whether it asks for spread over the
    key itself (a default constraint is not seen here)."""

    namespace: str
    workload: str
    topology_key: str
    pods: int
    domain: str
    lost: float
    planned: float
    best: float
    spread: bool


def risks(plan: Plan, snapshot: Snapshot) -> tuple[Risk, ...]:
    """Every workload with at least two running pods, the largest loss first."""
    table = NodeTable.of(snapshot)
    owners = Owners(snapshot, PolicyOptions())
    placed: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node_name in table.index and not pod.finished and not pod.terminating:
            placed.setdefault(_name(pod, owners), []).append(pod)
    moved: dict[str, list[tuple[str, str]]] = {}
    for m in plan.moves:
        moved.setdefault(_name(m.pod, owners), []).append((m.pod.node_name, m.predicted))
    found = [
        risk
        for name, pods in placed.items()
        if len(pods) > 1 and name and (risk := _of(name, pods, moved.get(name, []), table)) is not None
    ]
    return tuple(sorted(found, key=lambda r: (-r.lost, r.best - r.lost, r.namespace, r.workload)))


def _name(pod: Pod, owners: Owners) -> str:
    """namespace/Kind/name of what a person would call the workload; "" where spreading means nothing."""
    if pod.owner is None or pod.owner.kind in _NEVER_SPREAD:
        return ""
    owner = owners.of(pod)
    if owner is None:
        return f"{pod.namespace}/{pod.owner.kind}/{pod.owner.name}"
    top = owners.top(owner)
    return f"{top.namespace}/{top.kind}/{top.name}"


def _of(name: str, pods: list[Pod], moves: list[tuple[str, str]], table: NodeTable) -> Risk | None:
    template = pods[0].template
    now = Counter(p.node_name for p in pods)
    after = now.copy()
    for source, target in moves:
        after[source] -= 1
        after[target] += 1
    namespace, _, workload = name.partition("/")
    found = [r for key in _keys(template) if (r := _over(key, template, now, after, table)) is not None]
    if not found:
        return None
    key, domain, lost, planned, best = max(found, key=lambda r: (r[2] - r[4], r[2], r[0]))
    return Risk(
        namespace=namespace,
        workload=workload,
        topology_key=key,
        pods=len(pods),
        domain=domain,
        lost=round(lost, 4),
        planned=round(planned, 4),
        best=round(best, 4),
        spread=any(c.topology_key == key for c in template.spread),
    )


def _keys(template: PodTemplate) -> Iterator[str]:
    yield from dict.fromkeys(
        (_ZONE, *(c.topology_key for c in template.spread if c.topology_key != _HOSTNAME))
    )


def _over(
    key: str, template: PodTemplate, now: Mapping[str, int], after: Mapping[str, int], table: NodeTable
) -> tuple[str, str, float, float, float] | None:
    """(key, fullest domain, lost, planned, best); None where none of its nodes has the key."""
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
    usable = table.admitted(template) & ~table.untolerated(template.tolerations)
    size = max(int(domains.among(usable).sum()), 1)
    domain = min(there, key=lambda d: (-there[d], d))
    best = -(-pods // size) / pods
    worst_after = max(counts(after).values(), default=0) / pods
    return key, domain, there[domain] / pods, worst_after, min(best, there[domain] / pods)
