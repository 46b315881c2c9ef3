"""Clusters of one workload as counts of pods, and what each actor can make of them.

A state has zones of nodes, each node with its pods, and pods for which no node is left. Which node is which
does not matter, so states are kept up to symmetry. The planner and the scheduler's filter are the real ones;
the scheduler takes any node that its filter leaves, which is more than its scores would. The planner has no
memory here: what it does in a state it does however the state was reached. So the graph of all states holds
every interleaving, of any depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import plan
from rebalancer.planner.cluster.simulation import Simulation
from tests.support.build import node, snapshot, workload

Zone = tuple[int, ...]
"""The pods of each node of a zone."""


class World(NamedTuple):
    """What does not change: keys of the workload's hard constraints (maxSkew 1), pods that a node holds at
    most, nodes and pods that there are at most."""

    keys: tuple[str, ...] = ("zone",)
    room: int = 3
    nodes: int = 4
    pods: int = 6


class State(NamedTuple):
    """Up to symmetry: nodes sorted within their zone, zones sorted. `pending`: pods that fit nowhere."""

    zones: tuple[Zone, ...]
    pending: int = 0

    @property
    def pods(self) -> int:
        """How many pods there are."""
        return self.pending + sum(map(sum, self.zones))

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return sum(map(len, self.zones))


def alike(zones: Iterator[Zone] | list[Zone] | tuple[Zone, ...], pending: int = 0) -> State:
    """The state that stands for all that differ by names only. A zone without a node is none."""
    return State(tuple(sorted(tuple(sorted(z)) for z in zones if z)), pending)


def changed(state: State, zone: int, place: int, by: int) -> State:
    """With more or fewer pods on one node."""
    zones = [list(z) for z in state.zones]
    zones[zone][place] += by
    return State(tuple(map(tuple, zones)), state.pending)


def cluster(world: World, state: State) -> Snapshot:
    """The state as a snapshot; node n-2-0 is the first of the third zone."""
    names = {(z, i): f"n-{z}-{i}" for z, zone in enumerate(state.zones) for i in range(len(zone))}
    made = [node(name).zone(f"z{z}").pods(world.room) for (z, _), name in names.items()]
    web = workload("web")
    for key in world.keys:
        web = web.spread(key, 1)
    placed = {names[z, i]: n for z, zone in enumerate(state.zones) for i, n in enumerate(zone) if n}
    return snapshot(*made, web.placed({**placed, "": state.pending} if state.pending else placed))


def where(name: str) -> tuple[int, int]:
    """The zone and the place of a node."""
    _, zone, place = name.split("-")
    return int(zone), int(place)


@cache
def open_to(world: World, state: State) -> tuple[tuple[int, int], ...]:
    """Where the scheduler can place one more pod."""
    there = state._replace(pending=0)
    if not there.pods:
        there = state._replace(pending=1)
    made = cluster(world, there)
    simulation = Simulation(made, None)
    mask = simulation.framework(made.pods[0].template).feasible(made.pods[0].template)
    return tuple(where(n) for n, fits in zip(simulation.state.table.names, mask, strict=True) if fits)


@cache
def settled(world: World, state: State, waiting: int) -> frozenset[State]:
    """The states in which the scheduler can leave the cluster, with so many more pods to place."""
    waiting += state.pending
    state = state._replace(pending=0)
    places = open_to(world, state) if waiting else ()
    if not places:
        return frozenset({alike(state.zones, waiting)})
    return frozenset(end for z, i in places for end in settled(world, changed(state, z, i, 1), waiting - 1))


@cache
def rebalanced(world: World, state: State) -> frozenset[State]:
    """The states after one eviction of the rebalancer, wherever the replacement lands; none: it is quiet."""
    made = plan(cluster(world, state))
    first = [m for m in made.moves if m.wave == 1]
    found: set[State] = set()
    for move in first:
        without = changed(state, *where(move.pod.node_name), -1)
        assert open_to(world, without), f"nobody takes the replacement: {state}"
        found |= settled(world, without, 1)
    return frozenset(found)


def by_others(world: World, state: State) -> Iterator[tuple[str, State]]:
    """What others can do: autoscalers of pods and of nodes, rollouts, drains, other evictors."""
    nodes = [(z, i) for z, zone in enumerate(state.zones) for i in range(len(zone))]
    if state.pods < world.pods:
        yield from (("scale up", s) for s in settled(world, state, 1))
    taken = [p for p in nodes if state.zones[p[0]][p[1]]]
    if state.pending:
        yield "scale down", state._replace(pending=state.pending - 1)
    elif state.pods > 1:
        # A ReplicaSet takes from the node that has most of its pods.
        most = max(state.zones[z][i] for z, i in taken)
        for z, i in taken:
            if state.zones[z][i] == most:
                yield "scale down", alike(changed(state, z, i, -1).zones)
    for z, i in taken:
        # A rollout, a drain, a descheduler: any pod goes, and comes again.
        yield from (("eviction", s) for s in settled(world, changed(state, z, i, -1), 1))
    if len(nodes) > 1:
        for z, i in nodes:
            zones = [list(zone) for zone in state.zones]
            gone = zones[z].pop(i)
            left = State(tuple(tuple(zone) for zone in zones if zone), state.pending)
            yield from (("node removed", s) for s in settled(world, left, gone))
    if len(nodes) < world.nodes:
        for z in range(len(state.zones) + 1):
            zones = [list(zone) for zone in state.zones] + [[]]
            zones[z].append(0)
            grown = State(tuple(tuple(zone) for zone in zones if zone), state.pending)
            yield from (("node added", s) for s in settled(world, grown, 0))
