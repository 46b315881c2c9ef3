"""How long carrying out a plan may take, and what takes longest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import mean, median

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.options import Method, PolicyOptions
from rebalancer.policy.owners import Owners

# Moves that can matter to each other: those keep the order of the plan's waves.

Chain = Sequence[Move]
"""Moves in the order of their waves."""


def chains(plan: Plan, moves: Sequence[Move]) -> list[Chain]:
    """Some moves of a plan, apart where they have neither an owner nor a constraint in common.

    A constraint joins all moves whose pods it counts, carried or not: where one replacement lands changes
    what the filter leaves to the other. That is a component of the planner, or several of them joined.
    """
    joined = _Joined()
    counting = _Counting(plan)
    for move in moves:
        first: Hashable = ("owner", move.owner.key)
        for i in {*move.fixes, *counting.of(move)}:
            joined.join(first, ("constraint", i))
    found: dict[Hashable, list[Move]] = defaultdict(list)
    for move in moves:
        found[joined.root(("owner", move.owner.key))].append(move)
    return [sorted(chain, key=lambda m: m.wave) for chain in found.values()]


class _Counting:
    """Which of a plan's constraints count a pod."""

    def __init__(self, plan: Plan) -> None:
        self._constraints = [c.constraint for c in plan.constraints]
        # By a label that a pod must have, where there is one: most constraints of a namespace are others'.
        self._there: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for i, c in enumerate(self._constraints):
            asked = c.selector.requirements if c.selector is not None else ()
            label = next(((r.key, *r.values) for r in asked if r.operator == "In" and len(r.values) == 1), ())
            self._there[c.namespace, *label].append(i)
        self._known: dict[int, frozenset[int]] = {}

    def of(self, move: Move) -> Iterable[int]:
        """The numbers of the constraints that count the pod, or its replacement with other labels."""
        found: set[int] = set()
        for template in (move.pod.template, move.replacement):
            if id(template) not in self._known:
                self._known[id(template)] = frozenset(self._of(move.pod.namespace, template.labels))
            found |= self._known[id(template)]
        return found

    def _of(self, namespace: str, labels: Mapping[str, str]) -> Iterator[int]:
        for place in ((namespace,), *((namespace, *label) for label in labels.items())):
            for i in self._there.get(place, ()):
                if self._constraints[i].counts(namespace, labels):
                    yield i


class _Joined:
    """Sets that are joined, one pair after the other."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def root(self, member: Hashable) -> Hashable:
        """The member that stands for the whole set."""
        path = []
        while (above := self._above.get(member, member)) != member:
            path.append(member)
            member = above
        for passed in path:
            self._above[passed] = member
        return member

    def join(self, one: Hashable, other: Hashable) -> None:
        """Makes one set of two."""
        self._above[self.root(one)] = self.root(other)


UNKNOWN = 30.0
"""Seconds until a pod is Ready, where no pod of the workload tells."""
_LONGEST = 900.0
"""A pod that became Ready later was ill, or lost its readiness in between."""


AT_FIRST = 5
"""So many replacements are on their way at first, where there is a pace."""
_STAYS = 20.0


def must_stay_ready(per_second: float | None) -> float:
    """For how many seconds, before more follow: without a readiness probe all are Ready at once.

    As long as twenty evictions take, 20 s at most: who wants another pace sets it.
    """
    return min(_STAYS, 20 / per_second) if per_second else 0.0


class Throttle(Struct, frozen=True):
    """What holds evictions back beside the plan. `per_second`: so many at most, None = any number. `canary`:
    so many come first, one by one and then two at a time."""

    per_second: float | None = None
    canary: int = 0


AT_ONCE = Throttle()
"""As fast as the plan allows."""


class WavePace(Struct, frozen=True):
    """One wave. `seconds`: until its last replacement is Ready, as its workloads' pods were before; a
    StatefulSet's starts only when the evicted pod is gone."""

    wave: int
    evictions: int
    seconds: int


class Pace(Struct, frozen=True):
    """How long each wave may last by itself; `seconds`: how long the whole plan may, in which waves overlap.
    `longest`: what takes longest, "" if nothing does. `away`: by uid, how long each pod is missing."""

    waves: tuple[WavePace, ...]
    seconds: int
    longest: str
    away: Mapping[str, int]


def pace(plan: Plan, snapshot: Snapshot, throttle: Throttle = AT_ONCE) -> Pace:
    """How long the plan may take, if pods become Ready as those of their owners did before.

    A wave is no barrier: each chain of moves goes on by itself. So the plan takes as long as its longest
    chain, or as all its moves do if as many are in flight as may be at most, or as many start as may in a
    second. While the canary lasts, one or two are in flight.
    """
    took = _usual(plan, snapshot)

    def alone(move: Move) -> float:
        # A StatefulSet's pod starts only when the evicted one is gone.
        ending = move.pod.grace_seconds if move.owner.kind == "StatefulSet" else 0
        return took.get(move.owner.key, UNKNOWN) + ending

    waves = tuple(
        WavePace(number, len(moves), round(max(map(alone, moves))))
        for number, moves in enumerate(plan.waves, 1)
        if moves
    )
    longest = max((_one_by_one(chain, alone) for chain in chains(plan, plan.moves)), default=0.0)
    crowds = max((d.waves for d in plan.demands if not d.owner), default=0)
    crowded = crowds * mean(map(alone, plan.moves)) if crowds else 0.0
    usual = mean(map(alone, plan.moves)) if plan.moves else 0.0
    started = 0.0
    if throttle.per_second and plan.moves:
        started = (len(plan.moves) - 1) / throttle.per_second + usual
        if len(plan.moves) > AT_FIRST:
            started += max(0.0, usual + must_stay_ready(throttle.per_second) - AT_FIRST / throttle.per_second)
    seconds = max(longest, crowded, started)
    if first := min(throttle.canary, len(plan.moves)):
        # One, then two at a time; what is left of the plan then takes its share of the whole.
        alone_or_two = (1 + first // 2) * usual
        seconds = max(longest, alone_or_two + seconds * (1 - first / len(plan.moves)))
    slow = max(plan.demands, key=lambda d: d.waves * took.get(d.owner, UNKNOWN), default=None)
    away = {m.pod.uid: round(alone(m)) if m.method is Method.EVICT else 0 for m in plan.moves}
    return Pace(waves, round(seconds), slow.reason if slow is not None else "", away)


def _one_by_one(chain: Chain, alone: Callable[[Move], float]) -> float:
    """How long the waves of one chain last after each other."""
    return sum(max(map(alone, moves)) for _, moves in groupby(chain, key=lambda m: m.wave))


def _usual(plan: Plan, snapshot: Snapshot) -> dict[str, float]:
    """By owner, the median over pods that did not become Ready anew long after they were made."""
    owners, moved = Owners(snapshot, PolicyOptions()), {m.owner.key for m in plan.moves}
    pods: dict[str, list[Pod]] = defaultdict(list)
    for group in snapshot.live if moved else ():
        owner = owners.of(group.one)
        if owner is not None and (key := owners.top(owner).key) in moved:
            pods[key] += group.pods
    return {key: median(good) for key, own in pods.items() if (good := list(readiness(own)))}


def readiness(pods: Iterable[Pod]) -> Iterator[float]:
    """Seconds from being made to Ready, of those pods that tell."""
    for p in pods:
        if p.ready and p.ready_since is not None and p.created is not None:
            seconds = p.ready_since - p.created
            if 0 < seconds <= _LONGEST:
                yield seconds
