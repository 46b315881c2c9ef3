"""A move on its way through the planner: first a candidate, then judged, predicted, and put into a wave.

What the plan shows of it is `plan.Move`; what becomes of it when it is carried out, the runtime's `Outcome`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.model.node import OwnerReference, is_leaving, is_outdated
from rebalancer.model.pod import DELETION_COST, Pod, PodTemplate, cost_of
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Alike, Snapshot
from rebalancer.planner import objective
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import Classes, PodClass
from rebalancer.planner.cluster.simulation import Landing, Simulation, key_of
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.plan import LET_COME, LET_LEAVE, Certainty, Refusal, bars, left_alone, reason, refused
from rebalancer.policy.annotations import preference
from rebalancer.policy.budgets import Budgets
from rebalancer.policy.quota import unseen
from rebalancer.policy.replace_first import Release
from rebalancer.spread.arrays import Bools, Ints, Rows, first_places


class Candidate(Struct, frozen=True, eq=False):
    """A pod that could be evicted: of the component's class number `pod_class`, on node number `node`."""

    component: Component
    pod_class: int
    node: int
    pod: Pod

    @property
    def members(self) -> PodClass:
        """The class of pods that the pod belongs to."""
        return self.component.classes[self.pod_class]

    def moved(self, placed: Ints, landed: int) -> Ints:
        """The placement, int64[Q, N], after the pod's replacement has landed on node `landed`."""
        return self.component.moved(placed, self.pod_class, self.node, landed)

    @property
    def place(self) -> tuple[int, int]:
        """The class, numbered over all components, and the node: pods of one place are judged alike."""
        return self.members.index, self.node


class JudgedMove(Struct, frozen=True, eq=False):
    """A move that does no harm on any of `destinations` (nodes by number).

    `landing`: where the filter lets the replacement go. `helps`: a constraint that the pod carries, and that
    counts it, keeps the replacement out of the domain it left. `fixes`: the violated groups that it serves.
    `certain`, from the judge: `destinations` are all nodes that the filter leaves, not the best-scored ones
    only; from a search and its wave on: the plan ends as it says wherever this replacement and those of
    earlier moves land. `landed`: the node on which the plan counts with the replacement, -1 as long as none
    is predicted. `open`: the nodes that are surely open, for each way in which earlier replacements of the
    component may have landed that was followed; of these, they may have closed `closed`. `serves`: bool[N],
    where a move for soft constraints does what it is for.
    """

    candidate: Candidate
    replacement: PodTemplate
    landing: Landing
    destinations: Rows
    certain: bool
    helps: bool
    fixes: tuple[Group, ...]
    landed: int = -1
    open: tuple[Rows, ...] = ()
    closed: int = 0
    serves: Bools | None = None

    @property
    def pod(self) -> Pod:
        """The pod that is evicted."""
        return self.candidate.pod

    @property
    def component(self) -> Component:
        """The component that the move belongs to."""
        return self.candidate.component

    @property
    def release(self) -> Release | None:
        """How the pod is released, if it is replaced first."""
        return self.landing.release

    @property
    def late(self) -> bool:
        """Whether the replacement is made only once the pod is gone."""
        return self.candidate.members.stateful


Wave = Sequence[JudgedMove]
"""Moves that may be in flight together."""


def in_order(waves: Sequence[Wave]) -> list[JudgedMove]:
    """The moves of all waves, one after the other."""
    return [move for wave in waves for move in wave]


# Which of several pods that serve equally well is evicted.
#
# In this order: not Ready before Ready; on a node that is being drained or about to be replaced; preferred
# or refused by annotation; not the only Ready pod of its owner, which nobody stands in for; lower priority;
# lower `controller.kubernetes.io/pod-deletion-cost`; more room in its budget; youngest. Ties go by name.
# (Before all of these comes which node's loss helps most constraints: that is the search's part.)

Order = tuple[bool, bool, int, bool, int, int, int, float, str, str]


def victim_order(snapshot: Snapshot, budgets: Budgets) -> Callable[[Pod], Order]:
    """A sort key: the best victim first."""
    going = snapshot.going.union(n.name for n in snapshot.nodes if is_leaving(n) or is_outdated(n))
    ready = Counter[OwnerReference | None]()
    for some in snapshot.live:
        ready[some.owner] += sum(map(attrgetter("ready"), some.pods))

    def order(pod: Pod) -> Order:
        headroom = min((b.allowed for b in budgets.of(pod)), default=1 << 30)
        return (
            pod.ready,
            pod.node_name not in going,
            preference(pod.annotations),
            pod.ready and ready[pod.owner] == 1,
            pod.template.priority,
            cost_of(pod.annotations.get(DELETION_COST)),
            -headroom,
            -(pod.created or 0.0),
            pod.namespace,
            pod.name,
        )

    return order


# One candidate move, judged by the rules that no plan may break.
#
# Contract, clause 2: no hard constraint whose selector matches the pod gets worse on any node where the
# replacement can land; the replacement has a node while its victim still holds its room. Clause 3: the
# pod's own constraints keep the replacement out of the domain it left.


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
        self.waiting = waiting
        self.certainty = certainty
        self._classes = classes
        self._unseen = unseen(simulation.state.snapshot)

    @remembered(by=lambda pod: pod.key)
    def order(self, pod: Pod) -> Order:
        """A sort key, the best victim first: asked for every pod of a component before each move."""
        return self._order(pod)

    def may_go(self, pod: Pod) -> bool:
        """Whether policy lets the pod be evicted."""
        return self._classes.why_not(pod) is None

    def landing(self, candidate: Candidate, release: Release | None = None) -> tuple[PodTemplate, Landing]:
        """The replacement, and where the filter lets it go."""
        replacement = self._classes.replacement(candidate.pod, candidate.members)
        return replacement, self.simulation.landing(
            candidate.pod, replacement, after_gone=candidate.members.stateful, release=release
        )

    def doubt(self, replacement: PodTemplate) -> str:
        """Why what the filter says of the replacement cannot be relied on (contract, clause 10); "" if it
        can."""
        return self._unseen or next(iter(self.simulation.uncertainties(replacement)), "")

    def unplaceable(
        self, replacement: PodTemplate, landing: Landing, also: Rows | None = None
    ) -> Reason | None:
        """What forbids a move whatever it is for: no node to land on, or one that comes or goes.

        `also`: nodes that come into question beside those that the filter leaves by itself.
        """
        if landing.barred_by:
            return reason(ReasonCode.NODE_LEAVING, bars(landing.barred_by), remedy=LET_LEAVE)
        if not landing.held.any() or not landing.freed.any():
            return reason(ReasonCode.NO_FEASIBLE_NODE)
        anywhere = landing.anywhere
        if also is not None:
            anywhere[also] = True
        for code, nodes in (
            (ReasonCode.NODE_LEAVING, self.simulation.leaving),
            (ReasonCode.NODE_STARTING, self.simulation.starting),
            (ReasonCode.NODE_EXPIRING, self.simulation.expiring),
        ):
            if (nodes & anywhere).any():
                return reason(code)
        if where := self.simulation.crowds_out(replacement, np.flatnonzero(anywhere)):
            message = f"its replacement could land on {where}"
            return reason(ReasonCode.NODE_STARTING, message, remedy=LET_COME)
        names = self.simulation.state.table.names
        if (ailing := np.flatnonzero(self.simulation.failing & anywhere)).size:
            said = ", ".join(sorted(self.simulation.ailing[ailing[0]]))
            return reason(
                ReasonCode.NODE_NOT_READY,
                f"its replacement could land on {names[ailing[0]]}, where pods may not start or stay by its "
                f"own conditions: {said}",
            )
        for why in self.simulation.kubelets.refusals(replacement):
            if (there := np.flatnonzero(why.nodes & anywhere)).size:
                where = f"its replacement could land on {names[there[0]]}, {why.words}"
                return reason(ReasonCode.NODE_UNFIT, where, remedy=why.remedy)
        return None


_KEPT = "other volumes of its CSI driver have not come off its node for long"
_ENDING = (
    "it would help only as long as there are the pods of Jobs, or others that end by themselves, which its "
    "constraints count"
)


class HardJudge(Judge):
    """Judges moves for hard constraints: on every node that the filter leaves."""

    def judge(self, placed: Ints, candidate: Candidate) -> Iterator[JudgedMove | Refusal]:
        """The move, with the pods placed so, int64[Q, N]: on all nodes, then on the best-scored ones. A pod
        that cannot usefully be replaced first is evicted, where its budget lets it go."""
        pod = candidate.pod
        release = self._classes.release(pod)
        verdicts = self._judge(placed, candidate, release)
        if release is not None and self._classes.kept(pod) is None:
            first = list(verdicts)
            helps = any(isinstance(v, JudgedMove) and v.helps for v in first)
            verdicts = iter(first) if helps else self._judge(placed, candidate, None)
        yield from verdicts

    def _judge(
        self, placed: Ints, candidate: Candidate, release: Release | None
    ) -> Iterator[JudgedMove | Refusal]:
        pod = candidate.pod
        replacement, landing = self.landing(candidate, release)
        if (why := self.unplaceable(replacement, landing)) is not None:
            yield Refusal(pod, replace(why, numbers={"nodes": 0}))
            return
        if self.simulation.kubelets.keeps(pod.template, candidate.node):
            yield refused(pod, ReasonCode.PINNED_BY_VOLUME, _KEPT)
            return
        nodes = self.simulation.shared.rows(landing.anywhere)
        if self.simulation.leaves_alone(pod, replacement, nodes):
            yield left_alone(pod)
            return
        stays = release is not None
        if (harm := self.waiting.why_not(pod, replacement, nodes, stays=stays)) is not None:
            yield harm
            return
        if not (doubt := self.doubt(replacement)):
            yield self._hold(placed, candidate, replacement, landing, nodes, certain=True)
        elif self.certainty == "certain":
            message = f"what becomes of its replacement cannot be predicted with certainty: {doubt}"
            yield refused(pod, ReasonCode.NOT_CERTAIN, message, nodes=len(nodes))
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
        component, node, state = candidate.component, candidate.node, self.simulation.state
        carried, tally = component.carried[candidate.pod_class], component.tally(placed)
        fixes, helps, passing = [], False, False
        for i in component.counted[candidate.pod_class]:
            group, counts, before = component.groups[i], tally.counts[i], tally.excesses[i]
            leaves = int(group.domain_of[node])
            # Where the filter has asked the constraint itself, only a lower minimum can do harm.
            asked = certain and i in carried and (leaves < 0 or counts[leaves] > group.minimum(counts))
            if group.size and not asked:
                into = group.domain_of[nodes]
                after = group.excess_after(counts, leaves, into[first_places(into)])
                if landing.release is not None and group.constraint.counts(
                    replacement.namespace, landing.release.template.labels
                ):
                    # Both are there for a while.
                    after = np.maximum(after, group.excess_after(counts, -1, into[first_places(into)]))
                if (after > before).any():
                    return refused(candidate.pod, ReasonCode.WOULD_WORSEN, nodes=len(nodes))
            leaves_it, lasts = _leaves(group.domain_of, node, nodes), True
            if group.size and (ends := self._ends(group)) is not None:
                # What these make of an excess is over by itself, and then this would be the opposite of it.
                into, stay = group.domain_of[nodes], counts - ends
                if (group.excess_after(stay, leaves, into[first_places(into)]) > group.excess(stay)).any():
                    return refused(candidate.pod, ReasonCode.WOULD_WORSEN, _ENDING, nodes=len(nodes))
                lasts = group.excess(stay) > 0 and (i not in carried or group.keeps_out(stay, node, state))
            if before > 0 and leaves_it:
                passing = passing or not lasts
                if lasts:
                    fixes.append(group)
            if i in carried and lasts and leaves_it:
                helps = helps or not certain or group.keeps_out(counts, node, state)
        if passing and not fixes:
            return refused(candidate.pod, ReasonCode.WOULD_WORSEN, _ENDING, nodes=len(nodes))
        return JudgedMove(candidate, replacement, landing, nodes, certain, helps, tuple(fixes))

    @remembered()
    def _ends(self, group: Group) -> Ints | None:
        """int64[D]: pods that end by themselves in each domain; None if the group counts none."""
        index, found = self.simulation.state.table.index, np.zeros(group.size, dtype=np.int64)
        for some in self._ending.get(group.constraint.namespace, ()):
            if group.constraint.counts(some.template.namespace, some.template.labels):
                rows = [index[p.node_name] for p in some.pods if p.node_name in index]
                domains = group.domain_of[rows]
                np.add.at(found, domains[domains >= 0], 1)
        return found if found.any() else None

    @cached_property
    def _ending(self) -> dict[str, list[Alike]]:
        """Pods that end by themselves, by namespace."""
        found: dict[str, list[Alike]] = {}
        for some in self.simulation.state.snapshot.live:
            if self._classes.ends(some.one):
                found.setdefault(some.template.namespace, []).append(some)
        return found


def _leaves(domains: Ints, node: int, nodes: Rows) -> bool:
    """Whether no node lies in the domain of this node; if that is in none, whether all are in one."""
    if domains[node] < 0:
        return bool((domains[nodes] >= 0).all())
    return not bool((domains[nodes] == domains[node]).any())


# Who could be evicted next: for each bucket of interchangeable nodes the best victim.


class Victims:
    """The pods of a component that may go, the best victim first: sorted once for all moves of a search."""

    def __init__(self, simulation: Simulation, component: Component, judge: HardJudge) -> None:
        self._simulation = simulation
        self._component = component
        self._candidates = sorted(
            (
                Candidate(component, index, node, pod)
                for index, pod_class in enumerate(component.classes)
                for node, pods in pod_class.by_node.items()
                for pod in pods
                if judge.may_go(pod)
            ),
            key=lambda c: judge.order(c.pod),
        )
        self._keys = [key_of(c.pod) for c in self._candidates]
        self._every = frozenset(self._keys)
        self._classes = np.array([c.pod_class for c in self._candidates], dtype=np.intp)
        self._nodes = np.array([c.node for c in self._candidates], dtype=np.intp)

    def now(self, bucket_of: Ints, gives: Ints | None = None) -> Iterator[Candidate]:
        """Possible victims in the simulation's present state, the most promising first.

        `gives`, int64[Q, N]: how much the bound wants pods taken from a node. First comes one victim for each
        bucket (`bucket_of`, int64[N]); the others of a bucket come last, for where they lie may matter to
        things that counts do not see. Later changes of the state do not concern what is asked for now.
        """
        ranked: Iterable[int] = range(len(self._keys))
        if gives is not None:
            # Mostly few are asked for: they become Python's integers one by one.
            ranked = memoryview(objective.victims(gives[self._classes, self._nodes]).data)
        gone = self._every.difference(self._simulation.state.pods)
        return self._by_bucket((i for i in ranked if self._keys[i] not in gone), bucket_of)

    def _by_bucket(self, ranked: Iterable[int], bucket_of: Ints) -> Iterator[Candidate]:
        places: set[tuple[int, int]] = set()
        buckets: set[tuple[int, int]] = set()
        rest: list[Candidate] = []
        for candidate in map(self._candidates.__getitem__, ranked):
            place = candidate.pod_class, candidate.node
            if place in places:
                continue
            places.add(place)
            bucket = candidate.pod_class, int(bucket_of[candidate.node])
            if bucket in buckets:
                rest.append(candidate)
            else:
                buckets.add(bucket)
                yield candidate
        yield from rest
