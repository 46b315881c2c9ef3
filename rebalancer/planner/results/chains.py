"""Moves that can matter to each other: those keep the order of the plan's waves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from rebalancer.planner.plan import Move, Plan

Chain = Sequence[Move]
"""Moves in the order of their waves."""


def chains(plan: Plan, moves: Sequence[Move]) -> list[Chain]:
    """Some moves of a plan, apart where they have neither an owner nor a constraint in common.

    A joint move is in one chain. A constraint joins all moves whose pods it counts, carried or not: where
    one replacement lands changes what the filter leaves to the other. That is a component of the planner, or
    several of them joined.
    """
    joined = _Joined()
    counting = _Counting(plan)
    for move in moves:
        first: Hashable = ("owner", move.owner.key)
        if move.joint is not None:
            joined.join(first, ("joint", move.joint.number))
        for i in {*move.fixes, *counting.of(move)}:
            joined.join(first, ("constraint", i))
    found: dict[Hashable, list[Move]] = defaultdict(list)
    for move in moves:
        found[joined.root(("owner", move.owner.key))].append(move)
    return [sorted(chain, key=lambda m: m.wave) for chain in found.values()]


class _Counting:
    """Which of a plan's constraints count a pod."""

    def __init__(self, plan: Plan) -> None:
        self._there: dict[str, list[int]] = defaultdict(list)
        self._constraints = [c.constraint for c in plan.constraints]
        for i, c in enumerate(self._constraints):
            self._there[c.namespace].append(i)
        self._known: dict[int, frozenset[int]] = {}

    def of(self, move: Move) -> Iterable[int]:
        """Their numbers. A replacement, of the newest revision, may have other labels than its victim."""
        found: set[int] = set()
        for template in (move.pod.template, move.replacement):
            if id(template) not in self._known:
                self._known[id(template)] = frozenset(
                    i
                    for i in self._there[move.pod.namespace]
                    if self._constraints[i].counts(move.pod.namespace, template.labels)
                )
            found |= self._known[id(template)]
        return found


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
