"""PodTopologySpread: the filter of hard constraints and the score of soft ones."""

from __future__ import annotations

import math

import numpy as np

from rebalancer.engine.plugins.plugin import MAX_SCORE, UNRESOLVABLE, UNSCHEDULABLE, Filter, Plugin, Score
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Floats, Ints, Rows
from rebalancer.spread.constraint import Constraint, DomainCounts, minimum
from rebalancer.spread.tally import SpreadMeasure

NOT_MATCHED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = NOT_MATCHED + " (missing required label)"


class PodTopologySpread(Plugin):
    """Rule: plugins/podtopologyspread/filtering.go, scoring.go."""

    name = "PodTopologySpread"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes whose domain would exceed maxSkew."""
        constraints = self.state.constraints(template, hard=True)
        return _Filter(self.state, template, constraints) if constraints else None

    def score(self, template: PodTemplate) -> Score | None:
        """Fewer matching pods in the node's domains are better."""
        constraints = self.state.constraints(template, hard=False)
        return _Score(self.state, template, constraints) if constraints else None


def _measure(constraint: Constraint) -> SpreadMeasure:
    return SpreadMeasure(constraint.namespace, constraint.selector)


class _Counted:
    """One hard constraint with its domain counts."""

    def __init__(self, state: ClusterState, template: PodTemplate, constraint: Constraint) -> None:
        nodes = state.eligible(template, constraint)
        self.domains = state.table.domains(constraint.topology_key)
        self.by_domain = DomainCounts(state.tally, _measure(constraint), self.domains, nodes)
        self._eligible = state.table.occupied(constraint.topology_key, nodes)
        self._state = state
        self._namespace = constraint.namespace
        self._empty_selector = constraint.selector is not None and constraint.selector.empty
        self._min_domains = constraint.min_domains
        self._margin = constraint.max_skew - int(constraint.self_match(template.labels))
        self.words = f"maxSkew {constraint.max_skew} over {constraint.topology_key}"

    def fits(self) -> Bools:
        """bool[D]: domains that may take the pod."""
        counts, most = self.judged()
        return counts <= most

    def judged(self) -> tuple[Ints, int]:
        """int64[D]: the pods of each domain, and with how many of them it still takes the pod."""
        counts = self.by_domain.counts
        if self._empty_selector and self._state.guests is not None:
            counts = self._with_guests(*self._state.guests)
        return counts, self._margin + minimum(counts, self._min_domains, self._eligible)

    def _with_guests(self, row: int, guests: tuple[PodTemplate, ...]) -> Ints:
        """Upstream counts nominated pods (``updateWithPod``) for an empty selector, though no others."""
        counts = self.by_domain.counts.copy()
        domain = self.domains.ids[row]
        if domain >= 0 and self.by_domain.nodes[row]:
            counts[domain] += sum(g.namespace == self._namespace for g in guests)
        return counts


class _Filter(Filter):
    rowwise = False

    def __init__(
        self, state: ClusterState, template: PodTemplate, constraints: tuple[Constraint, ...]
    ) -> None:
        self._counted = tuple(_Counted(state, template, c) for c in constraints)

    def update(self, rows: Rows) -> None:
        for counted in self._counted:
            counted.by_domain.update(rows)

    def mask(self) -> Bools:
        first, *rest = self._counted
        mask = first.domains.spread(first.fits())
        for counted in rest:
            mask &= counted.domains.spread(counted.fits())
        return mask

    def questions(self) -> tuple[tuple[str, Bools], ...]:
        return tuple((c.words, c.domains.spread(c.fits())) for c in self._counted)

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        for counted in self._counted:
            domain = counted.domains.ids[row]
            if domain < 0:
                return UNRESOLVABLE, (NO_LABEL,)
            if not counted.fits()[domain]:
                break
        return UNSCHEDULABLE, (NOT_MATCHED,)

    def close(self, row: int) -> bool:
        over = {
            int(counts[c.domains.ids[row]]) - most for c in self._counted for counts, most in [c.judged()]
        }
        return over == {0} or max(over) == 1


class _Soft:
    """One soft constraint with its domain counts."""

    def __init__(
        self, state: ClusterState, template: PodTemplate, constraint: Constraint, keyed: bool
    ) -> None:
        table, key = state.table, constraint.topology_key
        self.per_node = key == HOSTNAME
        self.labelled = table.domains(key)
        # Under system defaults a node without the label forms a domain of its own, named "".
        self.domains = table.domains(key, None if keyed else "")
        self.by_domain = DomainCounts(
            state.tally, _measure(constraint), self.domains, state.eligible(template, constraint)
        )
        self.extra = float(constraint.max_skew - 1)
        self.weight = 0.0

    def weigh(self, candidates: Bools) -> None:
        """The candidates changed: with them the number of domains that the score is scaled by."""
        size = np.count_nonzero(candidates if self.per_node else self.domains.among(candidates))
        self.weight = math.log(size + 2)

    def raw(self) -> Floats:
        """float64[N]: the constraint's share of the score; 0 on nodes without its label."""
        if self.per_node:
            raw: Floats = self.by_domain.on_node * self.weight + self.extra
        else:
            raw = self.domains.values(self.by_domain.counts * self.weight + self.extra)
        return raw if self.labelled.all_present else raw * self.labelled.present


class _Score(Score):
    def __init__(
        self, state: ClusterState, template: PodTemplate, constraints: tuple[Constraint, ...]
    ) -> None:
        keyed = state.requires_all_keys(template, hard=False)
        self._soft = tuple(_Soft(state, template, c, keyed) for c in constraints)
        self._scored = state.table.having(c.topology_key for c in constraints) if keyed else state.table.every
        self._candidates: Bools | None = None

    def update(self, rows: Rows) -> None:
        for soft in self._soft:
            soft.by_domain.update(rows)

    def values(self, feasible: Bools) -> Ints:
        candidates = feasible & self._scored
        if self._candidates is None or not np.array_equal(candidates, self._candidates):
            self._candidates = candidates
            for soft in self._soft:
                soft.weigh(candidates)
        total = self._soft[0].raw()
        for soft in self._soft[1:]:
            total = total + soft.raw()
        raw: Ints = (total + 0.5).astype(np.int64)  # rounds: scores are not negative
        judged = raw[candidates]
        highest = int(judged.max(initial=0))
        if highest == 0:
            return MAX_SCORE * self._scored
        lowest = int(judged.min())
        return MAX_SCORE * (highest + lowest - raw) // highest * self._scored
