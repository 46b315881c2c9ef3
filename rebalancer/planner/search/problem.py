"""What the searches of one component share: its bounds, the judge, and what may still be tried."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from itertools import combinations, combinations_with_replacement, product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.node import HOSTNAME
from rebalancer.planner.bounds import Effort, Remaining
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import can_conflict, keep_apart
from rebalancer.planner.cluster.simulation import Simulation, Tried
from rebalancer.planner.moves import Candidate, HardJudge, JudgedMove, Victims
from rebalancer.spread.arrays import Bools, Ints, Rows, first_places, members, numbered


class Problem:
    """One component, the state that its moves are tried on, its bounds, and how much may still be tried."""

    def __init__(
        self,
        simulation: Simulation,
        component: Component,
        judge: HardJudge,
        remaining: Remaining,
        effort: Effort,
    ) -> None:
        self.simulation = simulation
        self.component = component
        self.judge = judge
        self.remaining = remaining
        self.effort = effort
        self.tried = Tried(simulation)
        """The moves that the searches try."""
        self._judged: dict[tuple[int, str], JudgedMove | None] = {}

    @cached_property
    def start(self) -> Ints:
        """int64[Q, N]: where the component's pods are at first."""
        return self.component.start

    @cached_property
    def _victims(self) -> Victims:
        return Victims(self.simulation, self.component, self.judge)

    def judged(self, placed: Ints, candidate: Candidate) -> JudgedMove | None:
        """What the judge says of a move as the simulation stands: searches come to the same state by many
        ways."""
        key = self.simulation.state.mark, candidate.pod.key
        if key not in self._judged:
            self._judged[key] = self.judge.best(placed, candidate)
        return self._judged[key]

    def forget(self) -> None:
        """Lets go of what the searches needed, but what the bounds know of the start."""
        self.__dict__.pop("start", None)
        self.__dict__.pop("_victims", None)
        self._judged.clear()
        self.remaining.forget()

    def excess(self, placed: Ints) -> int:
        """The total excess of a placement."""
        return sum(self.component.excesses(placed))

    def candidates(self, bucket_of: Ints, gives: Ints | None = None) -> Iterator[Candidate]:
        """Possible victims, as the simulation stands."""
        return self._victims.now(bucket_of, gives)

    def helpful(self, placed: Ints, bucket_of: Ints, gives: Ints | None = None) -> Iterator[JudgedMove]:
        """Moves that help and do no harm, as the simulation stands.

        One for each class and bucket of nodes (`bucket_of`, int64[N]), as long as the effort lasts.
        """
        taken: set[tuple[int, int]] = set()
        for candidate in self.candidates(bucket_of, gives):
            bucket = (candidate.pod_class, int(bucket_of[candidate.node]))
            if bucket in taken:
                continue
            if self.effort.gone:
                return
            self.effort.candidates()
            move = self.judged(placed, candidate)
            if move is not None and move.helps:
                taken.add(bucket)
                yield replace(move, certain=False)

    def expected(self, move: JudgedMove) -> Rows:
        """The nodes on which the scheduler's scores put the replacement, the predicted one first."""
        return self.simulation.expected(move.pod, move.replacement, move.landing, after_gone=move.late)


def reached(placed: Ints, moves: Iterable[JudgedMove]) -> tuple[object, ...]:
    """Equal where the same pods are gone and the placement, int64[Q, N], is the same: so are open moves."""
    return (placed.tobytes(), *sorted((m.candidate.pod_class, m.candidate.node) for m in moves))


# Where things may stand after some moves: the scheduler, not the plan, chooses among the nodes it is left.
#
# Each move multiplies the placements that a component may be in. A move is *certain* only if it holds in
# every one of them; placements that no later move can tell apart count once.

MOST = 32
"""Placements kept apart; where there could be more, no further move is taken to be certain."""


class Placement(Struct, frozen=True, eq=False):
    """Pods per class and node, int64[Q, N], that some moves may have led to, and the moves as they landed."""

    placed: Ints
    made: tuple[JudgedMove, ...] = ()


class Placements(Struct, frozen=True, eq=False):
    """All placements that some moves may have led to, the predicted one first; not `complete` if there were
    too many."""

    possible: tuple[Placement, ...]
    complete: bool = True

    @property
    def predicted(self) -> Placement:
        """The one that the scheduler's scores predict."""
        return self.possible[0]


class Advance(Struct, frozen=True, eq=False):
    """The placements after one move more, and the move with every node that its replacement may land on.

    The move does no harm on any landing in any placement. If it is certain, its replacement stays out of the
    domain it left on each of them, and the end comes nearer.
    """

    placements: Placements
    move: JudgedMove


class Landings:
    """Follows moves of one component through all their landings.

    `nearer` says whether a candidate that lands on a node brings the end nearer in a placement. `distinct`:
    bool[N], nodes that are never taken for one another, because victims may come from them.
    """

    def __init__(
        self,
        problem: Problem,
        nearer: Callable[[Ints, Candidate, int], bool],
        distinct: Bools,
        *,
        predicted: bool = False,
    ) -> None:
        """`predicted`: after each move only the landing that the scores predict is followed."""
        self._problem = problem
        self._predicted = predicted
        self._nearer = nearer
        self.distinct = distinct
        # In closed form only the counts of whole domains matter; to pods that touch each other, every node.
        touching = _touching(problem.component)
        self._kinds = _kinds(problem) if touching else None
        touching = touching and self._kinds is None
        self._apart = distinct & (not problem.remaining.domains_only) | touching
        self._apart_nodes: Rows = np.flatnonzero(self._apart)
        self._nodes: Ints = np.arange(len(distinct))
        self._merged: Ints = np.arange(len(distinct))
        """Nodes with one number were followed as one: placements that only swap them are not kept apart."""

    def advance(
        self, now: Placements, candidate: Candidate, *, only_guaranteed: bool = False
    ) -> Advance | None:
        """The placements after a move; None if in one of those before it could do harm, or, where a
        guaranteed one is wanted, if it is not."""
        after: dict[Hashable, Placement] = {}
        moves: list[JudgedMove] = []
        guaranteed = True
        for here in now.possible:
            placed = here.placed
            with self._problem.tried.after(here.made):
                move = self._problem.judged(placed, candidate)
                if move is None:
                    return None
                landings = self._landings(placed, move)
            moves.append(move)
            for node in landings:
                guaranteed = (
                    guaranteed and move.certain and move.helps and self._nearer(placed, candidate, node)
                )
                led = candidate.moved(placed, node)
                made = (*here.made, replace(move, landed=node))
                after.setdefault(self._key(led, made), Placement(led, made))
            if only_guaranteed and not guaranteed:
                return None
        destinations = np.concatenate([m.destinations for m in moves])
        complete = now.complete and (self._predicted or len(after) <= MOST)
        kept = Placements(tuple(after.values())[: 1 if self._predicted else MOST], complete)
        shared = self._problem.simulation.shared
        surely = [shared.rows(m.landing.held & m.landing.freed) for m in moves]
        move = replace(
            moves[0],
            destinations=shared.rows(members(self._merged, self._merged[destinations])),
            certain=guaranteed and kept.complete,
            landed=kept.predicted.made[-1].landed,
            open=tuple({id(nodes): nodes for nodes in surely}.values()),
            closed=len(now.predicted.made) if self._problem.remaining.limits_nodes else 0,
        )
        return Advance(kept, move)

    def _landings(self, placed: Ints, move: JudgedMove) -> list[int]:
        """A node for each distinct landing, the scheduler's favourite first."""
        nodes = np.concatenate((self._problem.expected(move)[:1], move.destinations))
        bucket_of = self._problem.remaining.bucket_of(placed)
        if self._kinds is not None:
            bucket_of = numbered(bucket_of + 1, [self._kinds])
        if len(self._apart_nodes):
            bucket_of = np.where(self._apart, bucket_of.max() + 1 + self._nodes, bucket_of)
        buckets = bucket_of[nodes]
        first = first_places(buckets)
        for here in (nodes[buckets == buckets[i]] for i in first):
            merged = self._merged[here]
            if (merged != merged[0]).any():
                self._merged[members(self._merged, merged)] = merged[0]
        return [int(nodes[i]) for i in np.sort(first)]

    def _key(self, placed: Ints, made: tuple[JudgedMove, ...]) -> Hashable:
        """Equal for placements that differ by landings on nodes of one bucket only."""
        if self._kinds is not None:
            # The victims are the same in all of them.
            return tuple(sorted((m.candidate.pod_class, int(self._kinds[m.landed])) for m in made))
        return self._problem.remaining.key(placed) + placed[:, self._apart_nodes].tobytes()


def _touching(component: Component) -> bool:
    """Whether which of several nodes of a bucket a replacement takes can matter to a later one.

    To one of its own class it does not as long as they keep apart, or together, by node only: that finds as
    many nodes left, wherever the first one went.
    """
    replacements = [c.replacement for c in component.classes]
    return any(can_conflict(one, other) for one, other in combinations(replacements, 2)) or any(
        can_conflict(one, one, beyond_node=True) for one in replacements
    )


def _kinds(problem: Problem) -> Ints | None:
    """int64[N]: equal for nodes that are one to pods of all classes, if no two of these ever share a node.

    Wherever the first of two pods of different size lands, the second finds as many nodes left that are as
    good: those of one kind lie in the same domains, hold none of the component's pods, have no room for a pod
    that waits, and are open to the same of its replacements. A landing closes its node and changes no other.
    None where that is not so, or not known.
    """
    component, simulation = problem.component, problem.simulation
    replacements = [c.replacement for c in component.classes]
    alike = {(t.namespace, frozenset(t.labels.items()), id(t.affinity)): t for t in replacements}
    if (
        simulation.state.nominated
        or any(t.host_ports or t.attaches or t.migrates for t in replacements)
        or any(can_conflict(a, b, beyond_node=True) for a, b in product(alike.values(), repeat=2))
        or not all(keep_apart(a, b) for a, b in combinations_with_replacement(alike.values(), 2))
    ):
        return None
    every = np.arange(simulation.state.table.size)
    single = component.start.any(axis=0) | simulation.unsure_on | ~simulation.state.table.having([HOSTNAME])
    columns: list[Ints | Bools] = []
    for group, own, base in zip(component.groups, component.own_domain, component.base, strict=True):
        columns.append(np.where(own, -2 - np.append(base, 0)[group.domain_of], group.domain_of))
    with problem.tried.after(()):
        for waiting in problem.judge.waiting.templates:
            single |= simulation.has_room(waiting, every)
        columns += [simulation.framework(t).feasible(t, spread=False) for t in replacements]
    return numbered(np.where(single, every + 1, 0), columns)
