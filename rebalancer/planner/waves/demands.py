"""How many waves the moves of a plan take at least, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rebalancer.planner.moves.move import JudgedMove, Wave, in_order
from rebalancer.planner.plan import Demand
from rebalancer.planner.waves.limits import Limits
from rebalancer.planner.waves.schedule import LARGEST
from rebalancer.policy.evictable import Evictable


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
        for b in evictable.budgets.of(m.pod):
            if b.costs(m.pod):
                by_budget[b.key].append(m)
    if moves:
        yield Demand(-(-len(moves) // LARGEST), "", f"{LARGEST} evictions at a time")
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
            f"{_owner(own, evictable).rpartition('/')[2]} with {most} of its pods away at a time",
        )
    for own in by_component.values():
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
