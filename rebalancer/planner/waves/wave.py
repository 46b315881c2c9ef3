"""One wave: moves whose replacements may arrive in any order, while some victims still hold their room.

A move joins only if nothing in the wave can touch another: room on every node where replacements of the wave
could meet, no shared host port, no required affinity between them, and every budget, share and quota kept
(contract, clauses 4 and 8). Moves of one component join only as far as they hold `together`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.groups import Conflicts
from rebalancer.planner.cluster.simulation import Simulation, Terminating, key_of
from rebalancer.planner.moves import JudgedMove
from rebalancer.planner.waves.interleavings import Amounts, Elsewhere, Others, Together, Waits, domains_of
from rebalancer.policy.budgets import Allowance, Budget, Budgets, InFlight
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.quota import Charged
from rebalancer.policy.replace_first import Release
from rebalancer.spread.arrays import Bools, Ints, among, members

# What bounds the moves of one wave by number: budgets, shares of owners, quotas.


class Limits:
    """How much of each one wave has used. `draining`: the budgets, by key, that a drain asks, too."""

    def __init__(self, evictable: Evictable, draining: Iterable[str]) -> None:
        self._allowance = Allowance(evictable.budgets, draining)
        self._in_flight = InFlight(evictable.shares)
        self._charged = Charged(evictable.quotas)
        self._restarting: set[str] = set()
        self._released, self.most_released = 0, evictable.options.max_released

    def fits(self, pod: Pod, owner: Workload | None, release: Release | None = None) -> bool:
        """Whether the pod may go in this wave as well. One that is replaced first costs no budget."""
        bounded = self._allowance.fits(pod) if release is None else self._released < self.most_released
        alone = pod.template.restarts_with not in self._restarting
        return self._in_flight.fits(pod) and bounded and alone and self._charged.fits(pod, owner)

    def at_most(self, pod: Pod) -> int:
        """How many pods like this one may go together, in a wave without others."""
        return max(1, min(self._allowance.at_most(pod), self._in_flight.at_most(pod)))

    def of_budget(self, budget: Budget) -> int:
        """How many disruptions of the budget one wave may use."""
        return self._allowance.of(budget)

    def of_owner(self, pod: Pod) -> int:
        """How many pods of the pod's owner may go together."""
        return self._in_flight.at_most(pod)

    def spend(self, pod: Pod, owner: Workload | None, release: Release | None = None) -> None:
        """Adds the pod to the wave."""
        if release is None:
            self._allowance.spend(pod)
        self._released += release is not None
        if group := pod.template.restarts_with:
            self._restarting.add(group)
        self._in_flight.spend(pod)
        self._charged.spend(pod, owner)


def draining_budgets(simulation: Simulation, budgets: Budgets) -> frozenset[str]:
    """The keys of budgets that a drain needs: one of their pods is on a node that is cordoned or leaves."""
    going = {
        name for name, leaves in zip(simulation.state.table.names, simulation.leaving, strict=True) if leaves
    }
    return frozenset(
        b.key
        for pod in (simulation.snapshot.pods if going else ())
        if pod.node_name in going and not pod.finished
        for b in budgets.of(pod)
    )


def wave_limits(simulation: Simulation, evictable: Evictable) -> Limits:
    """The limits of a wave that has no move yet."""
    return Limits(evictable, draining_budgets(simulation, evictable.budgets))


# What the replacements of one wave may take of each node, wherever they land.


class MayLand(NamedTuple):
    """A move of a wave; bool[N], the nodes where its replacement may land, and those of them that are open to
    it at any time but for what others take."""

    move: JudgedMove
    nodes: Bools
    open: Bools


class Load:
    """Counts the replacements of each component on every node where one of them may land.

    That is no more than its constraints let a node get (`most`, int64[N]), nor than fits there by itself.
    Replacements of one component are equal, and each may take the place of another. What none of them asks a
    node for is not looked at, however much they take of it.

    Where a node keeps room for a DaemonSet's pod, all that may land there have to leave it. Where another has
    no room for all that may land there, a replacement that is the only one of its component finds a place all
    the same if some node has room for all, or if others cannot fill as many nodes as are open to it: each of
    them takes room on one node only.
    """

    def __init__(self, simulation: Simulation, nothing: Ints) -> None:
        self._state = simulation.state
        self._daemons = simulation.daemons
        self._nothing = nothing
        self._asked: set[str] = set()
        self._total: Amounts = defaultdict(nothing.copy)
        self._members: dict[int, tuple[int, Bools]] = {}
        self._own: dict[int, Amounts] = {}
        self._landings: list[MayLand] = []

    def add(self, move: JudgedMove, nodes: Bools, open_: Bools, most: Ints, free: Mapping[str, Ints]) -> bool:
        """Adds a replacement that may land on any of the nodes, if it and all others find room; whether they
        do. `open_`: bool[N], the nodes that are open to it at any time but for what others take."""
        component = id(move.component)
        number, there = self._members.get(component, (0, np.zeros_like(nodes)))
        before, there = self._own.get(component), there | nodes
        after = self._amounts(move.replacement, number + 1, there, most, free)
        more = after if before is None else {r: taken - before[r] for r, taken in after.items()}
        total = {r: self._total[r] + amounts for r, amounts in more.items()}
        asked = self._asked.union(r for r, _ in self._state.asks(move.replacement))
        landings = [*self._landings, MayLand(move, nodes, open_)]
        left = {r: free[r] - total[r] for r in asked.intersection(total) & self._daemons.kept.keys()}
        if left and (there & self._daemons.lacking(left)).any():
            return False
        strict = not any(((total[r] > free[r]) & there).any() for r in asked.intersection(total))
        if not (strict or self._all_find_room(landings, {**self._total, **total})):
            return False
        self._asked, self._landings = asked, landings
        self._total.update(total)
        self._members[component], self._own[component] = (number + 1, there), after
        return True

    def others(self, move: JudgedMove) -> Others:
        """What all other components may take."""
        own = self._own.get(id(move.component), {})
        landings = [
            (m.replacement, nodes) for m, nodes, _ in self._landings if m.component is not move.component
        ]
        most = {r: self._nothing for r, _ in self._state.asks(move.replacement)}
        most |= {r: a - own.get(r, self._nothing) for r, a in self._total.items()}
        return Others(most, landings)

    def _all_find_room(self, landings: Sequence[MayLand], total: Amounts) -> bool:
        """Whether, in whatever order they come, each of them finds a node that the others leave room on; and
        all where they are predicted."""
        state = self._state
        free = {r: state.left(r) for r in total}
        components = Counter(id(m.component) for m, _, _ in landings)
        predicted: Counter[tuple[int, str]] = Counter()
        everywhere = np.stack([nodes for _, nodes, _ in landings])
        fulls: dict[tuple[str, ...], Bools] = {}
        for move, nodes, open_ in landings:
            asked = tuple(r for r, _ in state.asks(move.replacement))
            if asked not in fulls:
                fulls[asked] = np.logical_or.reduce([total[r] > free[r] for r in asked if r in total])
            full = fulls[asked]
            if components[id(move.component)] > 1:
                if (full & nodes).any():
                    return False
            elif not (open_ & ~full).any():
                others = np.count_nonzero((everywhere & open_).any(axis=1)) - bool((nodes & open_).any())
                if others >= np.count_nonzero(open_):
                    return False
            for r, amount in state.holds(move.replacement):
                predicted[move.landed, r] += amount
            if any(predicted[move.landed, r] > free[r][move.landed] for r in asked):
                return False
        return True

    def _amounts(
        self, replacement: PodTemplate, number: int, there: Bools, most: Ints, free: Mapping[str, Ints]
    ) -> Amounts:
        """What so many of these take of each node at most, if they may land `there`."""
        taken: Ints = number * there
        if number > 1:
            taken = np.minimum(taken, np.maximum(most, 1))
            # Between the end of a DaemonSet's pod and the next one, more can land.
            room = [(free[r] + self._daemons.given(r), n) for r, n in self._state.asks(replacement)]
            if any((here < taken * amount).any() for here, amount in room):
                # One that does not fit by itself is counted all the same, so that it is seen.
                fit = np.minimum.reduce([here // amount for here, amount in room])
                taken = np.minimum(taken, np.maximum(fit, 1))
        return {r: taken * amount for r, amount in self._state.holds(replacement)}


class Member(Struct, frozen=True, eq=False):
    """A move of the wave; `held`: bool[N], where its replacement may go while victims hold their room."""

    move: JudgedMove
    held: Bools


class WaveInTheMaking:
    """Takes moves in, one after the other: their victims are `terminating` in the simulation."""

    def __init__(self, simulation: Simulation, limits: Limits, terminating: Terminating) -> None:
        self._simulation = simulation
        self._limits = limits
        self._conflicts = Conflicts()
        self._in_order: list[Workload | None] = []
        self._terminating = terminating
        self._size = simulation.state.table.size
        self._nothing = np.zeros(self._size, dtype=np.int64)
        self._load = Load(simulation, self._nothing)
        self._together: dict[int, Together] = {}
        self._members: list[Member] = []
        self._by_component: dict[int, list[JudgedMove]] = defaultdict(list)

    def __len__(self) -> int:
        """How many moves have joined."""
        return len(self._members)

    def join(self, move: JudgedMove, together: Together) -> bool:
        """Takes the move in if, while victims hold their room, nothing in the wave can touch another.

        `together`: how it may overlap with those of its component.
        """
        pod, replacement, members = move.pod, move.replacement, move.candidate.members
        if members.ordered and members.owner in self._in_order:
            return False
        if self._conflicts.any_with(replacement) or not self._limits.fits(pod, members.owner, move.release):
            return False
        if self._simulation.leaves_alone(pod, replacement, move.destinations):
            return False
        self._together[id(move.component)] = together
        own = self._own(move)
        self._terminating.take(pod, move.release)
        if move.late:
            # Its owner makes the replacement once it is gone: its own room is free by then.
            self._terminating.let_go(pod)
        free = self._free(move)
        with self._arrived(own):
            held = self._simulation.framework(replacement).feasible(replacement)
        if move.late:
            self._terminating.hold_again(pod)
        # Room that another victim of the wave still holds may come too late for the predicted landing.
        awaited = bool(self._members) and not held[move.landed]
        if awaited or not held.any() or not self._fits(move, held, held, own, free):
            self._terminating.undo(pod)
            return False
        self._limits.spend(pod, members.owner, move.release)
        self._conflicts.add(replacement)
        if members.ordered:
            self._in_order.append(members.owner)
        self._members.append(Member(move, held))
        self._by_component[id(move.component)].append(move)
        return True

    def settled(self, elsewhere: Elsewhere) -> list[JudgedMove]:
        """The members that hold once all victims are gone too, each with all nodes in question.

        Of a component with a member that does not hold, none follows. One that joins another of its component
        does so only if it stays certain.
        """
        self._terminating.let_go()
        self._load = Load(self._simulation, self._nothing)
        # The same for all members: between them the state is as it is now.
        room: dict[str, Ints] = {}
        fitting: list[tuple[JudgedMove, Bools, Bools]] = []
        before: dict[int, list[JudgedMove]] = defaultdict(list)
        ended: set[int] = set()
        for member in self._members:
            move = member.move
            own = before[id(move.component)]
            with self._one_by_one(move):
                freed = self._simulation.framework(move.replacement).feasible(move.replacement)
            anywhere = member.held | freed
            anywhere |= elsewhere.made_room(move, own, anywhere | among(self._size, move.destinations))
            # What others of the wave fill is open until they come, and to a replacement that may be smaller.
            proved = move.certain and move.serves is None
            doubtful = proved and bool(self._simulation.uncertainties(move.replacement))
            judged = freed.any() and not doubtful and _as_judged(move, anywhere, own)
            open_ = id(move.component) not in ended and judged
            if open_ and self._fits(move, anywhere, member.held & freed, own, self._free(move, room)):
                fitting.append((move, anywhere, member.held & freed))
                own.append(move)
            else:
                ended.add(id(move.component))
        settled: list[JudgedMove] = []
        waits = elsewhere.let_in([m.move for m in self._members])
        before.clear()
        for move, anywhere, certain_nodes in fitting:
            if id(move.component) in ended:
                continue
            own = before[id(move.component)]
            found = self._settled(elsewhere, move, anywhere, certain_nodes, own, waits)
            if own and not (found.certain and own[0].certain):
                ended.add(id(move.component))
                continue
            settled.append(found)
            own.append(found)
        return self._in_any_order(settled)

    def _in_any_order(self, settled: Sequence[JudgedMove]) -> list[JudgedMove]:
        """With every destination that a replacement has in some order of those of its component."""
        own: dict[int, list[JudgedMove]] = defaultdict(list)
        for m in settled:
            own[id(m.component)].append(m)
        found: dict[str, Ints] = {}
        for component, moves in own.items():
            if len(moves) > 1:
                shared = self._simulation.shared
                every = shared.rows(among(self._size, *(m.destinations for m in moves)))
                apart = self._together[component].nodes
                for i, m in enumerate(moves):
                    own_nodes = shared.rows(among(self._size, m.destinations, apart[i])) if apart else every
                    found[m.pod.key] = own_nodes
        return [replace(m, destinations=found.get(m.pod.key, m.destinations)) for m in settled]

    def _settled(
        self,
        elsewhere: Elsewhere,
        move: JudgedMove,
        anywhere: Bools,
        certain_nodes: Bools,
        own: Sequence[JudgedMove],
        waits: Sequence[Waits],
    ) -> JudgedMove:
        """The move with all nodes in question, certain if it is so wherever earlier replacements landed.

        `own`: moves of its component that have joined before. `waits`: pods that may come between.
        """
        others = elsewhere.beside(self._load.others(move), waits, move)
        free = self._free(move)
        open_ = {id(nodes): nodes for nodes in (self._simulation.shared.rows(certain_nodes), *move.open)}
        certain = (
            move.certain
            and others is not None
            and all(
                elsewhere.leaves_room(move, nodes, free, others, len(own), move.closed)
                for nodes in open_.values()
            )
        )
        if certain:
            with self._one_by_one(move):
                wide = anywhere | elsewhere.opens(move, anywhere, self._free(move))
            certain = _as_judged(move, wide, own)
            anywhere = wide if certain else anywhere
        every = anywhere | among(self._size, move.destinations)
        return replace(move, certain=certain, destinations=self._simulation.shared.rows(every))

    def _own(self, move: JudgedMove) -> list[JudgedMove]:
        """The members of the same component."""
        return list(self._by_component.get(id(move.component), ()))

    @contextmanager
    def _one_by_one(self, move: JudgedMove) -> Iterator[None]:
        """The state with other components' victims gone, and the moves of its own one after the other. The
        victim of one that is replaced first is there."""
        own = self._own(move)
        now = own.index(move)
        there = [(m.pod, None) for m in own[now + 1 :]]
        released = [(move.pod, move.release)] if move.release is not None else []
        with self._terminating.back([*there, *released]), self._arrived(own[:now]):
            yield

    @contextmanager
    def _arrived(self, moves: Sequence[JudgedMove]) -> Iterator[None]:
        """The state with the replacements of these moves where they are predicted; as it was afterwards."""
        state = self._simulation.state
        for move in moves:
            state.add(("replacement", key_of(move.pod)), move.replacement, move.landed)
        try:
            yield
        finally:
            for move in moves:
                state.remove(("replacement", key_of(move.pod)))

    def _free(self, move: JudgedMove, known: dict[str, Ints] | None = None) -> dict[str, Ints]:
        """What is left of the resources that the replacement takes; `known`: of some of them, to which the
        others are added."""
        state = self._simulation.state
        found = known if known is not None else {}
        taken = [r for r, _ in state.holds(move.replacement)]
        for r in taken:
            if r not in found:
                found[r] = state.left(r)
        return {r: found[r] for r in taken}

    def _fits(
        self,
        move: JudgedMove,
        nodes: Bools,
        open_: Bools,
        own: Sequence[JudgedMove],
        free: Mapping[str, Ints],
    ) -> bool:
        """Whether all that may land on any of the nodes find room; reserves it if so. `open_`: see `Load`."""
        if own:
            # Any of them may land where another was predicted, as far as there is room.
            asked = self._simulation.state.asks(move.replacement)
            room = np.logical_and.reduce([free[r] >= amount for r, amount in asked])
            destinations = [m.destinations for m in (*own, move)]
            judged = among(self._size, *destinations, *self._together[id(move.component)].nodes)
            nodes = nodes | (judged & room)
        return self._load.add(move, nodes, open_, self._together[id(move.component)].most, free)


def _as_judged(move: JudgedMove, anywhere: Bools, own: Sequence[JudgedMove] = ()) -> bool:
    """Whether all nodes in question lead to outcomes that the search has judged, the predicted one too.

    `own`: moves of its component in whose place the replacement may come.
    """
    if not anywhere[move.landed]:
        return False
    judged = among(len(anywhere), *(m.destinations for m in (*own, move)))
    new = anywhere & ~judged
    if not move.certain or not new.any():
        return True
    simulation = move.component.simulation
    if (new & simulation.refuses(move.replacement)).any():
        return False
    domains = domains_of(move.component)
    return bool(members(domains[new], domains[judged]).all())
