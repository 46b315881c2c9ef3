"""Pods whose replacement would find no node at all, the pod itself gone.

Most are known to be replaceable in one go (`back_again`). Of the rest one pod is tried for all whose end
lowers the same minimums: a node that is open to its replacement, outside of the domains that it left, is open
to theirs as well. Only where there is none each node is tried by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from rebalancer.engine.preemption import would_preempt
from rebalancer.findings.checks.replacing.back_again import BackAgain
from rebalancer.findings.checks.replacing.kept import Kept
from rebalancer.model.pod import Pod
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.spread.arrays import Bools


class Stuck:
    """The search, over a simulation's present state."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._back = BackAgain(simulation.state)

    def pods(self, kept: Kept) -> list[Pod]:
        """Those that could not be replaced now, by node."""
        if self._back.all(kept):
            return []
        rows = kept.rows
        back = self._back.of(kept, rows)
        left = np.flatnonzero(~back.fits)
        if not len(left):
            return []
        alike: dict[bytes, list[int]] = {}
        for i in left.tolist():
            alike.setdefault(back.lowers[i].tobytes(), []).append(int(rows[i]))
        return [
            pod
            for nodes in alike.values()
            if not self._one_for_all(kept, nodes[0])
            for row in nodes
            if not self._finds_node(kept, row)
            for pod in kept.by_node[row]
        ]

    def _one_for_all(self, kept: Kept, row: int) -> bool:
        """Whether a node that takes this pod's replacement takes that of every pod like it, too."""
        new, state = kept.replacement, self._simulation.state
        if state.terms.of(new).required or any(v.claim for v in new.volumes):
            return False
        keys = {c.topology_key for c in state.constraints(new, hard=True)}
        keys |= {term.topology_key for term, _ in state.terms.of(kept.template).required_anti}
        elsewhere = state.table.every.copy()
        elsewhere[row] = False
        for key in keys:
            ids = state.table.domains(key).ids
            elsewhere &= ids != ids[row]
        return bool((self._open(kept, row) & elsewhere).any())

    def _finds_node(self, kept: Kept, row: int) -> bool:
        with gone(self._simulation, kept.by_node[row][0]):
            framework = self._simulation.framework(kept.replacement)
            if framework.feasible(kept.replacement).any():
                return True
            nodes = np.flatnonzero(self._simulation.static(kept.replacement)).tolist()
            return would_preempt(framework, kept.replacement, nodes)

    def _open(self, kept: Kept, row: int) -> Bools:
        with gone(self._simulation, kept.by_node[row][0]):
            return self._simulation.framework(kept.replacement).feasible(kept.replacement)


@contextmanager
def gone(simulation: Simulation, pod: Pod) -> Iterator[None]:
    """While it lasts, the pod is not there."""
    with simulation.without(pod) as leaving:
        leaving.let_go()
        yield


def stuck_pods(simulation: Simulation, every: list[Kept]) -> Iterator[tuple[Kept, list[Pod]]]:
    """Of each group of pods those that could not be replaced, where there are any."""
    search = Stuck(simulation)
    for kept in every:
        simulation.on_progress()
        if pods := search.pods(kept):
            yield kept, pods
