"""Where the running pods of each workload are, now and after the plan."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from rebalancer.model.alike import among
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners

_NEVER_SPREAD = frozenset({"DaemonSet", "Node"})


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
    if pod.owner is None or pod.owner.kind in _NEVER_SPREAD:
        return ""
    owner = owners.of(pod)
    if owner is None:
        return f"{pod.owner.kind}/{pod.owner.name}"
    top = owners.top(owner)
    return f"{top.kind}/{top.name}"
