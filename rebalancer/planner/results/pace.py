"""How long carrying out a plan may take, and what takes longest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from statistics import mean, median

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.planner.results.chains import Chain, chains
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
    """How long each wave may last by itself; `seconds`: how long the whole plan may, in which waves overlap.
    `longest`: what takes longest, "" if nothing does."""

    waves: tuple[WavePace, ...]
    seconds: int
    longest: str


def pace(plan: Plan, snapshot: Snapshot) -> Pace:
    """How long the plan may take, if pods become Ready as those of their owners did before.

    A wave is no barrier: each chain of moves goes on by itself. So the plan takes as long as its longest
    chain, or as all its moves do if as many are in flight as may be at most.
    """
    took = _usual(plan, snapshot)

    def alone(move: Move) -> float:
        # A StatefulSet's pod starts only when the evicted one is gone.
        ending = move.pod.grace_seconds if move.owner.kind == "StatefulSet" else 0
        return took.get(move.owner.key, UNKNOWN) + ending

    waves = tuple(WavePace(len(moves), round(max(map(alone, moves)))) for moves in plan.waves)
    longest = max((_one_by_one(chain, alone) for chain in chains(plan, plan.moves)), default=0.0)
    crowds = max((d.waves for d in plan.demands if not d.owner), default=0)
    crowded = crowds * mean(map(alone, plan.moves)) if crowds else 0.0
    slow = max(plan.demands, key=lambda d: d.waves * took.get(d.owner, UNKNOWN), default=None)
    return Pace(waves, round(max(longest, crowded)), slow.reason if slow is not None else "")


def _one_by_one(chain: Chain, alone: Callable[[Move], float]) -> float:
    """How long the waves of one chain last after each other."""
    return sum(max(map(alone, moves)) for _, moves in groupby(chain, key=lambda m: m.wave))


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
