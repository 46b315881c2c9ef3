"""The nodes of a snapshot as columns, and what depends on nodes and pod templates alone.

Nodes do not change while a plan is made. So each question about them (in which zone is it, does the
template's affinity admit it, does it tolerate the taints) is answered once, for all nodes together, and
remembered. The table keeps what it was asked, so that it knows later which changes of a node matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from rebalancer.model.node import REGION, ZONE, Node, Taint, Toleration
from rebalancer.model.pod import PodTemplate
from rebalancer.model.selectors import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Requirement,
    Selector,
)
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.arrays import Bools, Ids, Ints, Layout, Rows, frozen, numbered, ranks

T = TypeVar("T", bound=np.generic)
V = TypeVar("V")
A = TypeVar("A")

FILTERED_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects of the taints that keep a pod off a node."""


class Domains:
    """Nodes by the value of one label. `ids`: int32[N], -1 if a node lacks it; `names[id]` is the value."""

    def __init__(self, values: Iterable[str | None]) -> None:
        """`values`: each node's label value, None if it lacks the label. Ids are given in order of
        appearance."""
        seen: dict[str, int] = {}
        self.ids: Ids = np.fromiter(
            (-1 if v is None else seen.setdefault(v, len(seen)) for v in values), dtype=np.int32
        )
        self.names = tuple(seen)
        self.present: Bools = self.ids >= 0
        self.all_present = bool(self.present.all())
        self._places = self.ids.astype(np.intp)
        frozen(self.ids)
        frozen(self.present)

    def __len__(self) -> int:
        """The number of domains."""
        return len(self.names)

    @cached_property
    def ranks(self) -> Ints:
        """int64[D]: each domain's place in the natural order of names."""
        return ranks(self.names)

    def sum(self, values: Ints, where: Bools) -> Ints:
        """int64[D]: `values` of the nodes in `where`, summed by domain."""
        rows = ((values != 0) & where & self.present).nonzero()[0]
        out = np.zeros(len(self.names), dtype=np.int64)
        np.add.at(out, self.ids[rows], values[rows])
        return out

    def among(self, where: Bools) -> Bools:
        """bool[D]: domains with a node in `where`."""
        out = np.zeros(len(self.names), dtype=np.bool_)
        out[self.ids[where & self.present]] = True
        return out

    def values(self, by_domain: npt.NDArray[T]) -> npt.NDArray[T]:
        """[N] from [D]: the value of each node's domain; any value for a node without the label."""
        if not self.names:
            return np.zeros(len(self.ids), dtype=by_domain.dtype)
        return by_domain.take(self._places)

    def spread(self, by_domain: Bools, absent: bool = False) -> Bools:
        """bool[N]: the value of each node's domain; `absent` for a node without the label."""
        if not self.names:
            return np.full(len(self.ids), absent)
        out: Bools = by_domain.take(self._places)
        if not self.all_present:
            out[~self.present] = absent
        return out


class ByIdentity(Generic[V]):
    """A memo keyed by the identity of objects. It keeps them alive, so that no id is used twice."""

    def __init__(self) -> None:
        """An empty memo."""
        self._found: dict[tuple[int, ...], tuple[tuple[object, ...], V]] = {}

    def get(self, *key: object) -> V | None:
        """What was stored for exactly these objects."""
        found = self._found.get(tuple(map(id, key)))
        return found[1] if found is not None else None

    def put(self, value: V, *key: object) -> V:
        """Stores, and returns the value."""
        self._found[tuple(map(id, key))] = (key, value)
        return value


class NodeTable:
    """The nodes of one snapshot, sorted by name; every array is indexed by a node's place in `names`.

    Whatever is read of the nodes is asked of the table (`answers`), which remembers the question. So `follow`
    can tell whether nodes that changed are still the same to all who asked.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        """A table of nodes in any order; names are unique."""
        self._nodes = _by_name(nodes)
        self.names = tuple(n.name for n in self._nodes)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.size = len(self._nodes)
        self._asked: dict[Hashable, Callable[[Node], object]] = {}
        self.every: Bools = np.ones(self.size, dtype=np.bool_)
        self.none: Bools = np.zeros(self.size, dtype=np.bool_)
        self.unschedulable: Bools = np.array(self.answers(_unschedulable), dtype=np.bool_)
        for array in (self.every, self.none, self.unschedulable):
            frozen(array)
        self._domains: dict[tuple[str, str | None], Domains] = {}
        self._layouts: dict[str, ByIdentity[Layout]] = {}
        self._occupied: dict[str, ByIdentity[Bools]] = {}
        self._having: dict[tuple[str, ...], Bools] = {}
        self._affinity: ByIdentity[Bools] = ByIdentity()
        self._untolerated: ByIdentity[Bools] = ByIdentity()

    def answers(self, question: Callable[[Node], A], key: Hashable = None) -> list[A]:
        """What each node says to a question. Nodes that change and say the same have not changed for the
        asker.

        `key`: equal for questions that are; by default the question itself.
        """
        self._asked.setdefault(question if key is None else key, question)
        return [question(n) for n in self._nodes]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes as they are: for who asks so, every change of a node matters."""
        self._asked.setdefault(_whole, _whole)
        return self._nodes

    def follow(self, nodes: Iterable[Node]) -> bool:
        """Takes over the nodes as they are by now, if all that was asked has the same answers.

        Then what was worked out holds, and what is asked next is asked of the new ones. If not, nothing is
        taken over, and what rests on the table has to be made again.
        """
        now = _by_name(nodes)
        if tuple(n.name for n in now) != self.names:
            return False
        if any(self.differs(n) for old, n in zip(self._nodes, now, strict=True) if n is not old):
            return False
        self._nodes = now
        self.__dict__.pop("_images", None)
        return True

    def differs(self, node: Node) -> bool:
        """Whether this version of one of the nodes says anything else to what was asked."""
        known = self._nodes[self.index[node.name]]
        return any(ask(node) != ask(known) for ask in self._asked.values())

    def tainted(self, rows: Iterable[int], taints: tuple[Taint, ...]) -> NodeTable:
        """The same nodes, some of them with further taints. What depends on labels alone is shared."""
        nodes = list(self._nodes)
        for row in rows:
            spec = nodes[row].spec
            kept = tuple(t for t in spec.taints if t not in taints)
            nodes[row] = replace(nodes[row], spec=replace(spec, taints=(*kept, *taints)))
        other = NodeTable.__new__(NodeTable)
        other.__dict__.update(self.__dict__)
        other._nodes = tuple(nodes)
        for known in ("_repelling", "_deterring", "taint_keys"):
            other.__dict__.pop(known, None)
        other._untolerated = ByIdentity()
        return other

    @staticmethod
    def of(snapshot: Snapshot) -> NodeTable:
        """The table of a snapshot's nodes."""
        return NodeTable(snapshot.nodes)

    def domains(self, topology_key: str, absent: str | None = None) -> Domains:
        """The nodes by the value of a label. `absent`: the value of nodes without it; None puts them in no
        domain."""
        found = self._domains.get((topology_key, absent))
        if found is None:
            values = self.answers(lambda n: n.labels.get(topology_key), ("label", topology_key))
            found = Domains(absent if v is None else v for v in values)
            self._domains[topology_key, absent] = found
        return found

    @cached_property
    def searched(self) -> Rows:
        """int64[N]: the nodes in the order in which the scheduler looks at them, one of each zone in turn. In
        a zone they are as they came, for which their names stand. Rule: backend/cache/node_tree.go."""
        zones = numbered(np.zeros(self.size, np.int64), [self.domains(k).ids for k in (REGION, ZONE)])
        turns = np.zeros(self.size, np.int64)
        for zone in range(int(zones.max()) + 1):
            rows = np.flatnonzero(zones == zone)
            turns[rows] = np.arange(len(rows))
        return np.lexsort((zones, turns))

    def layout(self, topology_key: str, eligible: Bools) -> Layout:
        """The domains of a key over the eligible nodes. The same array of nodes always gives the same
        object."""
        known = self._layouts.setdefault(topology_key, ByIdentity())
        found = known.get(eligible)
        if found is None:
            domains = self.domains(topology_key)
            found = known.put(Layout(domains.ids, domains.names, domains.ranks, eligible), eligible)
        return found

    def occupied(self, topology_key: str, eligible: Bools) -> Bools:
        """bool[D]: the domains of a key, as in `domains`, with an eligible node. The same array of nodes
        always gives the same object."""
        known = self._occupied.setdefault(topology_key, ByIdentity())
        found = known.get(eligible)
        if found is None:
            found = known.put(self.domains(topology_key).among(eligible), eligible)
            frozen(found)
        return found

    def allocatable(self, resource: str, absent: int = 0) -> Ints:
        """int64[N]: what all pods of each node together may request of a resource; `absent` where the node
        does not have it."""
        given = self.answers(lambda n: n.allocatable.get(resource), ("allocatable", resource))
        return np.array([absent if g is None else g for g in given], dtype=np.int64)

    def image(self, name: str) -> tuple[int, Rows]:
        """An image's size in bytes, as the first node with it says, and the nodes that have it."""
        self._asked.setdefault(("image", name), lambda n: _size(n, name))
        return self._images.get(name, (0, np.array([], dtype=np.intp)))

    @cached_property
    def _images(self) -> dict[str, tuple[int, Rows]]:
        found: dict[str, tuple[int, dict[int, None]]] = {}
        for row, node in enumerate(self._nodes):
            for image in node.status.images:
                for name in image.names:
                    found.setdefault(name, (image.size_bytes, {}))[1][row] = None
        return {name: (size, np.fromiter(rows, dtype=np.intp)) for name, (size, rows) in found.items()}

    def having(self, keys: Iterable[str]) -> Bools:
        """bool[N]: nodes that have all these labels."""
        wanted = tuple(keys)
        found = self._having.get(wanted)
        if found is None:
            found = self.every
            for key in wanted:
                found = found & self.domains(key).present
            frozen(found)
            self._having[wanted] = found
        return found

    @cached_property
    def _repelling(self) -> _Taints:
        return _Taints(self.answers(_repelling))

    @cached_property
    def taint_keys(self) -> frozenset[str]:
        """The keys of all taints."""
        return frozenset().union(*self.answers(_taint_keys))

    @cached_property
    def _deterring(self) -> _Taints:
        return _Taints(self.answers(_deterring))

    def untolerated(self, tolerations: tuple[Toleration, ...]) -> Bools:
        """bool[N]: nodes with a NoSchedule or NoExecute taint that none of the tolerations covers."""
        found = self._untolerated.get(tolerations)
        if found is None:
            mask = self._repelling.uncovered(tolerations) > 0
            frozen(mask)
            found = self._untolerated.put(mask, tolerations)
        return found

    def first_untolerated(self, row: int, tolerations: tuple[Toleration, ...]) -> Taint:
        """The taint that keeps the pod off a node of `untolerated`."""
        return next(t for t in self._repelling.of(row) if not tolerated(t, tolerations))

    def prefer_not(self, tolerations: tuple[Toleration, ...]) -> Ints:
        """int64[N]: how many PreferNoSchedule taints of the node the tolerations do not cover."""
        return self._deterring.uncovered(t for t in tolerations if t.effect in ("", "PreferNoSchedule"))

    def admitted(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that nodeSelector and required node affinity admit.

        Templates that share both get the same array. The same holds for `untolerated` and `having`.
        """
        affinity = template.affinity.node_affinity if template.affinity is not None else None
        required = affinity.required if affinity is not None else None
        if not template.node_selector and required is None:
            return self.every
        key = (template.node_selector or None, required)
        found = self._affinity.get(*key)
        if found is not None:
            return found
        mask = self.every
        for label, value in template.node_selector.items():
            mask = mask & self.requirement_mask(NodeSelectorRequirement(label, "In", (value,)))
        if required is not None:
            mask = mask & self.selector_mask(required)
        frozen(mask)
        return self._affinity.put(mask, *key)

    def selector_mask(self, selector: NodeSelector) -> Bools:
        """bool[N]: nodes that one of the selector's terms matches."""
        mask = self.none
        for term in selector.node_selector_terms:
            mask = mask | self.term_mask(term)
        return mask

    def term_mask(self, term: NodeSelectorTerm) -> Bools:
        """bool[N]: nodes that a term matches."""
        if not term.selects:
            return self.none
        mask = self.every
        for expression in term.match_expressions:
            mask = mask & self.requirement_mask(expression)
        for match_field in term.match_fields:
            if match_field.key != "metadata.name":
                return self.none
            r = Requirement("name", "In" if match_field.operator == "In" else "NotIn", match_field.values)
            mask = mask & np.fromiter((r.matches({"name": n}) for n in self.names), dtype=np.bool_)
        return mask

    def matching(self, selector: Selector) -> Bools:
        """bool[N]: nodes whose labels a selector matches."""
        mask = self.every
        for r in selector.requirements:
            mask = mask & self.requirement_mask(r)
        return mask

    def requirement_mask(self, requirement: NodeSelectorRequirement | Requirement) -> Bools:
        """bool[N]: nodes whose labels satisfy a requirement, judged once for each value that occurs."""
        domains = self.domains(requirement.key)
        by_value = [requirement.matches({requirement.key: name}) for name in domains.names]
        return domains.spread(np.array(by_value, dtype=np.bool_), absent=requirement.matches({}))


class _Taints:
    """The nodes by the taints that they have, of one sort."""

    def __init__(self, by_node: Iterable[tuple[Taint, ...]]) -> None:
        kinds: dict[tuple[Taint, ...], int] = {}
        self._kind: Ids = np.fromiter((kinds.setdefault(t, len(kinds)) for t in by_node), dtype=np.int32)
        self._kinds = tuple(kinds)

    def of(self, row: int) -> tuple[Taint, ...]:
        return self._kinds[self._kind[row]]

    def uncovered(self, tolerations: Iterable[Toleration]) -> Ints:
        """int64[N]: how many of them the tolerations do not cover."""
        given = tuple(tolerations)
        by_kind = [sum(1 for t in taints if not tolerated(t, given)) for taints in self._kinds]
        counts: Ints = np.array(by_kind, dtype=np.int64)[self._kind]
        return counts


def _by_name(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda n: n.name))


def _whole(node: Node) -> Node:
    return node


def _unschedulable(node: Node) -> bool:
    return node.spec.unschedulable


def _taint_keys(node: Node) -> frozenset[str]:
    return frozenset(t.key for t in node.spec.taints)


def _repelling(node: Node) -> tuple[Taint, ...]:
    return tuple(t for t in node.spec.taints if t.effect in FILTERED_EFFECTS)


def _deterring(node: Node) -> tuple[Taint, ...]:
    return tuple(t for t in node.spec.taints if t.effect == "PreferNoSchedule")


def _size(node: Node, name: str) -> int | None:
    return next((i.size_bytes for i in node.status.images if name in i.names), None)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(t.tolerates(taint) for t in tolerations)
