"""Pods that have to leave their nodes: where a replacement can go, whichever of them have gone by then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain

import numpy as np

from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.groups import (
    Label,
    can_conflict,
    can_open,
    conflicts_at_all,
    fewest,
    filed_under,
)
from rebalancer.spread.arrays import Bools


class Drained:
    """The pods that have to leave their nodes. Any of them may be gone when a replacement is placed."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._by_template: dict[int, list[Pod]] = defaultdict(list)
        for p in pods:
            self._by_template[id(p.template)].append(p)
        self._templates = {i: some[0].template for i, some in self._by_template.items()}
        self._labelled: dict[Label, list[PodTemplate]] = defaultdict(list)
        for t in self._templates.values():
            for label in filed_under(t):
                self._labelled[label].append(t)
        self._wary = [t for t in self._templates.values() if conflicts_at_all(t)]
        self._tied: dict[int, tuple[PodTemplate, list[Pod]]] = {}

    def tied_to(self, replacement: PodTemplate, state: ClusterState) -> list[Pod]:
        """Those whose end can matter to where the replacement may go, by more than the room they leave."""
        found = self._tied.get(id(replacement))
        if found is None:
            hard = state.constraints(replacement, hard=True)
            labels = {
                label for c in hard for label in fewest(c, lambda key: len(self._labelled.get(key, ())))
            }
            asked = chain(self._wary, *(self._labelled.get(label, ()) for label in labels))
            every = self._templates if conflicts_at_all(replacement) else {id(t): t for t in asked}
            tied = [
                p
                for i, t in every.items()
                if can_open(state, t, replacement) or can_conflict(t, replacement, beyond_node=True)
                for p in self._by_template[i]
            ]
            found = self._tied[id(replacement)] = replacement, tied
        return found[1]


def whichever_have_gone(
    framework: Framework, replacement: PodTemplate, there: Iterable[Hashable], able: Bools
) -> tuple[Bools, Bools]:
    """bool[N] twice: the nodes that stay open to the replacement whichever of the pods that are `there` have
    gone, all of them or some; and those that may open. `able`: nodes that it could have otherwise.

    Each pod that goes lets the replacement rather into its own domain by maxSkew, and bars the others. So for
    each constraint and domain the best is that all of the domain have gone and no others, and the worst that
    all others have. What is the best for one constraint need not be it for the next: a node may open if each
    constraint has a best that opens it.
    """
    state = framework.state
    row_of = {key: state.pods[key].row for key in there}
    opened = framework.spread_fits(replacement)
    may_open = state.table.none.copy()
    affinity = replacement.affinity
    # One that goes may take whom it has to be near, and another whom it has to be away from.
    near = affinity is not None and affinity.pod_affinity is not None and affinity.pod_affinity.required

    def without(keys: Iterable[Hashable]) -> Bools:
        with state.removed(keys):
            fits = framework.spread_fits(replacement)
            others = framework.feasible(replacement, spread=False)
            looser = framework.feasible(replacement, spread=False, affinity=False) if near else others
        np.logical_or(may_open, looser, out=may_open)
        for known, now in zip(opened, fits, strict=True):
            known |= now
        open_: Bools = np.logical_and.reduce([others, *fits])
        return open_

    lasts = without(row_of)
    for topology in {c.topology_key for c in state.constraints(replacement, hard=True)}:
        ids = state.table.domains(topology).ids
        domains = {int(ids[row]) for row in row_of.values()}
        # Where it can go nowhere in a domain, what becomes of that alone bars no more than all together.
        reached = domains.intersection(ids[able].tolist()) if len(domains) > 1 else ()
        for domain in sorted(reached):
            without([k for k, row in row_of.items() if ids[row] == domain])
            if (lasts & (ids == domain)).any():
                lasts &= (ids != domain) | without([k for k, row in row_of.items() if ids[row] != domain])
    return lasts, np.logical_and.reduce([may_open, *opened])
