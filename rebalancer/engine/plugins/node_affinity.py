"""NodeAffinity: nodeSelector, required and preferred node affinity, and the profile's addedAffinity."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.plugins.plugin import (
    UNRESOLVABLE,
    DefaultNormalized,
    Filter,
    Plugin,
    Rejection,
    Score,
    StaticFilter,
)
from rebalancer.model.pod import NodeAffinity as Affinity
from rebalancer.model.pod import PodTemplate, PreferredSchedulingTerm
from rebalancer.model.selectors import NodeSelectorTerm
from rebalancer.spread.arrays import Bools, Ints

POD = "node(s) didn't match Pod's node affinity/selector"
CONFLICT = "pod affinity terms conflict"
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"


class NodeAffinity(Plugin):
    """Rule: plugins/nodeaffinity/node_affinity.go."""

    name = "NodeAffinity"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes that the profile's or the pod's own affinity does not admit."""
        affinity = _node_affinity(template)
        required = affinity.required if affinity is not None else None
        if self._added is None and required is None and not template.node_selector:
            return None
        found = _Filter(self.table.admitted(template), UNRESOLVABLE, POD)
        if self._added is not None:
            found.enforce(self._added)
        if required is not None:
            names = named_nodes(required.node_selector_terms)
            if names is not None and not names:
                found.blocked = Rejection(self.name, UNRESOLVABLE, (CONFLICT,))
            elif names is not None:
                found.only = np.fromiter((n in names for n in self.table.names), dtype=np.bool_)
        return found

    @property
    def _added(self) -> Bools | None:
        added = self.profile.added_affinity
        if added is None or added.required is None:
            return None
        return self.table.selector_mask(added.required)

    def score(self, template: PodTemplate) -> Score | None:
        """The weights of the preferred terms that match, the profile's and the pod's."""
        affinity = _node_affinity(template)
        terms = (*_preferred(self.profile.added_affinity), *_preferred(affinity))
        if not terms:
            return None
        raw: Ints = np.zeros(self.table.size, dtype=np.int64)
        for term in terms:
            if term.weight:
                raw += term.weight * self.table.term_mask(term.preference)
        return DefaultNormalized(raw, reverse=False)


class _Filter(StaticFilter):
    _enforced: Bools | None = None

    def enforce(self, added: Bools) -> None:
        """Takes the profile's affinity in, which is asked first."""
        self._enforced = added
        self._mask = self._mask & added

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        if self._enforced is not None and not self._enforced[row]:
            return UNRESOLVABLE, (ENFORCED,)
        return super().reject(row)


def _node_affinity(template: PodTemplate) -> Affinity | None:
    return template.affinity.node_affinity if template.affinity is not None else None


def _preferred(affinity: Affinity | None) -> tuple[PreferredSchedulingTerm, ...]:
    return affinity.preferred if affinity is not None else ()


def named_nodes(terms: tuple[NodeSelectorTerm, ...]) -> frozenset[str] | None:
    """The nodes that PreFilter narrows the search to: every term names some by metadata.name In [one].

    Names of several such requirements in one term intersect; None = no narrowing.
    """
    names: frozenset[str] = frozenset()
    for term in terms:
        named: frozenset[str] | None = None
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                values = frozenset(field.values)
                named = values if named is None else named & values
        if named is None:
            return None
        names |= named
    return names if terms else None
