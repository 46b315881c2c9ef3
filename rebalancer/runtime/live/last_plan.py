"""Plans are remembered from cycle to cycle, for as long as nothing changes that they rest on."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from rebalancer.findings import plan_with_findings
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.policy.next_change import next_change
from rebalancer.runtime.live.freed_memory import give_back

_NOT_PLANNED_FROM = frozenset({"now", "reads", "warnings"})
_RESTS_ON = tuple(f for f in Snapshot.__struct_fields__ if f not in _NOT_PLANNED_FROM)
_MOST = 2
"""A cycle makes a second plan if the first touches violations that are too young."""


class _Made(Struct, frozen=True, eq=False):
    snapshot: Snapshot
    options: PlanOptions
    plan: Plan
    until: float


class LastPlan:
    """Plans as `make` does, unless it planned the same cluster under the same options just before.

    That is the common case of a daemon on a quiet cluster, and planning is what its cycle costs. Two
    snapshots are the same cluster if their fields are the same objects, as the watch cache hands them out.
    """

    def __init__(self, make: Callable[[Snapshot, PlanOptions], Plan] = plan_with_findings) -> None:
        self._make = make
        self._made: list[_Made] = []

    def __call__(self, snapshot: Snapshot, options: PlanOptions) -> Plan:
        """The plan."""
        self._made = [m for m in self._made if snapshot.now < m.until and _same(m.snapshot, snapshot)]
        for made in self._made:
            if made.options == options:
                return made.plan
        plan = self._make(snapshot, options)
        give_back()
        until = next_change(snapshot, options.policy)
        self._made = [*self._made, _Made(snapshot, options, plan, until)][-_MOST:]
        return plan


def _same(one: Snapshot, other: Snapshot) -> bool:
    return all(getattr(one, f) is getattr(other, f) for f in _RESTS_ON)
