"""Whether a replacement could go right back to where its pod was: asked of many nodes in one go.

In a healthy cluster it can for nearly every pod, so that the engine is asked only about the others. A yes
means that the pod can be replaced. A no says nothing yet, because another node may take the replacement.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.engine.plugins.node_unschedulable import CORDON
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.interpod_terms import Carries
from rebalancer.findings.checks.replacing.kept import Kept
from rebalancer.model.pod import PodTemplate
from rebalancer.planner.cluster.groups import Group
from rebalancer.spread.arrays import Bools, Ints, Rows
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import ByIdentity, tolerated


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
        self._nodes: ByIdentity[Bools] = ByIdentity()
        self._over: dict[str, bool] = {}
        self._nominated = {placed.row for placed in state.nominated.values()}

    def all(self, kept: Kept) -> bool:
        """Whether every one of them surely could, asked of domains and not of nodes."""
        new, own = kept.replacement, kept.template
        nodes, held = self._state.tally.nodes(own), dict(self._state.holds(own))
        return (
            not self._nominated
            and not self.minds_others(new)
            and not set(new.host_ports) - set(own.host_ports)
            and bool(self._usable(new)[nodes].all())
            and all(
                held.get(resource, 0) >= amount and not self._overcommitted(resource)
                for resource, amount in self._state.asks(new)
            )
            and all(self._holds(c, kept, nodes) for c in self._state.constraints(new, hard=True))
        )

    def of(self, kept: Kept, rows: Rows) -> Back:
        """Whether each of the nodes would take the replacement of its own pod, with that pod gone."""
        state, new = self._state, kept.replacement
        fits = self._usable(new)[rows]
        if self._nominated:
            fits = fits & ~np.isin(rows, list(self._nominated))
        if self.minds_others(new) or set(new.host_ports) - set(kept.template.host_ports):
            fits = np.zeros(len(rows), dtype=np.bool_)
        held = dict(state.holds(kept.template))
        for resource, amount in state.asks(new):
            free = state.allocatable(resource)[rows] - state.requested[resource][rows] + held.get(resource, 0)
            fits = fits & (free >= amount)
        lowers = []
        for constraint in state.constraints(new, hard=True):
            admitted, lower = self._spread(constraint, kept, rows)
            fits = fits & admitted
            lowers.append(lower)
        every = np.array(lowers, dtype=np.bool_).T.reshape(len(rows), len(lowers))
        return Back(fits, every)

    def _usable(self, new: PodTemplate) -> Bools:
        """bool[N]: nodes that the pod may use, for what they are."""
        table = self._state.table
        shut = table.none if tolerated(CORDON, new.tolerations) else table.unschedulable
        masks = table.admitted(new), table.untolerated(new.tolerations), shut
        found = self._nodes.get(*masks)
        return found if found is not None else self._nodes.put(masks[0] & ~masks[1] & ~shut, *masks)

    def _overcommitted(self, resource: str) -> bool:
        """Whether some node has promised more than it has."""
        found = self._over.get(resource)
        if found is None:
            state = self._state
            found = bool((state.requested[resource] > state.allocatable(resource)).any())
            self._over[resource] = found
        return found

    def _holds(self, constraint: Constraint, kept: Kept, nodes: Rows) -> bool:
        """Whether every domain that can have one of the pods, on these nodes, takes its replacement."""
        group, counts = self._group(constraint, kept.replacement)
        if not group.size or (group.domain_of[nodes] < 0).any():
            return False
        admitted, _ = self._back(constraint, kept, group, counts, counts)
        # Where the pods are counted, a domain that counts none has none.
        counted = constraint.counts(kept.template.namespace, kept.template.labels)
        return bool((admitted | (counts == 0)).all() if counted else admitted.all())

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
        admitted, lower = self._back(constraint, kept, group, counts, counts[np.maximum(domains, 0)])
        return inside & admitted, inside & lower

    @staticmethod
    def _back(
        constraint: Constraint, kept: Kept, group: Group, counts: Ints, there: Ints
    ) -> tuple[Bools, Bools]:
        """`_spread` of domains with these counts, int64[X]: bool[X], bool[X]."""
        minimum = group.minimum(counts)
        left = there - int(constraint.counts(kept.template.namespace, kept.template.labels))
        after = np.minimum(minimum, left) if group.enough_domains else np.full(len(there), minimum)
        own = int(constraint.self_match(kept.replacement.labels))
        admitted: Bools = left + own - after <= constraint.max_skew
        lower: Bools = after < minimum
        return admitted, lower

    def _group(self, constraint: Constraint, template: PodTemplate) -> tuple[Group, Ints]:
        eligible = self._state.eligible(template, constraint)
        key = constraint, id(eligible)
        found = self._groups.get(key)
        if found is None:
            group = Group(-1, constraint, eligible, self._state)
            found = self._groups[key] = eligible, group, group.counts_once(self._state)
        return found[1], found[2]
