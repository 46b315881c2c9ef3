"""InterPodAffinity: required and preferred (anti-)affinity between pods, in both directions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rebalancer.engine.plugins.plugin import MAX_SCORE, UNRESOLVABLE, UNSCHEDULABLE, Filter, Plugin, Score
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.interpod_terms import Kind, SelectsAll
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows
from rebalancer.spread.constraint import DomainCounts
from rebalancer.spread.tally import Measure

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class InterPodAffinity(Plugin):
    """Rule: plugins/interpodaffinity/filtering.go, scoring.go."""

    name = "InterPodAffinity"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects by the pod's required terms and by the required anti-affinity of placed pods."""
        return _Filter(self.state, template)

    def score(self, template: PodTemplate) -> Score | None:
        """Preferred terms of the pod and of placed pods, and required affinity of placed pods."""
        terms = self.state.terms.of(template)
        if self.profile.ignore_preferred_terms_of_existing_pods and not (
            terms.preferred or terms.preferred_anti
        ):
            return None
        return _Score(self.state, template, self.profile.hard_pod_affinity_weight)


def _count(state: ClusterState, measure: Measure, topology_key: str) -> DomainCounts:
    return DomainCounts(state.tally, measure, state.table.domains(topology_key), state.table.every)


class _Existing:
    """Terms of one kind that placed pods carry and that select the incoming pod."""

    def __init__(self, state: ClusterState, template: PodTemplate, kind: Kind) -> None:
        self._state = state
        self._template = template
        self._kind: Kind = kind
        self._looked_at = 0
        self.counts: list[DomainCounts] = []
        self.extend()

    def extend(self) -> None:
        """Takes in terms that were first carried since the last look."""
        terms = self._state.terms
        if (known := len(terms.carried[self._kind])) > self._looked_at:
            for measure in terms.selecting(self._template, self._kind, self._looked_at):
                self.counts.append(_count(self._state, measure, measure.term.topology_key))
            self._looked_at = known

    def update(self, rows: Rows) -> None:
        for counts in self.counts:
            counts.update(rows)
        self.extend()


class _Filter(Filter):
    rowwise = False

    def __init__(self, state: ClusterState, template: PodTemplate) -> None:
        terms = state.terms.of(template)
        self._state = state
        self._existing = _Existing(state, template, "required anti")
        wanted = tuple(state.terms.selects(t) for t, _ in terms.required)
        self._affinity = [_count(state, SelectsAll(wanted), t.topology_key) for t, _ in terms.required]
        self._self_match = all(s.weigh(template) for s in wanted)
        self._anti = [_count(state, state.terms.selects(t), t.topology_key) for t, _ in terms.required_anti]

    @property
    def skipped(self) -> bool:  # type: ignore[override]
        """Nothing of the pod's own, and no placed pod minds it."""
        return not (self._affinity or self._anti or any(c.counts.any() for c in self._existing.counts))

    def update(self, rows: Rows) -> None:
        for counts in (*self._affinity, *self._anti):
            counts.update(rows)
        self._existing.update(rows)

    def mask(self) -> Bools:
        return (
            self._attracted()
            & ~_inside(self._anti, self._state)
            & ~_inside(self._existing.counts, self._state)
        )

    def _attracted(self) -> Bools:
        """Every term's domain holds a pod that all terms select; the first pod may select itself."""
        mask = self._state.table.every
        first = self._self_match and not any(c.counts.any() for c in self._affinity)
        for counts in self._affinity:
            mask = mask & (counts.domains.present if first else counts.domains.spread(counts.counts > 0))
        return mask

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        if not self._attracted()[row]:
            return UNRESOLVABLE, (AFFINITY,)
        if _inside(self._anti, self._state)[row]:
            return UNSCHEDULABLE, (ANTI_AFFINITY,)
        return UNSCHEDULABLE, (EXISTING,)


def _inside(every: Iterable[DomainCounts], state: ClusterState) -> Bools:
    """bool[N]: nodes in a domain that one of the counts is positive in."""
    mask = state.table.none
    for counts in every:
        if counts.counts.any():
            mask = mask | counts.domains.spread(counts.counts > 0)
    return mask


class _Score(Score):
    def __init__(self, state: ClusterState, template: PodTemplate, hard_weight: int) -> None:
        terms = state.terms.of(template)
        self._state = state
        self._own: list[tuple[int, DomainCounts]] = [
            (sign * weight, _count(state, state.terms.selects(term), term.topology_key))
            for sign, group in ((1, terms.preferred), (-1, terms.preferred_anti))
            for term, weight in group
        ]
        self._existing: list[tuple[int, _Existing]] = [
            (1, _Existing(state, template, "preferred")),
            (-1, _Existing(state, template, "preferred anti")),
        ]
        if hard_weight > 0:
            self._existing.append((hard_weight, _Existing(state, template, "required")))

    def update(self, rows: Rows) -> None:
        for _, counts in self._own:
            counts.update(rows)
        for _, existing in self._existing:
            existing.update(rows)

    def values(self, feasible: Bools) -> Ints | None:
        weighted = [(w, c) for w, c in self._own if c.counts.any()]
        weighted += [(w, c) for w, e in self._existing for c in e.counts if c.counts.any()]
        if not weighted:
            return None
        raw: Ints = np.zeros(self._state.table.size, dtype=np.int64)
        for weight, counts in weighted:
            raw += weight * counts.domains.values(counts.counts) * counts.domains.present
        scored = raw[feasible]
        lowest, highest = (int(scored.min()), int(scored.max())) if len(scored) else (0, 0)
        if highest == lowest:
            return np.zeros(len(raw), dtype=np.int64)
        return (float(MAX_SCORE) * ((raw - lowest) / float(highest - lowest))).astype(np.int64)
