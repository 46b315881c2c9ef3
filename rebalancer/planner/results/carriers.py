"""Who carries which constraint, and which constraints somebody wrote."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from rebalancer.model.alike import Alike
from rebalancer.model.pod import Pod
from rebalancer.planner.cluster.groups import Groups
from rebalancer.policy.owners import Owners


class Carriers(Struct, frozen=True, eq=False):
    """Per group (by its number): the workloads that carry it, as Kind/name; `written`: groups that stand in
    a pod's own spec, not only in the scheduler's defaults."""

    workloads: dict[int, tuple[str, ...]]
    written: frozenset[int]


def carriers(groups: Groups, owners: Owners, live: Iterable[Alike], waiting: Iterable[Pod]) -> Carriers:
    """The carriers of all groups among the live pods; waiting pods count for what is written."""
    found: dict[int, set[str]] = {}
    written: set[int] = set()
    for a in live:
        carried = groups.carried(a.template)
        if a.template.spread:
            written.update(carried)
        if carried:
            owner = owners.of(a.one)
            top = owners.top(owner) if owner is not None else None
            for g in carried:
                found.setdefault(g, set()).add(f"{top.kind}/{top.name}" if top else "Pod")
    for p in waiting:
        if p.template.spread:
            written.update(groups.carried(p.template))
    return Carriers({g: tuple(sorted(names)) for g, names in found.items()}, frozenset(written))
