"""Would the evictions of a joint move, those already sent and those to come, still do what they are planned
for?

The planner's own question, on the same engine: every order in which the rest of it can happen, from the
cluster as it is watched now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.joint.every_order import (
    Begun,
    BrokenError,
    EveryOrder,
    Victim,
    excesses,
    lowest_priority,
    nodes_of_ending,
)
from rebalancer.planner.plan import Move, Plan, together
from rebalancer.runtime.last_look.cluster_now import ClusterNow
from rebalancer.spread.arrays import Rows


class _Start(Struct, frozen=True, eq=False):
    """A joint move before its first eviction: the excess of each constraint, and the uids of its owners'
    pods."""

    excesses: dict[Hashable, int]
    uids: frozenset[str]


class Jointly:
    """Answers for the joint moves of one plan."""

    def __init__(self, plan: Plan, cluster: ClusterNow) -> None:
        self._plan = plan
        self._cluster = cluster
        self._starts: dict[int, _Start] = {}

    def destinations(self, move: Move) -> Rows | Reason:
        """Where the replacement may land; or why the pod must not be evicted any more."""
        assert move.joint is not None
        members, simulation = together(self._plan, move), self._cluster.simulation
        place = next(i for i, m in enumerate(members) if m.pod.uid == move.pod.uid)
        sent, rest = members[:place], members[place:]
        # Those before it have been sent, whether the watch has brought that or not.
        gone = next((m.pod.key for m in rest if not self._runs(m)), None)
        if gone is not None:
            return _changed(f"{gone}, which was to go with {move.pod.key}, is gone, or runs no more")
        own = {uid for m in sent for uid in (m.pod.uid, m.pod.key)}
        ending = nodes_of_ending(simulation, own)
        if any(simulation.static(m.replacement)[ending].any() for m in members):
            return _changed(
                f"a pod is ending where {move.pod.key}'s replacement could land: it is not foreseen"
            )
        groups = self._groups(members)
        if not sent:
            self._starts[move.joint.number] = self._start(members, groups)
        start = self._starts.get(move.joint.number)
        if start is None or any(_key(g) not in start.excesses for g in groups):
            return _changed(f"the constraints that count {move.pod.key} have changed")
        landed = self._landed(sent, start)
        unplaced = [m for m in sent if m.pod.uid not in landed]
        victims = [*unplaced, *rest]
        begun = Begun(
            len(unplaced),
            tuple(uid for m in sent for uid in (m.pod.uid or m.pod.key,)),
            tuple(start.excesses[_key(g)] for g in groups),
        )
        every = EveryOrder(
            simulation,
            [
                Victim(m.pod, m.replacement, n if m.replacement.claims else _alike(members, m))
                for n, m in enumerate(victims)
            ],
            groups,
            self._strangers(members),
            lowest=lowest_priority(simulation),
            begun=begun,
        )
        try:
            ends = every.ends()
        except BrokenError as e:
            return _changed(f"with {' and '.join(m.pod.key for m in victims if m is not move)} it {e}")
        if ends.waiting > max(move.joint.waiting, len(unplaced)):
            return _changed(f"if it is broken off now, {ends.waiting} replacements wait for a node")
        return ends.nodes[len(unplaced)]

    def _runs(self, move: Move) -> bool:
        pod = self._cluster.pod(move.pod)
        return pod is not None and not pod.terminating

    def _groups(self, members: Sequence[Move]) -> list[Group]:
        found: dict[int, Group] = {}
        for m in members:
            groups = self._cluster.groups(m.pod.namespace)
            found.update((id(groups.all[i]), groups.all[i]) for i in groups.counted(m.pod.template))
        return list(found.values())

    def _start(self, members: Sequence[Move], groups: Sequence[Group]) -> _Start:
        now = excesses(self._cluster.simulation, groups)
        owners = _controllers(members)
        return _Start(
            {_key(g): e for g, e in zip(groups, now, strict=True)},
            frozenset(p.uid for p in self._cluster.pods if p.owner is not None and p.owner.uid in owners),
        )

    def _landed(self, sent: Sequence[Move], start: _Start) -> frozenset[str]:
        """The uids of victims whose replacements are on a node. Those of one owner are interchangeable."""
        owners = _controllers(sent)
        new = Counter(
            p.owner.uid
            for p in self._cluster.pods
            if p.owner is not None and p.owner.uid in owners and p.node_name and p.uid not in start.uids
        )
        found = set()
        for m in sent:
            owner = m.pod.owner.uid if m.pod.owner is not None else ""
            if new[owner] > 0:
                new[owner] -= 1
                found.add(m.pod.uid)
        return frozenset(found)

    def _strangers(self, members: Sequence[Move]) -> list[PodTemplate]:
        """Templates of other pods that wait for a node, each once."""
        owners = _controllers(members)
        waiting = (
            p for p in self._cluster.pods if p.waits and (p.owner is None or p.owner.uid not in owners)
        )
        return list({id(p.template): p.template for p in waiting}.values())


def _alike(members: Sequence[Move], move: Move) -> int:
    """Equal for replacements of one template, unless they mount volumes of their own."""
    if move.replacement.claims:
        return len(members) + [m.pod.uid for m in members].index(move.pod.uid)
    return next(i for i, m in enumerate(members) if m.replacement is move.replacement)


def _controllers(members: Sequence[Move]) -> frozenset[str]:
    return frozenset(m.pod.owner.uid for m in members if m.pod.owner is not None)


def _key(group: Group) -> Hashable:
    return group.constraint, np.asarray(group.eligible).tobytes()


def _changed(message: str) -> Reason:
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, f"since the plan, {message}")
