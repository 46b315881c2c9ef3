"""How long carrying out a plan may take, wave by wave, and what takes longest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners

UNKNOWN = 30.0
"""Seconds until a pod is Ready, where no pod of the workload tells."""
_LONGEST = 900.0
"""A pod that became Ready later was ill, or lost its readiness in between."""


class WavePace(Struct, frozen=True):
    """How long one wave lasts, in seconds: until its last replacement is Ready."""

    evictions: int
    seconds: int


class Pace(Struct, frozen=True):
    """How long each wave may last; `seconds`: all of them. `longest`: what takes longest, "" if nothing
    does."""

    waves: tuple[WavePace, ...]
    longest: str

    @property
    def seconds(self) -> int:
        """The whole plan, wave by wave."""
        return sum(w.seconds for w in self.waves)


def pace(plan: Plan, snapshot: Snapshot) -> Pace:
    """How long the plan may take, if pods become Ready as those of their owners did before."""
    took = _usual(plan, snapshot)
    waves = []
    for moves in plan.waves:
        longest = 0.0
        for m in moves:
            # A StatefulSet's pod starts only when the evicted one is gone.
            ending = m.pod.grace_seconds if m.owner.kind == "StatefulSet" else 0
            longest = max(longest, took.get(m.owner.key, UNKNOWN) + ending)
        waves.append(WavePace(len(moves), round(longest)))
    slow = max(plan.demands, key=lambda d: d.waves * took.get(d.owner, UNKNOWN), default=None)
    return Pace(tuple(waves), slow.reason if slow is not None else "")


def _usual(plan: Plan, snapshot: Snapshot) -> dict[str, float]:
    """By owner, the median over pods that did not become Ready anew long after they were made."""
    owners, moved = Owners(snapshot, PolicyOptions()), {m.owner.key for m in plan.moves}
    pods: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods if moved else ():
        owner = owners.of(pod)
        if owner is not None and (key := owners.top(owner).key) in moved:
            pods[key].append(pod)
    return {key: median(good) for key, own in pods.items() if (good := list(_readiness(own)))}


def _readiness(pods: Iterable[Pod]) -> Iterator[float]:
    for p in pods:
        if p.ready and not p.terminating and p.ready_since is not None and p.created is not None:
            seconds = p.ready_since - p.created
            if 0 < seconds <= _LONGEST:
                yield seconds
