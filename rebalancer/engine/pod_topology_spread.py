"""PodTopologySpread: the filter of hard constraints and the score of soft ones."""

from __future__ import annotations

from rebalancer.engine.cluster import ClusterState
from rebalancer.engine.plugin import UNRESOLVABLE, UNSCHEDULABLE, Filter, Plugin
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.skew import minimum
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


class _Counted:
    """Domain counts of one constraint, kept up to date from the changed nodes."""

    def __init__(self, state: ClusterState, template: PodTemplate, constraint: Constraint) -> None:
        self.constraint = constraint
        self.domains = state.table.domains(constraint.topology_key)
        self.nodes = state.eligible(template, constraint)
        self.eligible = self.domains.among(self.nodes)
        self.self_match = int(constraint.self_match(template.labels))
        self._state = state
        self._measure = SpreadMeasure(constraint.namespace, constraint.selector)
        self._seen: Ints = state.tally.column(self._measure).copy()
        self.counts = self.domains.sum(self._seen, self.nodes)

    def update(self, rows: Rows) -> None:
        now = self._state.tally.column(self._measure)
        for row in rows.tolist():
            change = now[row] - self._seen[row]
            if change:
                self._seen[row] = now[row]
                if self.nodes[row] and (domain := self.domains.ids[row]) >= 0:
                    self.counts[domain] += change

    def fits(self) -> Bools:
        """bool[D]: domains that may take the pod."""
        c = self.constraint
        limit = c.max_skew - self.self_match + minimum(self.counts, self.eligible, c.min_domains)
        return self.counts <= limit


class _Filter(Filter):
    rowwise = False

    def __init__(
        self, state: ClusterState, template: PodTemplate, constraints: tuple[Constraint, ...]
    ) -> None:
        self._counted = tuple(_Counted(state, template, c) for c in constraints)

    def update(self, rows: Rows) -> None:
        for counted in self._counted:
            counted.update(rows)

    def mask(self) -> Bools:
        first, *rest = self._counted
        mask = first.domains.spread(first.fits())
        for counted in rest:
            mask &= counted.domains.spread(counted.fits())
        return mask

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        for counted in self._counted:
            domain = counted.domains.ids[row]
            if domain < 0:
                return UNRESOLVABLE, (NO_LABEL,)
            if not counted.fits()[domain]:
                break
        return UNSCHEDULABLE, (NOT_MATCHED,)
