"""One candidate move, judged by the rules that no plan may break.

Contract, clause 2: no hard constraint whose selector matches the pod gets worse on any node where the
replacement can land; the replacement has a node while its victim still holds its room. Clause 3: the pod's
own constraints keep the replacement out of the domain it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import Classes
from rebalancer.planner.cluster.simulation import Landing, Simulation
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.moves.move import Candidate, JudgedMove
from rebalancer.planner.moves.refusals import refused
from rebalancer.planner.moves.victims import Order
from rebalancer.planner.options import Certainty
from rebalancer.planner.plan import Refusal
from rebalancer.policy.limits.quota import unseen
from rebalancer.spread.arrays import Ints, Rows, first_places


class Judge:
    """What moves for hard and for soft constraints are judged by alike, on the simulation's present state."""

    def __init__(
        self,
        simulation: Simulation,
        classes: Classes,
        order: Callable[[Pod], Order],
        waiting: Waiting,
        certainty: Certainty,
    ) -> None:
        self.simulation = simulation
        self._order = order
        self._orders: dict[str, Order] = {}
        self.waiting = waiting
        self.certainty = certainty
        self._classes = classes
        self._admitted = not unseen(simulation.state.snapshot)

    def order(self, pod: Pod) -> Order:
        """A sort key, the best victim first: asked for every pod of a component before each move."""
        key = pod.key
        found = self._orders.get(key)
        if found is None:
            found = self._orders[key] = self._order(pod)
        return found

    def may_go(self, pod: Pod) -> bool:
        """Whether policy lets the pod be evicted."""
        return self._classes.why_not(pod) is None

    def landing(self, candidate: Candidate) -> tuple[PodTemplate, Landing]:
        """The replacement, and where the filter lets it go."""
        replacement = self._classes.replacement(candidate.pod, candidate.members)
        after_gone = candidate.members.stateful
        return replacement, self.simulation.landing(candidate.pod, replacement, after_gone=after_gone)

    def foreseeable(self, replacement: PodTemplate) -> bool:
        """Whether what the filter says of the replacement can be relied on (contract, clause 10)."""
        return self._admitted and not self.simulation.uncertainties(replacement)

    def unplaceable(self, landing: Landing, also: Rows | None = None) -> ReasonCode | None:
        """What forbids a move whatever it is for: no node to land on, or one that comes or goes.

        `also`: nodes that come into question beside those that the filter leaves by itself.
        """
        if not landing.held.any() or not landing.freed.any():
            return ReasonCode.NO_FEASIBLE_NODE
        for code, nodes in (
            (ReasonCode.NODE_LEAVING, self.simulation.leaving),
            (ReasonCode.NODE_STARTING, self.simulation.starting),
        ):
            if nodes[landing.anywhere].any() or (also is not None and nodes[also].any()):
                return code
        return None


class HardJudge(Judge):
    """Judges moves for hard constraints: on every node that the filter leaves."""

    def judge(self, placed: Ints, candidate: Candidate) -> Iterator[JudgedMove | Refusal]:
        """The move, with the pods placed so, int64[Q, N]: on all nodes, then on the best-scored ones."""
        pod = candidate.pod
        replacement, landing = self.landing(candidate)
        code = self.unplaceable(landing)
        if code is None and self.waiting.interferes(pod, replacement):
            code = ReasonCode.PENDING_PODS
        if code is not None:
            yield refused(pod, code, nodes=0)
            return
        nodes = np.flatnonzero(landing.anywhere)
        if self.foreseeable(replacement):
            yield self._hold(placed, candidate, replacement, landing, nodes, certain=True)
        elif self.certainty == "certain":
            yield refused(pod, ReasonCode.NOT_CERTAIN, nodes=len(nodes))
        if self.certainty == "likely":
            best = self.simulation.preferred(pod, replacement, landing)
            yield self._hold(placed, candidate, replacement, landing, best, certain=False)

    def best(self, placed: Ints, candidate: Candidate) -> JudgedMove | None:
        """The first of the verdicts that helps, else one that does no harm; None if there is neither."""
        harmless = None
        for verdict in self.judge(placed, candidate):
            if isinstance(verdict, JudgedMove):
                if verdict.helps:
                    return verdict
                harmless = harmless or verdict
        return harmless

    def why_not(self, placed: Ints, candidate: Candidate) -> Reason | None:
        """Why the move is not made; None if by itself it would do no harm and help."""
        harmless = None
        for verdict in self.judge(placed, candidate):
            if isinstance(verdict, Refusal):
                return verdict.reason
            if verdict.helps:
                return None
            harmless = harmless or verdict
        assert harmless is not None
        nodes = len(harmless.destinations)
        message = f"its replacement could come back ({nodes} nodes are open)"
        return refused(candidate.pod, ReasonCode.WOULD_RETURN, message, nodes=nodes).reason

    def _hold(
        self,
        placed: Ints,
        candidate: Candidate,
        replacement: PodTemplate,
        landing: Landing,
        nodes: Rows,
        *,
        certain: bool,
    ) -> JudgedMove | Refusal:
        component, node = candidate.component, candidate.node
        carried, tally = component.carried[candidate.pod_class], component.tally(placed)
        fixes, helps = [], False
        for i in component.counted[candidate.pod_class]:
            group, counts, before = component.groups[i], tally.counts[i], tally.excesses[i]
            leaves = int(group.domain_of[node])
            # Where the filter has asked the constraint itself, only a lower minimum can do harm.
            asked = certain and i in carried and (leaves < 0 or counts[leaves] > group.minimum(counts))
            if group.size and not asked:
                into = group.domain_of[nodes]
                after = group.excess_after(counts, leaves, into[first_places(into)])
                if (after > before).any():
                    return refused(candidate.pod, ReasonCode.WOULD_WORSEN, nodes=len(nodes))
            leaves_it = _leaves(group.domain_of, node, nodes)
            if before > 0 and leaves_it:
                fixes.append(group)
            if i in carried:
                helps = helps or (self._closed(group, counts, node) if certain else leaves_it)
        return JudgedMove(candidate, replacement, landing, nodes, certain, helps, tuple(fixes))

    def _closed(self, group: Group, counts: Ints, node: int) -> bool:
        """Whether the constraint itself rejects the node that a pod leaves: the filter's own formula."""
        leaves = int(group.domain_of[node])
        if leaves < 0:
            return not self.simulation.state.table.having([group.constraint.topology_key])[node]
        less = counts.copy()
        less[leaves] -= 1
        return bool(counts[leaves] - group.minimum(less) > group.constraint.max_skew)


def _leaves(domains: Ints, node: int, nodes: Rows) -> bool:
    """Whether no node lies in the domain of this node; if that is in none, whether all are in one."""
    if domains[node] < 0:
        return bool((domains[nodes] >= 0).all())
    return not bool((domains[nodes] == domains[node]).any())
