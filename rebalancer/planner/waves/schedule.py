"""Moves of several components put into waves, as few as limits and interleavings allow.

Moves of one component share a wave as far as they hold `together`; else each could change what is left to the
next one's replacement. The next wave starts from the state that the plan predicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.reason import Reason
from rebalancer.planner import objective
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.moves import JudgedMove, Wave, in_order
from rebalancer.planner.plan import Demand
from rebalancer.planner.waves.interleavings import (
    Elsewhere,
    Interleavings,
    Together,
    alone,
    comparable,
    together,
)
from rebalancer.planner.waves.wave import Limits, WaveInTheMaking, draining_budgets
from rebalancer.policy.caps import Caps
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.owners import Owners

# The moves of one component that wait for a wave, and which of them may go together.


class Queue:
    """The moves of a sequence, in their order. `at_most`: how many of them limits let go together.

    `unsure`: one that is in a wave may end otherwise than predicted, so that what follows may, too. Where one
    is replaced first each goes by itself: its victim counts on, which no other rule here expects.
    """

    def __init__(
        self, simulation: Simulation, moves: Sequence[JudgedMove], at_most: Callable[[JudgedMove], int]
    ) -> None:
        self.moves = list(moves)
        self._at_most = at_most
        self._made = 0
        self.unsure = False
        kind = moves[0].candidate.pod_class
        same = list(takewhile(lambda m: m.candidate.pod_class == kind, moves[: comparable(moves)]))
        self._same = len(same)
        self._by_itself = any(m.release is not None for m in moves)
        self._apart = alone(moves[0]) if self._by_itself else together(moves)
        # Asked only where moves are not seen to hold together without them.
        more = self._apart.length < len(same) and not self._by_itself
        self._interleavings = Interleavings(simulation, same) if more else None
        self._known: tuple[int, Together] | None = None

    def first(self) -> tuple[Sequence[JudgedMove], Together]:
        """The first move, and those that may go with it, equal in what they ask for."""
        if self._known is None or self._known[0] != self._made:
            self._known = self._made, self._found()
        found = self._known[1]
        return self.moves[: found.length], found

    def drop(self, joined: Mapping[str, bool]) -> None:
        """Without the moves that are in a wave now; `joined`: whether each is certain, by its pod's key."""
        while self.moves and (certain := joined.get(self.moves[0].pod.key)) is not None:
            self.unsure = self.unsure or not certain
            self.moves.pop(0)
            self._made += 1

    def _found(self) -> Together:
        head = self.moves[0]
        if self.unsure or self._by_itself:
            return alone(head)
        most = min(len(self.moves), self._at_most(head))
        kind = head.candidate.pod_class
        apart = self.moves[: max(0, min(most, self._apart.length - self._made))]
        alike = len(list(takewhile(lambda m: m.candidate.pod_class == kind, apart)))
        best = Together(alike, self._apart.most, self._apart.nodes) if alike > 1 else alone(head)
        if self._interleavings is not None:
            for length in range(best.length + 1, min(most, self._same - self._made) + 1):
                held = self._interleavings.hold(self._made, self._made + length)
                if held is None:
                    break
                best = Together(length, held.most, held.nodes)
        return best


LARGEST = 50
"""Evictions in flight at most, whatever budgets allow."""


class Schedule(Struct, frozen=True, eq=False):
    """The waves, and the moves that hold in none."""

    waves: tuple[Wave, ...]
    dropped: tuple[JudgedMove, ...]

    @property
    def rank(self) -> objective.Rank:
        """How good it is; a move that holds in no wave leaves an excess of one."""
        return objective.rank(len(self.dropped), in_order(self.waves), len(self.waves))


class Scheduler:
    """Puts moves into waves. It leaves the simulation's state as it was."""

    def __init__(self, simulation: Simulation, evictable: Evictable) -> None:
        self._simulation = simulation
        self._evictable = evictable
        self._draining = draining_budgets(simulation, evictable.budgets)

    def schedule(self, sequences: Sequence[Sequence[JudgedMove]], waiting: Waiting | None = None) -> Schedule:
        """The moves of each sequence, all of one component, in their order.

        Where the victims of a wave together would make room for a `waiting` pod, its moves go one by one, as
        far as no such pod is in their way.
        """
        found = self._arranged(sequences, waiting, partial(self._at_most, waiting))
        likely = sum(not m.certain for moves in sequences for m in moves)
        if not found.dropped and found.rank.likely <= likely:
            return found
        # Side by side they were in each other's way: one move of each at a time may do better.
        return min(found, self._arranged(sequences, waiting, lambda _: 1), key=lambda s: s.rank)

    def _arranged(
        self,
        sequences: Sequence[Sequence[JudgedMove]],
        waiting: Waiting | None,
        at_most: Callable[[JudgedMove], int],
    ) -> Schedule:
        queues = [Queue(self._simulation, moves, at_most) for moves in sequences if moves]
        waves: list[Wave] = []
        elsewhere = Elsewhere(self._simulation, waiting)
        unsure: set[int] = set()
        with ExitStack() as made:
            while queues:
                members = self._next(queues, elsewhere, waiting, in_order(waves))
                if not members:
                    # Even alone in a wave the first move of every sequence fails: others took its room.
                    break
                joined = {m.pod.key: m.certain for m in members}
                for queue in queues:
                    queue.drop(joined)
                queues = [queue for queue in queues if queue.moves]
                wave = []
                for move in members:
                    if not move.certain:
                        unsure.add(id(move.component))
                    # What follows a move that may end otherwise may, too.
                    wave.append(replace(move, certain=id(move.component) not in unsure))
                    elsewhere.add(wave[-1])
                waves.append(wave)
                made.enter_context(self._simulation.after(wave))
        return Schedule(tuple(waves), tuple(move for queue in queues for move in queue.moves))

    def _at_most(self, waiting: Waiting | None, move: JudgedMove) -> int:
        """How many moves like this one may be in one wave."""
        if waiting is not None and waiting.concern(move.component):
            return 1
        return min(LARGEST, Limits(self._evictable, self._draining).at_most(move.pod))

    def _next(
        self,
        queues: Sequence[Queue],
        elsewhere: Elsewhere,
        waiting: Waiting | None,
        earlier: Sequence[JudgedMove],
    ) -> list[JudgedMove]:
        """The members of the next wave, of the first moves of all sequences; none if not even one holds."""
        members, opened = self._wave((queue.first() for queue in queues), elsewhere, waiting)
        if waiting is None or not (opened or _crowded(waiting, members, earlier)):
            return members
        heads = [queue.moves[0] for queue in queues]
        # As they are needed: where many pods wait, each question takes a while.
        free = (h for h in heads if not waiting.interferes(h.pod, h.replacement))
        each = (self._wave([([h], alone(h))], elsewhere, None)[0] for h in free)
        return next((m for m in each if m and not _crowded(waiting, m, earlier)), [])

    def _wave(
        self,
        sequences: Iterable[tuple[Sequence[JudgedMove], Together]],
        elsewhere: Elsewhere,
        waiting: Waiting | None,
    ) -> tuple[list[JudgedMove], bool]:
        """A wave of some of these moves; and whether it lets in a pod that waits."""
        with self._simulation.without() as terminating:
            limits = Limits(self._evictable, self._draining)
            wave = WaveInTheMaking(self._simulation, limits, terminating)
            # First one of each component, so that none waits for the others of another.
            rest: Iterable[tuple[Iterator[JudgedMove], Together]]
            rest = ((iter(moves), together) for moves, together in sequences)
            while rest and len(wave) < LARGEST:
                joined = []
                for moves, together in rest:
                    move = next(moves, None)
                    if move is not None and wave.join(move, together):
                        joined.append((moves, together))
                    if len(wave) == LARGEST:
                        break
                rest = joined
            return wave.settled(elsewhere), waiting is not None and waiting.any_placeable()


def _crowded(waiting: Waiting, wave: Sequence[JudgedMove], earlier: Sequence[JudgedMove]) -> bool:
    """Whether the wave may leave others, or one of its own, without a node, wherever on their nodes the
    earlier moves ended."""
    there = ((m.pod, m.replacement, m.destinations, m.landed) for m in earlier)
    return waiting.crowded([*there, *((m.pod, m.replacement, m.destinations, -1) for m in wave)])


# How many waves the moves of a plan take at least, and why.


def demands(waves: Sequence[Wave], evictable: Evictable, limits: Limits) -> tuple[Demand, ...]:
    """Why the moves take more than one wave, whatever else is in them; the most waves first."""
    found = _demands(in_order(waves), evictable, limits)
    return tuple(sorted((d for d in found if d.waves > 1), key=lambda d: (-d.waves, d.reason)))


def _demands(moves: Sequence[JudgedMove], evictable: Evictable, limits: Limits) -> Iterator[Demand]:
    by_owner: dict[str, list[JudgedMove]] = defaultdict(list)
    by_budget: dict[str, list[JudgedMove]] = defaultdict(list)
    by_component: dict[int, list[JudgedMove]] = defaultdict(list)
    for m in moves:
        owner = evictable.shares.top(m.pod)
        by_owner[owner.key if owner is not None else ""].append(m)
        by_component[id(m.component)].append(m)
        for b in evictable.budgets.of(m.pod) if m.release is None else ():
            if b.costs(m.pod):
                by_budget[b.key].append(m)
    if moves:
        yield Demand(-(-len(moves) // LARGEST), "", f"{LARGEST} evictions at a time")
    released = sum(m.release is not None for m in moves)
    yield Demand(-(-released // limits.most_released), "", f"{limits.most_released} released pods at a time")
    for key, own in by_budget.items():
        budget = next(b for b in evictable.budgets.of(own[0].pod) if b.key == key)
        most = max(1, limits.of_budget(budget))
        name = budget.budget.metadata.name
        yield Demand(-(-len(own) // most), _owner(own, evictable), f"{name}'s budget of {most} at a time")
    for own in by_owner.values():
        ordered = own[0].candidate.members.ordered
        most = 1 if ordered else limits.of_owner(own[0].pod)
        yield Demand(
            -(-len(own) // most),
            _owner(own, evictable),
            f"{_owner(own, evictable).rpartition('/')[2]} with {most} of its pods "
            f"{'away' if any(m.release is None for m in own) else 'released'} at a time",
        )
    for own in by_component.values():
        if any(m.release is not None for m in own):
            name = _owner(own, evictable)
            yield Demand(len(own), name, f"{name.rpartition('/')[2]}, replaced first one pod at a time")
        likely = sum(not m.certain for m in own)
        if likely > 1:
            name = _owner(own, evictable).rpartition("/")[2]
            yield Demand(
                likely + (likely < len(own)),
                _owner(own, evictable),
                f"{name}, whose moves depend on where the one before lands",
            )


def _owner(moves: Sequence[JudgedMove], evictable: Evictable) -> str:
    owner = evictable.shares.top(moves[0].pod)
    return owner.key if owner is not None else ""


# Which planned moves the caps leave to a later cycle (contract, clause 8).
#
# The plan stays whole. Caps bound what is carried out of it.


def waiting_moves(caps: Caps, owners: Owners, moves: Iterable[JudgedMove]) -> dict[int, Reason]:
    """By the place of a move in `moves`: why it waits for a later cycle.

    A component's moves build on each other, so after one that waits no other of its owners follows.
    """
    waits: dict[int, Reason] = {}
    ended: dict[str, Reason] = {}
    known: dict[int, tuple[Component, frozenset[str]]] = {}
    for place, move in enumerate(moves):
        component = move.component
        if id(component) not in known:
            known[id(component)] = component, _owners(component, owners)
        mine = known[id(component)][1]
        reason = next((ended[o] for o in sorted(mine & ended.keys())), None)
        if reason is None:
            left = [_domain(g, move.candidate.node) for g in move.fixes]
            reason = caps.spend(move.pod, [d for d in left if d])
        if reason is not None:
            waits[place] = reason
            ended.update(dict.fromkeys(mine, reason))
    return waits


def _owners(component: Component, owners: Owners) -> frozenset[str]:
    """The topmost owners of the pods that the component may move."""
    return frozenset(owners.top(c.owner).key for c in component.classes if c.owner is not None)


def _domain(group: Group, node: int) -> str:
    """key=value of the domain that a pod on this node leaves; "" if it is in none."""
    d = int(group.domain_of[node])
    return f"{group.constraint.topology_key}={group.names[d]}" if d >= 0 else ""
