"""The nodes of a snapshot as columns, and what depends on nodes and pod templates alone.

Nodes do not change while a plan is made. So each question about them (in which zone is it, does the
template's affinity admit it, does it tolerate the taints) is answered once, for all nodes together, and
remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from rebalancer.model.node import Node, Taint, Toleration
from rebalancer.model.pod import PodTemplate
from rebalancer.model.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Requirement
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.arrays import Bools, Ids, Ints, Rows, frozen
from rebalancer.spread.layout import Layout, ranks

T = TypeVar("T", bound=np.generic)
V = TypeVar("V")

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
    """The nodes of one snapshot, sorted by name; every array is indexed by a node's place in `names`."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        """A table of nodes in any order; names are unique."""
        self.nodes = tuple(sorted(nodes, key=lambda n: n.name))
        self.names = tuple(n.name for n in self.nodes)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.size = len(self.nodes)
        self.every: Bools = np.ones(self.size, dtype=np.bool_)
        self.none: Bools = np.zeros(self.size, dtype=np.bool_)
        self.unschedulable: Bools = np.fromiter((n.spec.unschedulable for n in self.nodes), dtype=np.bool_)
        for array in (self.every, self.none, self.unschedulable):
            frozen(array)
        self._domains: dict[tuple[str, str | None], Domains] = {}
        self._layouts: dict[str, ByIdentity[Layout]] = {}
        self._occupied: dict[str, ByIdentity[Bools]] = {}
        self._having: dict[tuple[str, ...], Bools] = {}
        self._affinity: ByIdentity[Bools] = ByIdentity()
        self._number_taints()

    def _number_taints(self) -> None:
        kinds: dict[tuple[Taint, ...], int] = {}
        self._taint_kind: Ids = np.fromiter(
            (kinds.setdefault(n.spec.taints, len(kinds)) for n in self.nodes), dtype=np.int32
        )
        self._taints = tuple(kinds)
        self._untolerated: ByIdentity[Bools] = ByIdentity()

    def tainted(self, rows: Iterable[int], taints: tuple[Taint, ...]) -> NodeTable:
        """The same nodes, some of them with further taints. What depends on labels alone is shared."""
        nodes = list(self.nodes)
        for row in rows:
            spec = nodes[row].spec
            kept = tuple(t for t in spec.taints if t not in taints)
            nodes[row] = replace(nodes[row], spec=replace(spec, taints=(*kept, *taints)))
        other = NodeTable.__new__(NodeTable)
        other.__dict__.update(self.__dict__)
        other.nodes = tuple(nodes)
        other._number_taints()
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
            found = Domains(n.labels.get(topology_key, absent) for n in self.nodes)
            self._domains[topology_key, absent] = found
        return found

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

    @cached_property
    def images(self) -> dict[str, tuple[int, Rows]]:
        """Image name → its size in bytes, as the first node with it says, and the nodes that have it."""
        found: dict[str, tuple[int, dict[int, None]]] = {}
        for row, node in enumerate(self.nodes):
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

    def _by_taints(self, by_kind: Bools) -> Bools:
        mask: Bools = by_kind[self._taint_kind] if self.size else self.none
        frozen(mask)
        return mask

    def untolerated(self, tolerations: tuple[Toleration, ...]) -> Bools:
        """bool[N]: nodes with a NoSchedule or NoExecute taint that none of the tolerations covers."""
        found = self._untolerated.get(tolerations)
        if found is not None:
            return found
        by_kind = [
            any(t.effect in FILTERED_EFFECTS and not tolerated(t, tolerations) for t in taints)
            for taints in self._taints
        ]
        return self._untolerated.put(self._by_taints(np.array(by_kind, dtype=np.bool_)), tolerations)

    def prefer_not(self, tolerations: tuple[Toleration, ...]) -> Ints:
        """int64[N]: how many PreferNoSchedule taints of the node the tolerations do not cover."""
        relevant = tuple(t for t in tolerations if t.effect in ("", "PreferNoSchedule"))
        by_kind = [
            sum(1 for t in taints if t.effect == "PreferNoSchedule" and not tolerated(t, relevant))
            for taints in self._taints
        ]
        counts: Ints = np.array(by_kind, dtype=np.int64)[self._taint_kind]
        return counts

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
        """bool[N]: nodes that a term matches; a term without requirements matches none."""
        if not term.match_expressions and not term.match_fields:
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

    def requirement_mask(self, requirement: NodeSelectorRequirement) -> Bools:
        """bool[N]: nodes whose labels satisfy a requirement, judged once for each value that occurs."""
        domains = self.domains(requirement.key)
        by_value = [requirement.matches({requirement.key: name}) for name in domains.names]
        return domains.spread(np.array(by_value, dtype=np.bool_), absent=requirement.matches({}))


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(t.tolerates(taint) for t in tolerations)
