"""What goes with each zone if it fails, now and after the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from rebalancer.model.node import HOSTNAME, OF_ITS_NODE, ZONE
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot, among
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.spread.arrays import natural
from rebalancer.spread.nodes import NodeTable

# Where the running pods of each workload are, now and after the plan.


class WorkloadPods(Struct, frozen=True, eq=False):
    """The pods that a node of the snapshot runs, of one workload. `name`: Kind/name; `now`, `after`: how many
    on each node."""

    namespace: str
    name: str
    pods: tuple[Pod, ...]
    now: Counter[str]
    after: Counter[str]


def workload_pods(plan: Plan, snapshot: Snapshot) -> tuple[WorkloadPods, ...]:
    """Every workload that spreading means something for, by namespace and name.

    Pods without an owner belong to none; those of DaemonSets and static ones have their places.
    """
    owners = Owners(snapshot, PolicyOptions())
    nodes = {n.name for n in snapshot.nodes}
    running: dict[tuple[str, str], list[Pod]] = {}
    for group in among(snapshot.live, nodes):
        if name := _name(group.one, owners):
            running.setdefault((group.template.namespace, name), []).extend(group.pods)
    moved: dict[tuple[str, str], Counter[str]] = {}
    for m in plan.moves:
        change = moved.setdefault((m.pod.namespace, _name(m.pod, owners)), Counter())
        change[m.pod.node_name] -= 1
        change[m.predicted] += 1
    found = []
    for (namespace, name), pods in sorted(running.items()):
        now = Counter(p.node_name for p in pods)
        after = now.copy()
        after.update(moved.get((namespace, name), ()))
        found.append(WorkloadPods(namespace, name, tuple(pods), now, after))
    return tuple(found)


def _name(pod: Pod, owners: Owners) -> str:
    """Kind/name of what a person would call the workload; "" where spreading means nothing."""
    if pod.owner is None or pod.owner.kind in OF_ITS_NODE:
        return ""
    owner = owners.of(pod)
    if owner is None:
        return f"{pod.owner.kind}/{pod.owner.name}"
    top = owners.top(owner)
    return f"{top.kind}/{top.name}"


# What a failure would cost: for each workload the share of its pods that are in its fullest domain.
#
# Domains are zones, if nodes have them, and those of the keys of the workload's own constraints, except
# hostnames. The key with the largest avoidable loss is shown. The best possible share is that of an even
# placement over the domains that its pods may use.


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
    yield from dict.fromkeys((ZONE, *(c.topology_key for c in template.spread if c.topology_key != HOSTNAME)))


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
        for z in sorted(zones.names, key=natural)
    )


def _by_zone(per_node: Mapping[str, int], of_node: Mapping[str, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node, n in per_node.items():
        if n and node in of_node:
            found[of_node[node]] += n
    return found


# A grade for each namespace: how much more its workloads would lose with a failing domain than they must.

_GRADES = ((0.05, "A"), (0.15, "B"), (0.30, "C"), (0.50, "D"))
"""Of the share of its pods that the worst workload loses beyond what is unavoidable, at most; F above."""


class NamespaceGrade(Struct, frozen=True, rename="camel"):
    """`grade` is A to F: of what the workload that is worst off (`worst`, "" if none is) loses beyond what is
    unavoidable, at most B where a constraint is violated. `planned_…`: the same after the plan."""

    namespace: str
    grade: str
    planned_grade: str
    workloads: int
    violated: int
    planned_violated: int
    worst: str
    avoidable: float
    planned_avoidable: float


def grades(risks: Sequence[Risk], constraints: Iterable[ConstraintResult]) -> tuple[NamespaceGrade, ...]:
    """Of every namespace with a workload of two or more pods or a constraint in scope; the worst first."""
    workloads: dict[str, list[Risk]] = {}
    for r in risks:
        workloads.setdefault(r.namespace, []).append(r)
    violated: dict[str, list[ConstraintResult]] = {}
    for c in constraints:
        if c.in_scope:
            workloads.setdefault(c.constraint.namespace, [])
            violated.setdefault(c.constraint.namespace, []).append(c)
    found = [_grade_of(n, here, violated.get(n, ())) for n, here in workloads.items()]
    return tuple(sorted(found, key=lambda g: (-ord(g.grade), -g.avoidable, -g.violated, g.namespace)))


def _grade_of(
    namespace: str, risks: Sequence[Risk], constraints: Sequence[ConstraintResult]
) -> NamespaceGrade:
    worst = max(risks, key=lambda r: (r.lost - r.best, r.workload), default=None)
    now = max((r.lost - r.best for r in risks), default=0.0)
    planned = max((r.planned - r.best for r in risks), default=0.0)
    broken = sum(1 for c in constraints if c.excess)
    left = sum(1 for c in constraints if c.residual_excess)
    return NamespaceGrade(
        namespace=namespace,
        grade=_grade(now, broken),
        planned_grade=_grade(planned, left),
        workloads=len(risks),
        violated=broken,
        planned_violated=left,
        worst=worst.workload if worst is not None and now > 0 else "",
        avoidable=round(now, 4),
        planned_avoidable=round(planned, 4),
    )


def _grade(avoidable: float, violated: int) -> str:
    found = next((g for most, g in _GRADES if avoidable <= most), "F")
    return max(found, "B") if violated else found
