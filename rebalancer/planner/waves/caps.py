"""Which planned moves the caps leave to a later cycle (contract, clause 8).

The plan stays whole. Caps bound what is carried out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from rebalancer.model.reason import Reason
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.policy.limits.caps import Caps
from rebalancer.policy.owners import Owners


def waiting_moves(caps: Caps, owners: Owners, moves: Iterable[JudgedMove]) -> dict[int, Reason]:
    """By the place of a move in `moves`: why it waits for a later cycle.

    A component's moves build on each other, so after one that waits no other of its owners follows. A joint
    move is made as a whole or not at all.
    """
    waits: dict[int, Reason] = {}
    ended: dict[str, Reason] = {}
    known: dict[int, tuple[Component, frozenset[str]]] = {}
    for places, members in _entries(moves):
        mine: set[str] = set()
        for move in members:
            component = move.component
            if id(component) not in known:
                known[id(component)] = component, _owners(component, owners)
            mine |= known[id(component)][1]
        reason = next((ended[o] for o in sorted(mine & ended.keys())), None)
        for move in members if reason is None else ():
            left = [_domain(g, move.candidate.node) for g in move.fixes]
            reason = caps.spend(move.pod, [d for d in left if d]) or reason
        if reason is not None:
            waits.update(dict.fromkeys(places, reason))
            ended.update(dict.fromkeys(mine, reason))
    return waits


def _entries(moves: Iterable[JudgedMove]) -> Iterator[tuple[list[int], list[JudgedMove]]]:
    """What is made as a whole: a single move, or those of a joint one; with their places."""
    for _, entry in groupby(enumerate(moves), lambda m: m[1].joint.number if m[1].joint else -1 - m[0]):
        members = list(entry)
        yield [i for i, _ in members], [m for _, m in members]


def _owners(component: Component, owners: Owners) -> frozenset[str]:
    """The topmost owners of the pods that the component may move."""
    return frozenset(owners.top(c.owner).key for c in component.classes if c.owner is not None)


def _domain(group: Group, node: int) -> str:
    """key=value of the domain that a pod on this node leaves; "" if it is in none."""
    d = int(group.domain_of[node])
    return f"{group.constraint.topology_key}={group.names[d]}" if d >= 0 else ""
