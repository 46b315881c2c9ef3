"""Constraint groups: each resolved constraint with its eligible nodes, once, however many pods carry it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from rebalancer.bulk_work import remembered
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.interpod_terms import SelectsAll
from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import PodAffinityTerm, PodTemplate
from rebalancer.model.selectors import canonical
from rebalancer.spread import constraint as skew
from rebalancer.spread.arrays import Bools, Ints
from rebalancer.spread.constraint import Constraint


class Group:
    """A constraint over one set of eligible nodes.

    `domain_of`: int64[N], each node's domain, -1 where the node is not eligible; `names[d]` is the label
    value.
    """

    def __init__(self, index: int, constraint: Constraint, eligible: Bools, state: ClusterState) -> None:
        self.index = index
        self.constraint = constraint
        self.layout = state.table.layout(constraint.topology_key, eligible)
        self.names, self.domain_of = self.layout.names, self.layout.rows
        self.eligible = eligible
        self.size = len(self.names)
        self.enough_domains = self.size >= constraint.min_domains

    def counts(self, state: ClusterState) -> Ints:
        """int64[D]: pods that the scheduler counts in each domain."""
        per_node = state.counts(self.constraint.namespace, self.constraint.selector)
        return self.layout.by_domain_of_few(per_node)

    def counts_once(self, state: ClusterState) -> Ints:
        """`counts` of one of thousands of groups, most of which nobody asks about again."""
        return state.by_domain_once(self.constraint.namespace, self.constraint.selector, self.layout)

    def by_domain(self, per_node: Ints) -> Ints:
        """int64[D] of an int64[N]."""
        return self.layout.by_domain(per_node)

    def minimum(self, counts: Ints) -> int:
        """The global minimum; 0 with fewer eligible domains than minDomains."""
        return skew.minimum(counts, self.constraint.min_domains)

    def skew(self, counts: Ints) -> int:
        """Highest count minus the global minimum."""
        return skew.skew(counts, self.constraint.min_domains)

    def excess(self, counts: Ints) -> int:
        """What of the skew exceeds maxSkew."""
        return skew.excess(counts, self.constraint.max_skew, self.constraint.min_domains)

    def admits(self, counts: Ints, more: int = 1) -> Bools:
        """bool[D]: domains that the filter leaves to a pod that carries the constraint. `more`: how many more
        count then; 0 where it replaces one: without that the lowest count is the same, or its domain's."""
        admitted: Bools = counts + more - self.minimum(counts) <= self.constraint.max_skew
        return admitted

    def keeps_out(self, counts: Ints, node: int, state: ClusterState) -> bool:
        """Whether the constraint, carried, rejects the node for the replacement of a pod that leaves it."""
        if (leaves := int(self.domain_of[node])) < 0:
            return not state.table.having([self.constraint.topology_key])[node]
        return not self.admits(counts, 0)[leaves]

    def excess_after(self, counts: Ints, leaves: int, into: Ints, more: int = 1) -> Ints:
        """int64[len(into)]: the excess after a pod went from domain `leaves`, and so many came to one of the
        domains `into`, for each. A domain of -1 counts nobody."""
        less = counts.copy()
        if leaves >= 0:
            less[leaves] -= 1
        padded = np.append(less, np.iinfo(np.int64).min)
        highest = np.maximum(less.max(), padded[into] + more)
        lowest = np.zeros(len(into), dtype=np.int64)
        if self.enough_domains:
            low = less.min()
            lowest += low
            if np.count_nonzero(less == low) == 1:
                lowest[padded[into] == low] = np.min(less, where=less > low, initial=low + more)
        result: Ints = np.maximum(highest - lowest - self.constraint.max_skew, 0)
        return result


Label = tuple[str, str, str]
"""A namespace, a label's key and its value; "" and "" for any."""


def filed_under(template: PodTemplate) -> Iterator[Label]:
    """The labels of a pod, and any."""
    yield from ((template.namespace, k, v) for k, v in (("", ""), *template.labels.items()))


def fewest(constraint: Constraint, number: Callable[[Label], int]) -> Sequence[Label]:
    """Labels of which a pod that the constraint counts must have one: those for which the numbers are
    smallest in all. Any, if there are none; nothing, if it counts nobody."""
    namespace, selector = constraint.namespace, constraint.selector
    if selector is None:
        return ()
    named = [[(namespace, r.key, v) for v in r.values] for r in selector.requirements if r.operator == "In"]
    return min(named or [[(namespace, "", "")]], key=lambda labels: sum(map(number, labels)))


class Groups:
    """All groups of a cluster, and which of them a template carries and which count it.

    Groups are known by the templates they are made of. What is asked about later (a replacement, say) may
    carry further ones; these are listed, but count nobody.
    """

    def __init__(
        self,
        state: ClusterState,
        templates: Iterable[PodTemplate],
        *,
        hard: bool = True,
        soft: bool = False,
    ) -> None:
        """Of DoNotSchedule constraints (`hard`), of ScheduleAnyway ones (`soft`), or of both."""
        self._state = state
        self._kinds = (*((True,) if hard else ()), *((False,) if soft else ()))
        self.all: list[Group] = []
        self._index: dict[tuple[Constraint, int], int] = {}
        self._masks: dict[bytes, int] = {}
        self._counting: dict[Label, list[Group]] = {}
        for t in templates:
            self.carried(t)
        for g in self.all:
            self._file(g)

    @remembered()
    def carried(self, template: PodTemplate) -> tuple[int, ...]:
        """Indices of the groups of the template's own constraints, in its order, the hard ones first."""
        state = self._state
        return tuple(
            self._group(c, state.eligible(template, c))
            for hard in self._kinds
            for c in state.constraints(template, hard)
        )

    @remembered()
    def counted(self, template: PodTemplate) -> tuple[int, ...]:
        """Indices of the groups that count a pod of this template."""
        namespace = template.namespace
        return tuple(
            sorted(
                g.index
                for key in filed_under(template)
                for g in self._counting.get(key, ())
                if g.constraint.counts(namespace, template.labels)
            )
        )

    def _file(self, group: Group) -> None:
        """Where `counted` finds the group: under labels of which a pod must have one, else under ""."""
        for key in fewest(group.constraint, lambda key: len(self._counting.get(key, ()))):
            self._counting.setdefault(key, []).append(group)

    def _group(self, constraint: Constraint, eligible: Bools) -> int:
        key = (constraint, self._number(eligible))
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.all)
            self.all.append(Group(found, constraint, eligible, self._state))
        return found

    @remembered()
    def _number(self, eligible: Bools) -> int:
        """Equal for equal sets of nodes. Few arrays occur, and each for many constraints."""
        return self._masks.setdefault(eligible.tobytes(), len(self._masks))


# Whether pods can get in each other's way by more than room: ports, volumes and required (anti-)affinity.


def conflicts_at_all(template: PodTemplate, *, volumes: bool = True) -> bool:
    """Whether a pod can conflict with any other; two that cannot never conflict with each other. `volumes`:
    by what it mounts, too."""
    return bool((volumes and template.attaches) or template.host_ports or _terms(template))


def can_open(state: ClusterState, placed: PodTemplate, waiting: PodTemplate) -> bool:
    """Whether a placement of the one can open a node to the other."""
    near = tuple(state.terms.selects(term) for term, _ in state.terms.of(waiting).required)
    if near and SelectsAll(near).weigh(placed):
        return True
    return any(c.counts(placed.namespace, placed.labels) for c in state.constraints(waiting, hard=True))


def shuts(state: ClusterState, placed: PodTemplate, waiting: PodTemplate) -> set[str]:
    """The topology keys of the domains, its node among them, that a placement of the one can shut to the
    other by more than room and volumes."""
    every = state.constraints(waiting, hard=True)
    counted = (c.topology_key for c in every if c.counts(placed.namespace, placed.labels))
    return {*counted, *repels(placed, waiting), *([HOSTNAME] if _share_a_port(placed, waiting) else ())}


def can_draw(placed: PodTemplate, waiting: PodTemplate) -> bool:
    """Whether the one is something that the other needs near it."""
    near = waiting.affinity.pod_affinity if waiting.affinity is not None else None
    return near is not None and any(_chosen(t, waiting, placed) for t in near.required)


def can_conflict(one: PodTemplate, other: PodTemplate, *, beyond_node: bool = False) -> bool:
    """Whether where the one is placed can matter to the other; `beyond_node`: on other nodes, too."""
    if not beyond_node:
        if one.attaches and other.attaches:
            return True
        if _share_a_port(one, other):
            return True
    return _selects(one, other, beyond_node) or _selects(other, one, beyond_node)


def _share_a_port(one: PodTemplate, other: PodTemplate) -> bool:
    ports = {(p.port, p.protocol) for p in one.host_ports} if other.host_ports else ()
    return any((p.port, p.protocol) in ports for p in other.host_ports)


def repels(one: PodTemplate, other: PodTemplate) -> tuple[str, ...]:
    """The topology keys by which required anti-affinity of one of them may keep the other off."""
    return tuple(
        t.topology_key
        for a, b in ((one, other), (other, one))
        if a.affinity is not None and a.affinity.pod_anti_affinity is not None
        for t in a.affinity.pod_anti_affinity.required
        if _chosen(t, a, b)
    )


def keep_apart(one: PodTemplate, other: PodTemplate) -> bool:
    """Whether required anti-affinity of one of them surely keeps the two from ever sharing a node."""
    return _keeps_off(one, other) or _keeps_off(other, one)


def _keeps_off(one: PodTemplate, other: PodTemplate) -> bool:
    anti = one.affinity.pod_anti_affinity if one.affinity is not None else None
    return any(
        t.topology_key == HOSTNAME
        and t.label_selector is not None
        and other.namespace in (t.namespaces or (one.namespace,))
        and canonical(t.label_selector).matches(other.labels)
        for t in (anti.required if anti is not None else ())
    )


class Conflicts:
    """The replacements of one wave, as far as they can conflict."""

    def __init__(self) -> None:
        self._members: dict[int, PodTemplate] = {}
        self._ports: set[tuple[int, str]] = set()
        self._coupled: dict[int, PodTemplate] = {}

    def any_with(self, template: PodTemplate) -> bool:
        """Whether a newcomer could be in the way of a member, or a member in its."""
        if template.attaches and any(m.attaches for m in self._members.values()):
            return True
        if any((p.port, p.protocol) in self._ports for p in template.host_ports):
            return True
        if any(_selects(member, template) for member in self._coupled.values()):
            return True
        return bool(_terms(template)) and any(_selects(template, m) for m in self._members.values())

    def add(self, template: PodTemplate) -> None:
        """Takes a newcomer in."""
        self._members[id(template)] = template
        self._ports.update((p.port, p.protocol) for p in template.host_ports)
        if _terms(template):
            self._coupled[id(template)] = template


def _terms(template: PodTemplate) -> tuple[PodAffinityTerm, ...]:
    a = template.affinity
    if a is None:
        return ()
    return tuple(
        t for part in (a.pod_affinity, a.pod_anti_affinity) if part is not None for t in part.required
    )


def _selects(one: PodTemplate, other: PodTemplate, beyond_node: bool = False) -> bool:
    """Whether a required term of `one` may select `other`; a namespaceSelector may select any namespace."""
    terms = (t for t in _terms(one) if not beyond_node or t.topology_key != HOSTNAME)
    return any(_chosen(t, one, other) for t in terms)


def _chosen(term: PodAffinityTerm, one: PodTemplate, other: PodTemplate) -> bool:
    if term.label_selector is None:
        return False
    inside = term.namespace_selector is not None or other.namespace in (term.namespaces or (one.namespace,))
    return inside and canonical(term.label_selector).matches(other.labels)
