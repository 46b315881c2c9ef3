"""The cluster as counts of identical pods per node, for the exhaustive search and the integer program.

Two pods are of one kind when nothing that the judge looks at tells them apart: what they ask for, where they
may go, what counts them, what they carry, whether they may be evicted. `Cells.feasible` is `judge.feasible`
on counts; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.scheduler import filters
from tests.support.scheduler.affinity import minds
from tests.support.scheduler.owners import evictable, replacement, waits_for_end
from tests.support.scheduler.plain import (
    Json,
    amounts,
    key_of,
    labels_of,
    namespace_of,
    node_of,
    requests,
    terminating,
)
from tests.support.scheduler.spread import Group, groups_of
from tests.support.scheduler.state import State, groups

Counts = tuple[tuple[int, ...], ...]
"""[kind][node] → pods."""


class UnsupportedError(Exception):
    """The cluster has what counts cannot express."""


@dataclass(frozen=True)
class Kind:
    """Pods that are alike; `own` and `counted_by` are indices of groups."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    requests: tuple[tuple[str, int], ...]
    ports: tuple[tuple[int, str, str], ...]
    may_go: frozenset[int]
    own: tuple[int, ...]
    counted_by: tuple[int, ...]
    movable: bool
    holds_room: bool

    @property
    def worth_moving(self) -> bool:
        """Whether it may be evicted and one of its own constraints counts it."""
        return self.movable and any(g in self.counted_by for g in self.own)


@dataclass(frozen=True)
class Cells:
    """The cluster; `domain[g][n]` is the label value, `eligible[g][n]` whether the node takes part.

    `free` is what is allocatable less terminating pods, which keep their room; `ports` are theirs. `kind_of`
    has the pods that count, by namespace/name.
    """

    nodes: tuple[str, ...]
    kinds: tuple[Kind, ...]
    groups: tuple[Group, ...]
    domain: tuple[tuple[str | None, ...], ...]
    eligible: tuple[tuple[bool, ...], ...]
    free: tuple[dict[str, int], ...]
    ports: tuple[tuple[tuple[int, str, str], ...], ...]
    start: Counts
    kind_of: dict[str, int]

    @staticmethod
    def of(state: State) -> Cells:
        """The cells of a state; Pending pods bring their constraints and nothing else.

        Raises UnsupportedError where a replacement is of another kind than its pod, or minds other pods.
        """
        nodes = tuple(sorted(state.nodes))
        found = tuple(groups(state))
        keys = {key for g in found for key, _, _ in g.selector or ()}
        place = {name: i for i, name in enumerate(nodes)}
        counts: dict[Kind, list[int]] = {}
        kind_of: dict[str, Kind] = {}
        free = [amounts(state.nodes[n]["status"].get("allocatable")) for n in nodes]
        ports: list[list[tuple[int, str, str]]] = [[] for _ in nodes]
        static: dict[str, frozenset[int]] = {}
        for pod in state.holding():
            if node_of(pod) not in place:
                continue
            if minds(pod):
                raise UnsupportedError(f"{pod['metadata']['name']} has required terms to other pods")
            here = place[node_of(pod)]
            if terminating(pod):
                for name, value in requests(pod).items():
                    free[here][name] = free[here].get(name, 0) - value
                ports[here] += filters.host_ports(pod)
                continue
            kind = _kind(state, pod, nodes, found, keys, static)
            if kind.movable:
                new = replacement(state, pod)
                if _kind(state, new, nodes, found, keys, static, movable=True) != kind:
                    raise UnsupportedError(f"{pod['metadata']['name']} is replaced by another kind of pod")
            kind_of[key_of(pod)] = kind
            counts.setdefault(kind, [0] * len(nodes))[here] += 1
        kinds = sorted(counts, key=repr)
        return Cells(
            nodes=nodes,
            kinds=tuple(kinds),
            groups=found,
            domain=tuple(tuple(labels_of(state.nodes[n]).get(g.key) for n in nodes) for g in found),
            eligible=tuple(tuple(n in g.nodes for n in nodes) for g in found),
            free=tuple(free),
            ports=tuple(tuple(p) for p in ports),
            start=tuple(tuple(counts[k]) for k in kinds),
            kind_of={key: kinds.index(kind) for key, kind in kind_of.items()},
        )

    def tally(self, counts: Counts, g: int) -> dict[str, int]:
        """Pods per eligible domain of a group."""
        domains, eligible = self.domain[g], self.eligible[g]
        found = {d: 0 for d, e in zip(domains, eligible, strict=True) if e and d is not None}
        for kind, row in zip(self.kinds, counts, strict=True):
            if g in kind.counted_by:
                for n, count in enumerate(row):
                    d = domains[n]
                    if count and eligible[n] and d is not None:
                        found[d] += count
        return found

    def excess(self, counts: Counts, g: int) -> int:
        """The excess of a group."""
        return self.groups[g].excess(self.tally(counts, g))

    def total_excess(self, counts: Counts) -> int:
        """The sum over all groups."""
        return sum(self.excess(counts, g) for g in range(len(self.groups)))

    def feasible(self, counts: Counts, kind: int, holding: Counts | None = None) -> list[int]:
        """Nodes that take one more pod of the kind; `holding` are the pods that hold room, if others."""
        k = self.kinds[kind]
        around = counts if holding is None else holding
        tallies = [(g, t, self.groups[g].minimum(t)) for g in k.own for t in [self.tally(counts, g)]]
        return [
            n
            for n in sorted(k.may_go)
            if all(self._takes(g, tally, least, kind, n) for g, tally, least in tallies)
            and self._has_room(k, around, n)
        ]

    def kept_out(self, counts: Counts, kind: int, node: int) -> bool:
        """Whether an own constraint that counts the kind keeps it out of the node's domain."""
        k = self.kinds[kind]
        for g in k.own:
            if g in k.counted_by and self.eligible[g][node]:
                tally = self.tally(counts, g)
                if not self._takes(g, tally, self.groups[g].minimum(tally), kind, node):
                    return True
        return False

    def _takes(self, g: int, tally: dict[str, int], least: int, kind: int, n: int) -> bool:
        domain, group = self.domain[g][n], self.groups[g]
        if domain is None:
            return False
        itself = group.self_matches({"metadata": {"labels": dict(self.kinds[kind].labels)}})
        return tally.get(domain, 0) + itself - least <= group.max_skew

    def _has_room(self, kind: Kind, around: Counts, n: int) -> bool:
        taken = list(self.ports[n])
        used: dict[str, int] = {}
        for other, row in zip(self.kinds, around, strict=True):
            if row[n]:
                taken += other.ports
                for name, value in other.requests:
                    used[name] = used.get(name, 0) + value * row[n]
        if any(filters.clash(a, b) for a in kind.ports for b in taken):
            return False
        return all(v <= 0 or self.free[n].get(r, 0) - used.get(r, 0) >= v for r, v in kind.requests)


def moved(counts: Counts, kind: int, source: int, target: int | None) -> Counts:
    """Counts after one pod of a kind left `source`, and came to `target` unless that is None."""
    row = list(counts[kind])
    row[source] -= 1
    if target is not None:
        row[target] += 1
    return (*counts[:kind], tuple(row), *counts[kind + 1 :])


def _kind(
    state: State,
    pod: Json,
    nodes: tuple[str, ...],
    found: tuple[Group, ...],
    keys: set[str],
    static: dict[str, frozenset[int]],
    *,
    movable: bool | None = None,
) -> Kind:
    """The kind of a pod: labels that no selector reads are left out."""
    spec, own = pod["spec"], groups_of(pod, state.nodes)
    needed = [g.key for g in own]
    shape = repr([needed, *(spec.get(f) for f in ("nodeSelector", "affinity", "tolerations", "volumes"))])
    if shape not in static:
        claims, volumes = state.kind("PersistentVolumeClaim"), state.kind("PersistentVolume")
        static[shape] = frozenset(
            i
            for i, name in enumerate(nodes)
            if all(allows(pod, state.nodes[name]) for allows in filters.STATIC)
            and all(key in labels_of(state.nodes[name]) for key in needed)
            and filters.volume_binding(pod, state.nodes[name], claims, volumes)
        )
    labels, namespace = labels_of(pod), namespace_of(pod)
    return Kind(
        namespace=namespace,
        labels=tuple(sorted((k, v) for k, v in labels.items() if k in keys)),
        requests=tuple(sorted(requests(pod).items())),
        ports=tuple(filters.host_ports(pod)),
        may_go=static[shape],
        own=tuple(found.index(g) for g in own),
        counted_by=tuple(i for i, g in enumerate(found) if g.matches(namespace, labels)),
        movable=evictable(state, pod) if movable is None else movable,
        holds_room=not waits_for_end(pod),
    )
