"""Whether a replacement could go right back to where its pod was: asked of many nodes in one go.

In a healthy cluster it can for nearly every pod, so that the engine is asked only about the others. A yes
means that the pod can be replaced. A no says nothing yet, because another node may take the replacement.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.engine.plugins.node_unschedulable import CORDON
from rebalancer.engine.state.cluster import PODS, ClusterState
from rebalancer.engine.state.interpod_terms import Carries
from rebalancer.findings.checks.replacing.kept import Kept
from rebalancer.model.pod import PodTemplate
from rebalancer.planner.cluster.groups import Group
from rebalancer.spread.arrays import Bools, Ints, Rows
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import tolerated


class Back(Struct, frozen=True, eq=False):
    """For each of the rows: whether the replacement `fits` there, bool[R], and `lowers`, bool[R, C]: whether
    the pod's end lowers the global minimum of each constraint."""

    fits: Bools
    lowers: Bools


class BackAgain:
    """The question, over one state of the cluster."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._groups: dict[tuple[Constraint, int], tuple[Bools, Group, Ints]] = {}
        self._apart: dict[str, list[Carries]] = {}
        self._apart_anywhere: list[Carries] = []
        for carried in state.terms.carried["required anti"]:
            if carried.term.namespace_selector is not None:
                self._apart_anywhere.append(carried)
            else:
                for namespace in carried.term.namespaces:
                    self._apart.setdefault(namespace, []).append(carried)
        self._nominated = {placed.row for placed in state.nominated.values()}

    def of(self, kept: Kept, rows: Rows) -> Back:
        """Whether each of the nodes would take the replacement of its own pod, with that pod gone."""
        state, table, new = self._state, self._state.table, kept.replacement
        fits = table.admitted(new)[rows] & ~table.untolerated(new.tolerations)[rows]
        if not tolerated(CORDON, new.tolerations):
            fits = fits & ~table.unschedulable[rows]
        if self._nominated:
            fits = fits & ~np.isin(rows, list(self._nominated))
        if self.minds_others(new) or set(new.host_ports) - set(kept.template.host_ports):
            fits = np.zeros(len(rows), dtype=np.bool_)
        for resource, amount in (*new.requests.items(), (PODS, 1)):
            own = kept.template.requests.get(resource, 0) if resource != PODS else 1
            free = state.allocatable(resource)[rows] - state.requested[resource][rows] + own
            fits = fits & (free >= amount)
        lowers = []
        for constraint in state.constraints(new, hard=True):
            admitted, lower = self._spread(constraint, kept, rows)
            fits = fits & admitted
            lowers.append(lower)
        every = np.array(lowers, dtype=np.bool_).T.reshape(len(rows), len(lowers))
        return Back(fits, every)

    def minds_others(self, template: PodTemplate) -> bool:
        """Whether required (anti-)affinity has a say in where the pod goes: its own, or that of others."""
        terms = self._state.terms.of(template)
        if terms.required or terms.required_anti:
            return True
        labels = self._state.terms.labels(template.namespace)
        around = (*self._apart.get(template.namespace, ()), *self._apart_anywhere)
        return any(c.term.matches(template, labels) for c in around)

    def _spread(self, constraint: Constraint, kept: Kept, rows: Rows) -> tuple[Bools, Bools]:
        """(whether it takes the replacement where its pod was, whether that pod's end lowers the minimum)"""
        group, counts = self._group(constraint, kept.replacement)
        domains = group.domain_of[rows]
        inside = domains >= 0
        if not group.size:
            return inside, np.zeros(len(rows), dtype=np.bool_)
        minimum = group.minimum(counts)
        counted = int(constraint.counts(kept.template.namespace, kept.template.labels))
        left = counts[np.maximum(domains, 0)] - counted
        after = np.minimum(minimum, left) if group.enough_domains else np.full(len(rows), minimum)
        own = int(constraint.self_match(kept.replacement.labels))
        admitted: Bools = inside & (left + own - after <= constraint.max_skew)
        lower: Bools = inside & (after < minimum)
        return admitted, lower

    def _group(self, constraint: Constraint, template: PodTemplate) -> tuple[Group, Ints]:
        eligible = self._state.eligible(template, constraint)
        key = constraint, id(eligible)
        found = self._groups.get(key)
        if found is None:
            group = Group(-1, constraint, eligible, self._state)
            found = self._groups[key] = eligible, group, group.counts_once(self._state)
        return found[1], found[2]
