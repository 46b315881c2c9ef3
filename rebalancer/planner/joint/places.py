"""Who may take part in a joint move: pods by class and node, those that could lower an excess first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, islice

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.joint.every_order import nodes_of_ending
from rebalancer.spread.arrays import Rows

LARGEST = 4
"""Pods of one joint move."""
MOST = 80
"""Places that are combined. Where there are more, those that only make room are left out."""


class Place(Struct, frozen=True, eq=False):
    """Pods of one class on one node that may be evicted, the best victims first; no more than one set takes.

    `over`: whether they are in a domain that holds too many, of a constraint that counts them.
    """

    members: PodClass
    node: int
    pods: tuple[Pod, ...]
    over: bool


Chosen = tuple[tuple[Place, Pod], ...]
"""The pods of a set."""


def places(
    simulation: Simulation, groups: Sequence[Group], own: Sequence[PodClass], others: Sequence[PodClass]
) -> list[Place]:
    """Those of the stuck components' classes (`own`), and of others that could make room for them.

    `groups`: all groups, by index.
    """
    ending = nodes_of_ending(simulation)
    found = [p for c in own for p in _of(simulation, groups, c, ending)]
    if len(found) > MOST:
        return [p for p in found if p.over][:MOST]
    wanted = np.logical_or.reduce([c.static for c in own]) if own else simulation.state.table.none
    near = (c for c in others if any(wanted[node] for node in c.by_node))
    more = (p for c in near for p in _of(simulation, groups, c, ending) if wanted[p.node])
    beside = list(islice(more, MOST - len(found) + 1))
    return found + beside if len(found) + len(beside) <= MOST else found


def _of(simulation: Simulation, groups: Sequence[Group], c: PodClass, ending: Rows) -> Iterator[Place]:
    r = c.replacement
    near = r.affinity is not None and r.affinity.pod_affinity is not None
    if c.owner is None or r.migrates or near or c.static[ending].any():
        return
    for node in sorted(c.by_node):
        if r.host_ports and _shares_a_port(simulation, r, node):
            continue
        free = (p for p in c.by_node[node] if c.stays(p) is None and key_of(p) in simulation.state.pods)
        if pods := tuple(islice(free, 1 if c.ordered else LARGEST)):
            yield Place(c, node, pods, any(_over(simulation, groups[i], node) for i in c.counted))


def _shares_a_port(simulation: Simulation, template: PodTemplate, node: int) -> bool:
    """Whether several pods on the node have a host port of the template: the first of them to go would free
    it in the scheduler's books, and not on the node."""
    ports = {(p.port, p.protocol) for p in template.host_ports}
    there = (p.template.host_ports for p in simulation.state.pods.values() if p.row == node)
    return sum(any((p.port, p.protocol) in ports for p in own) for own in there) > 1


def _over(simulation: Simulation, group: Group, node: int) -> bool:
    domain = int(group.domain_of[node])
    if domain < 0:
        return False
    counts = group.counts(simulation.state)
    return bool(counts[domain] > group.minimum(counts) + group.constraint.max_skew)


def sets(found: Sequence[Place], size: int) -> Iterator[Chosen]:
    """Every set of so many pods with one at least whose domain holds too many: of one class first, then of
    several. Of more than three pods only those of one class."""
    over = [p for p in found if p.over]
    classes = dict.fromkeys(id(p.members) for p in over)
    for c in classes:
        own = [p for p in over if id(p.members) == c]
        yield from filter(None, (_chosen(s) for s in combinations_with_replacement(own, size)))
    if size > LARGEST - 1:
        return
    for chosen in combinations_with_replacement(found, size):
        if any(p.over for p in chosen) and len({id(p.members) for p in chosen}) > 1:
            yield from filter(None, (_chosen(chosen),))


def _chosen(chosen: Sequence[Place]) -> Chosen | None:
    """The pods of these places, as often as each is named; None if one has not so many."""
    taken: dict[int, int] = {}
    pods = []
    for place in chosen:
        number = taken.get(id(place), 0)
        if number >= len(place.pods):
            return None
        taken[id(place)] = number + 1
        pods.append((place, place.pods[number]))
    return tuple(pods)
