"""One candidate move, judged by the rules that no plan may break.

Clause 2: no hard constraint whose selector matches the pod gets worse on any node where the replacement can
land; the replacement has a node while its victim still holds its room. Clause 3: the pod's own constraints
keep the replacement out of the domain it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.planner.classes import Classes
from rebalancer.planner.component import Component
from rebalancer.planner.groups import Group
from rebalancer.planner.options import Certainty
from rebalancer.planner.simulation import Landing, Simulation
from rebalancer.planner.victims import Order
from rebalancer.planner.waiting import Waiting
from rebalancer.policy.quota import unseen
from rebalancer.spread.arrays import Ints, Rows


class Verdict(Struct, frozen=True, eq=False):
    """A move that does no harm on any of `destinations` (nodes by number).

    `certain`: these are all that the filter leaves; else the best-scored ones. `helps`: a constraint that the
    pod carries, and that counts it, keeps the replacement out of the domain it left. `fixes`: violated groups
    (numbered over the whole cluster) that it serves.
    """

    replacement: PodTemplate
    landing: Landing
    destinations: Rows
    certain: bool
    helps: bool
    fixes: tuple[int, ...]


class Refusal(Struct, frozen=True, eq=False):
    """A move that does not hold, and why; `nodes`: how many nodes the filter left."""

    code: ReasonCode
    nodes: int = 0


class Trial:
    """Judges candidate moves on the simulation's present state."""

    def __init__(
        self,
        simulation: Simulation,
        classes: Classes,
        order: Callable[[Pod], Order],
        waiting: Waiting,
        certainty: Certainty,
    ) -> None:
        self._simulation = simulation
        self._classes = classes
        self._waiting = waiting
        self._certainty = certainty
        self._admitted = not unseen(simulation.state.snapshot)
        self.order = order

    def may_go(self, pod: Pod) -> bool:
        """Whether policy lets the pod be evicted."""
        return (pod.uid or pod.key) not in self._classes.why_not

    def judge(
        self, component: Component, placed: Ints, q: int, row: int, pod: Pod
    ) -> Iterator[Verdict | Refusal]:
        """The move of this pod, of the component's class q on node `row`: on all nodes, then on the best."""
        pod_class = component.classes[q]
        replacement = self._classes.replacement(pod, pod_class)
        landing = self._simulation.landing(pod, replacement, after_gone=pod_class.stateful)
        if not landing.held.any() or not landing.freed.any():
            yield Refusal(ReasonCode.NO_FEASIBLE_NODE)
            return
        if (landing.anywhere & self._simulation.leaving).any():
            yield Refusal(ReasonCode.NODE_LEAVING)
            return
        if self._waiting.interferes(pod, replacement):
            yield Refusal(ReasonCode.PENDING_PODS)
            return
        nodes = np.flatnonzero(landing.anywhere)
        sure = self._admitted and not self._simulation.uncertainties(replacement)
        if sure:
            yield self._hold(component, placed, q, row, replacement, landing, nodes, certain=True)
        elif self._certainty == "certain":
            yield Refusal(ReasonCode.NOT_CERTAIN, len(nodes))
        if self._certainty == "likely":
            best = self._simulation.preferred(pod, replacement, landing)
            yield self._hold(component, placed, q, row, replacement, landing, best, certain=False)

    def best(self, component: Component, placed: Ints, q: int, row: int, pod: Pod) -> Verdict | None:
        """The first of the verdicts that helps, else one that does no harm; None if there is neither."""
        harmless = None
        for verdict in self.judge(component, placed, q, row, pod):
            if isinstance(verdict, Verdict):
                if verdict.helps:
                    return verdict
                harmless = harmless or verdict
        return harmless

    def _hold(
        self,
        component: Component,
        placed: Ints,
        q: int,
        row: int,
        replacement: PodTemplate,
        landing: Landing,
        nodes: Rows,
        *,
        certain: bool,
    ) -> Verdict | Refusal:
        carried, tally = component.carried[q], component.tally(placed)
        fixes, helps = [], False
        for i in component.counted[q]:
            group, counts, before = component.groups[i], tally.counts[i], tally.excesses[i]
            leaves = int(group.rows[row])
            # Where the filter has asked the constraint itself, only a lower minimum can do harm.
            asked = certain and i in carried and (leaves < 0 or counts[leaves] > group.minimum(counts))
            if group.size and not asked:
                after = group.excess_after(counts, leaves, np.unique(group.rows[nodes]))
                if (after > before).any():
                    return Refusal(ReasonCode.WOULD_WORSEN, len(nodes))
            leaves_it = _leaves(group.rows, row, nodes)
            if before > 0 and leaves_it:
                fixes.append(group.index)
            if i in carried:
                helps = helps or (self._closed(group, counts, row) if certain else leaves_it)
        return Verdict(replacement, landing, nodes, certain, helps, tuple(fixes))

    def _closed(self, group: Group, counts: Ints, row: int) -> bool:
        """Whether the constraint itself rejects the node that a pod leaves: the filter's own formula."""
        leaves = int(group.rows[row])
        if leaves < 0:
            return not self._simulation.state.table.having([group.constraint.topology_key])[row]
        less = counts.copy()
        less[leaves] -= 1
        return bool(counts[leaves] - group.minimum(less) > group.constraint.max_skew)


def _leaves(domains: Ints, row: int, nodes: Rows) -> bool:
    """Whether no node lies in the domain of node `row`; if that is in none, whether all are in one."""
    if domains[row] < 0:
        return bool((domains[nodes] >= 0).all())
    return not bool((domains[nodes] == domains[row]).any())
