"""A month on a snapshot, played under four variants with the same events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.snapshot import Snapshot
from rebalancer.month.world import Measured, World, measure
from rebalancer.planner.plan import PlanOptions
from rebalancer.planner.planner import plan

# How often what happens in a month. Fixed before the first month was played; the results do not choose
# them.
#
# All are means of a Poisson process. None is measured in a real cluster: they are what an autoscaled
# cluster with weekly releases, rolling node upgrades and a bad day a month may see.

SCALINGS_PER_DAY = 1.0
"""Changes of a workload's replicas: out by day, in by night and every other day."""
SCALED_TO = (0.5, 1.5)
"""What a workload is scaled to, of the replicas that it has in the snapshot; never below two."""
ROLLOUTS_PER_WEEK = 2.0
"""New revisions of a workload."""
REPLACEMENTS_PER_MONTH = 2.0
"""A node is drained and replaced by an empty one of its shape and zone."""
OUTAGES_PER_MONTH = 1.0
"""A zone of the cluster falls silent; its pods are made anew elsewhere."""
OUTAGE_HOURS = 2.0
"""After so long it is back, empty."""
CYCLE_HOURS = 0.25
"""How long after a change evictions follow, where they are on."""


# What happens in a month, drawn before it is played: the same for every variant.

_DAY, _WEEK, _MONTH = 24.0, 24.0 * 7, 24.0 * 30


class Kind(StrEnum):
    """What happens."""

    SCALE = "scale"
    ROLLOUT = "rollout"
    REPLACE = "replace-node"
    OUTAGE = "outage"
    RETURN = "return"


class Event(Struct, frozen=True, order=True):
    """At a time in hours. `target`: a workload's key, a node's name, or a zone; `share`: of the replicas."""

    at: float
    kind: Kind
    target: str
    share: float = 1.0


def events(
    draw: Callable[[], float], hours: float, works: Sequence[str], nodes: Sequence[str], zones: Sequence[str]
) -> list[Event]:
    """In order. `draw`: uniform from 0 to below 1."""
    found: list[Event] = []
    least, most = SCALED_TO
    for work in works:
        found += (
            Event(at, Kind.SCALE, work, least + (most - least) * draw())
            for at in _times(draw, SCALINGS_PER_DAY / _DAY, hours)
        )
        found += (Event(at, Kind.ROLLOUT, work) for at in _times(draw, ROLLOUTS_PER_WEEK / _WEEK, hours))
    for node in nodes:
        rate = REPLACEMENTS_PER_MONTH / _MONTH
        found += (Event(at, Kind.REPLACE, node) for at in _times(draw, rate, hours))
    for at in _times(draw, OUTAGES_PER_MONTH / _MONTH, hours) if len(zones) > 1 else ():
        zone = zones[int(draw() * len(zones))]
        found += (Event(at, Kind.OUTAGE, zone), Event(at + OUTAGE_HOURS, Kind.RETURN, zone))
    return sorted(e for e in found if e.at < hours)


def _times(draw: Callable[[], float], rate: float, hours: float) -> Iterator[float]:
    at = 0.0
    while True:
        at -= math.log(1.0 - draw()) / rate
        if at >= hours:
            return
        yield at


_ROUNDS = 3
"""Plans of one cycle at most: after the first, where something has landed elsewhere than predicted."""


class Variant(StrEnum):
    """What is done about excess."""

    NOTHING = "nothing"
    EVICTIONS = "evictions"
    PREVENTION = "prevention"
    BOTH = "both"

    @property
    def evicts(self) -> bool:
        """Whether cycles follow changes."""
        return self in (Variant.EVICTIONS, Variant.BOTH)

    @property
    def prevents(self) -> bool:
        """Whether scale-ins are steered, and revisions counted apart."""
        return self in (Variant.PREVENTION, Variant.BOTH)


class Lived(Struct, frozen=True, kw_only=True):
    """What a month came to. `excess_hours`: pods in excess times hours. `losses`: of each day the worst
    `Measured.loss`. `events`: how many of each kind."""

    variant: Variant
    excess_hours: float
    evictions: int
    losses: tuple[float, ...]
    events: dict[str, int]


def play(
    snapshot: Snapshot,
    options: PlanOptions,
    variant: Variant,
    *,
    days: int,
    draw: Callable[[], float],
) -> Lived:
    """`draw`: uniform from 0 to below 1; equal draws, equal months."""
    options = replace(options, policy=replace(options.policy, min_pod_age=0.0))
    world = World(snapshot, options.scheduler, prevented=variant.prevents)
    hours = days * 24.0
    coming = events(draw, hours, sorted(world.works), sorted(world.nodes), world.zones)
    tally = _Tally(world, hours)
    due = CYCLE_HOURS if variant.evicts and tally.now.excess else hours
    for event in [*coming, Event(hours, Kind.RETURN, "")]:
        while due < event.at:
            tally.until(due)
            tally.evictions += _cycle(world, options)
            tally.changed()
            due = hours
        tally.until(event.at)
        if event.at < hours:
            _happens(world, event)
            tally.changed()
            tally.events[event.kind.value] = tally.events.get(event.kind.value, 0) + 1
            if variant.evicts and tally.now.excess:
                due = min(due, event.at + CYCLE_HOURS)
    return Lived(
        variant=variant,
        excess_hours=round(tally.excess_hours, 2),
        evictions=tally.evictions,
        losses=tuple(round(x, 4) for x in tally.losses),
        events=tally.events,
    )


class _Tally:
    """What is added up while time passes."""

    def __init__(self, world: World, hours: float) -> None:
        self._world = world
        self.now: Measured = measure(world)
        self.excess_hours, self.evictions = 0.0, 0
        self.losses = [0.0] * max(1, round(hours / 24))
        self.events: dict[str, int] = {}

    def until(self, at: float) -> None:
        """Nothing changes until then."""
        self.excess_hours += self.now.excess * (at - self._world.time)
        first, last = int(self._world.time // 24), min(int(at // 24), len(self.losses) - 1)
        for day in range(first, last + 1):
            self.losses[day] = max(self.losses[day], self.now.loss)
        self._world.time = at

    def changed(self) -> None:
        """Something has happened."""
        self.now = measure(self._world)


def _happens(world: World, event: Event) -> None:
    if event.kind is Kind.SCALE:
        world.scale(event.target, event.share)
    elif event.kind is Kind.ROLLOUT:
        world.roll_out(event.target)
    elif event.kind is Kind.REPLACE:
        world.replace_node(event.target)
    elif event.kind is Kind.OUTAGE:
        world.fail(event.target)
    else:
        world.back(event.target)
    world.retry()


def _cycle(world: World, options: PlanOptions) -> int:
    """Plans and evicts; how many."""
    evicted = 0
    for _ in range(_ROUNDS):
        moves = plan(world.snapshot(), options).moves
        for move in moves:
            world.evict(move)
        evicted += len(moves)
        if not moves or not measure(world).excess:
            break
    return evicted
