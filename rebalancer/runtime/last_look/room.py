"""Would the move still do what it was planned for, with every node and pod as it is watched now?

A plan was made minutes ago. Since then nodes may have come, gone or been cordoned, and pods of others may
have taken the room, repaired the constraint or moved it on. So the planner's own questions, on the same
engine, are asked once more just before the eviction: has the replacement the size that was planned, has it a
node, does it stay out of the domain it leaves, is there anything left to mend, does no hard constraint that
counts the pod get worse, whether the pod carries it or not. What happens elsewhere does not matter, and the
engine knows what is elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, cached_property
from itertools import chain

import numpy as np
from msgspec.structs import replace

from rebalancer.engine.branches import doubts
from rebalancer.engine.config import NO_WITNESS, SchedulerConfig, Witness
from rebalancer.engine.state.storage import claim_volumes
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import ObjectMeta, OwnerReference
from rebalancer.model.pod import DELETION_COST, Pod, cost_of
from rebalancer.model.reason import Reason, ReasonCode, changed
from rebalancer.model.snapshot import Object, Snapshot
from rebalancer.model.workload import RuntimeClass, Workload
from rebalancer.planner.cluster.groups import can_conflict
from rebalancer.planner.cluster.pod_classes import Flux
from rebalancer.planner.cluster.simulation import Landing, Simulation
from rebalancer.planner.cluster.to_be_made import to_be_made
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.new_nodes import could_preempt
from rebalancer.planner.plan import LAST_NEAR, Certainty, Move, Plan, bars
from rebalancer.policy.options import Method, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.pods_to_come import PodsToCome
from rebalancer.policy.replacement import Replacements, differs, edited
from rebalancer.policy.vertical_autoscalers import VerticalAutoscalers
from rebalancer.runtime.cycle.gates import NOBODY, Away
from rebalancer.runtime.cycle.replacements import controller_of
from rebalancer.runtime.last_look.cluster_now import ClusterNow
from rebalancer.spread.arrays import Rows

# May a move be in flight beside others?
#
# Moves of one wave were planned for every order in which they can end, in the cluster of the plan. Where
# that has lost room or a domain has got pods since, each by itself may still be right, and all together too
# many: so what is still to be placed is put where it was predicted before one more goes. Moves of different
# waves were not planned beside each other: the later one was planned with the earlier ones landed. It may
# start before that only if they cannot meet: nothing in ports, volumes and required affinity between them,
# and room for all of them on every node where the replacement and others that are still to be placed may
# land. Who was placed already takes its room as a pod.


def may_fly(simulation: Simulation, move: Move, away: Away) -> bool:
    """Whether the move and those in flight keep out of each other's way, with the pods as they are."""
    group = move.pod.template.restarts_with
    for other in away.flying:
        if group and group == other.pod.template.restarts_with:
            return False
        if can_conflict(move.replacement, other.replacement, beyond_node=True):
            return False
        if can_conflict(move.replacement, other.replacement) and _common(move, other):
            return False
    state, table = simulation.state, simulation.state.table
    taken = state.holds(move.replacement)
    free = {r: simulation.free(r) for r, _ in taken}
    for node in move.destinations:
        there = [o for o in away.coming if node in o.destinations]
        if not there:
            continue
        row = table.index.get(node)
        if row is None:
            return False
        asked = {r for m in (move, *there) for r, _ in state.asks(m.replacement)}
        for resource, amount in taken:
            theirs = sum(dict(state.holds(o.replacement)).get(resource, 0) for o in there)
            if resource in asked and free[resource][row] < amount + theirs:
                return False
    return True


def _common(one: Move, other: Move) -> bool:
    """Whether both may land on the same node, or where the other's victim still is."""
    return not {*one.destinations}.isdisjoint({*other.destinations, other.pod.node_name})


class Room:
    """Answers for the moves of one plan, made from `snapshot`.

    `config`: the scheduler's, None for its defaults. `certainty`: the plan's. `witness`: what the
    scheduler's own decisions have put in doubt by now. `now`: in seconds of the epoch, None for always that
    of the snapshot.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        config: SchedulerConfig | None,
        watched: WatchCache,
        certainty: Certainty = "certain",
        witness: Callable[[], Witness] = lambda: NO_WITNESS,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._planned = snapshot
        self._plan = plan
        self._certainty = certainty
        self._witness = witness
        self._config, self._watched, self._now = config, watched, now
        self._victims = [m.pod for m in plan.moves]
        self._cluster = ClusterNow(snapshot, config, watched, now, self._victims)
        self._destinations: dict[str, tuple[str, ...]] = {}
        self._rather: dict[str, str] = {}

    def owner_of(self, namespace: str, reference: OwnerReference | None) -> Workload | None:
        """The owner as it was planned with."""
        return self._planned.owner_of(namespace, reference)

    def maker(self, move: Move) -> Workload | None:
        """Who makes the replacement: the owner as it was planned with, of a kind that is not read who stands
        in for it. Of a released pod it is there already."""
        found = self.owner_of(move.pod.namespace, move.pod.owner)
        return found or (move.owner if move.pod.owner is not None else None)

    def counted(self, move: Move) -> dict[str, frozenset[str]]:
        """The selectors of the constraints that the move mends or that count its pod, as written in a
        request, with the names of the pods that each selects."""
        groups = self._cluster.groups(move.pod.namespace)
        every = [self._plan.constraints[i].constraint for i in move.fixes]
        every += [groups.all[i].constraint for i in groups.counted(move.pod.template)]
        asked = {c.selector for c in every if c.selector is not None and not c.selector.empty}
        return {str(s): self._cluster.named(move.pod.namespace, s) for s in sorted(asked)}

    @property
    def hard_defaults(self) -> bool:
        """Whether the scheduler has hard constraints for pods without any of their own."""
        return self._cluster.hard_defaults

    def beside(self, move: Move) -> list[Workload]:
        """`ClusterNow.beside` the move's pod, without its own owner."""
        return [w for w in self._cluster.beside(move.pod) if w.key != move.owner.key]

    def in_flux(self, pod: Pod, owners: Owners) -> Reason | None:
        """Why the pod stays while others that its constraints count come and go, as of the last `why_not`."""
        return Flux(owners, self._cluster.groups(pod.namespace), self._cluster.simulation.state).why_not(pod)

    def namespace(self, name: str) -> ObjectMeta | None:
        """The namespace as it was planned with; None where that is not known."""
        found = self._planned.namespaces.get(name)
        return found.metadata if found is not None else None

    def knew(self, kind: str) -> bool:
        """Whether the plan was made with all objects of the kind."""
        return kind in self._planned.kinds

    def check_known(self) -> None:
        """Raises CacheNotReadyError where a kind that the plan knew is refused since."""
        self._watched.check_known(self._planned.kinds)

    def around(
        self, move: Move, pod: Pod, read: Sequence[Object], away: Iterable[Pod], now: float
    ) -> Snapshot:
        """`ClusterNow.around` this pod, which is the move's; as of the last `why_not`, unless its eviction
        ends a release: then nobody has asked that."""
        release = move.method is Method.REPLACE_FIRST
        if release and move.pod.owner is None:
            self._cluster.catch_up()
        return self._cluster.around(pod, read, away, now=now, release=release)

    def kin(self, pod: Pod, now: float) -> Snapshot:
        """`ClusterNow.around` a released pod, as it is watched."""
        self._cluster.catch_up()
        budgets = self._watched.budgets(pod.namespace)
        return self._cluster.around(pod, budgets, (), now=now, release=True)

    def storage(self, move: Move) -> Iterator[tuple[str, ObjectMeta]]:
        """Kind and metadata of the claims that the replacement mounts and of their volumes, as planned."""
        for mounted in claim_volumes(move.replacement):
            claim = self._planned.claims.get(f"{move.pod.namespace}/{mounted.claim}")
            if claim is None:
                continue  # the engine lets no pod go without it, or says that it cannot see claims
            yield "PersistentVolumeClaim", claim.metadata
            if (volume := self._planned.volumes.get(claim.spec.volume_name)) is not None:
                yield "PersistentVolume", volume.metadata

    def destinations(self, move: Move) -> tuple[str, ...]:
        """The nodes that the replacement may go to, as of the last `why_not` of this move."""
        return self._destinations.get(move.pod.uid, ())

    def may_overlap(self, move: Move, away: Away) -> bool:
        """Whether the move and those in flight may be in flight together. Raises CacheNotReadyError."""
        self._catch_up(self._cluster, away)
        simulation, pod = self._cluster.simulation, self._cluster.pod(move.pod)
        if pod is None:
            return True  # `why_not` says so
        if any(m.certain and simulation.uncertainties(m.replacement) for m in (move, *away.coming)):
            return False  # a smaller one could take the room of one that is still to land
        if all(o.wave == move.wave for o in away.flying):
            return self._holds_beside(move, away)
        after_gone = move.owner.kind == "StatefulSet"
        landing = simulation.landing(pod, move.replacement, after_gone=after_gone, release=move.release)
        if not landing.held.any():
            return False  # one of the others may make room for it
        return may_fly(simulation, move, away) and not self._crowded(move, pod, away)

    def _crowded(self, move: Move, pod: Pod, away: Away) -> bool:
        """Whether with others of other waves, where a StatefulSet makes its pod only after another's end, it
        may leave that, or pods that will need room, without a node."""
        others = [
            o
            for o in away.coming
            if "StatefulSet" in (o.owner.kind, move.owner.kind) and o.wave != move.wave and _common(move, o)
        ]
        waiting = self._waiting(self._cluster, pod, away, whole=True) if others else None
        if waiting is None:
            return False
        index = self._cluster.simulation.state.table.index
        every = [*away.coming, move]
        rows = (np.array([index[n] for n in m.destinations if n in index], np.intp) for m in every)
        return waiting.crowded([(m.pod, m.replacement, r, -1) for m, r in zip(every, rows, strict=True)])

    def _holds_beside(self, move: Move, away: Away) -> bool:
        """Whether the move is right with what is coming on its nodes, too. True as well where it is not
        right even without them: then `why_not` says so."""
        state, index = self._cluster.simulation.state, self._cluster.simulation.state.table.index
        with ExitStack() as placed:
            for other in away.coming:
                namesakes = other.pod.namespace == move.pod.namespace
                if move.awaits or not (namesakes or _common(move, other)):
                    continue
                takes = self._cluster.simulation.framework(other.replacement).feasible(other.replacement)
                every = (index[n] for n in (other.predicted, *other.destinations) if n in index)
                row = next((n for n in every if takes[n]), None)
                if row is not None:
                    placed.enter_context(state.also([(("coming", other.pod.uid), other.replacement, row)]))
            if self._why_not(move, self._cluster, away) is None:
                return True
        return self._why_not(move, self._cluster, away) is not None

    def why_not(self, move: Move, away: Away = NOBODY) -> Reason | None:
        """Why the move would not do what it was planned for; None if it would. Raises CacheNotReadyError."""
        cluster = self._cluster
        self._catch_up(cluster, away)
        reason = self._still_missing(move) if move.awaits else self._why_not(move, cluster, away)
        if reason is None:
            return None
        return _with_nodes(reason, *cluster.changed_nodes({move.pod.node_name, *move.destinations}))

    @staticmethod
    def _catch_up(cluster: ClusterNow, away: Away) -> None:
        cluster.catch_up()
        cluster.expect({m.pod.uid for m in away.gone})

    @cached_property
    def _with_new(self) -> ClusterNow:
        """The cluster with the nodes that could be added."""
        new = self._plan.new_nodes
        return ClusterNow(self._planned, self._config, self._watched, self._now, self._victims, new)

    def _still_missing(self, move: Move) -> Reason | None:
        """Why a move should not wait for a node: one that is there would do, pools have changed, it could
        preempt somebody; or a new node would not do either."""
        pod, simulation = self._cluster.pod(move.pod), self._cluster.simulation
        if {id(p) for p in self._watched.node_pools()} != {id(p) for p in self._planned.node_pools}:
            return changed("since the plan, NodePools have changed")
        if pod is not None:
            landing = simulation.landing(pod, move.replacement, after_gone=False, release=move.release)
            if landing.anywhere.any():
                return changed(f"since the plan, a node that is there would take {pod.key}'s replacement")
        if (reason := self.preempts(move)) is not None:
            return reason
        self._catch_up(self._with_new, NOBODY)
        return self._why_not(move, self._with_new, NOBODY)

    def preempts(self, move: Move) -> Reason | None:
        """Whom the replacement could preempt while it waits, as of the last question."""
        if preempted := could_preempt(self._cluster.simulation, move.replacement):
            return Reason(ReasonCode.NEEDS_PREEMPTION, f"while it waits it could preempt others: {preempted}")
        return None

    def _why_not(self, move: Move, cluster: ClusterNow, away: Away) -> Reason | None:
        simulation = cluster.simulation
        pod = cluster.pod(move.pod)
        if pod is None:
            return changed(f"pod {move.pod.key} is gone, or runs no more")
        if pod.terminating:
            return Reason(ReasonCode.TERMINATING, f"pod {pod.key} is being deleted already")
        if _default(self._planned) != _default(simulation.snapshot):
            return changed("since the plan, new pods without a PriorityClass have another priority")
        sizing = cluster.autoscalers(pod.namespace)
        if (resized := self.resized(move, sizing)) is not None:
            return resized
        # On a version newer than all known rules every move was judged on all nodes, likely or not.
        by_scores = self._certainty == "likely" or not simulation.state.version.newer_by
        after_gone = move.owner.kind == "StatefulSet"
        landing = simulation.landing(pod, move.replacement, after_gone=after_gone, release=move.release)
        if why := _nowhere(landing):
            return changed(f"since the plan, of {pod.key}: {why}")
        nodes, table = np.flatnonzero(landing.anywhere), simulation.state.table
        self._destinations[move.pod.uid] = tuple(table.names[n] for n in nodes)
        why = self._not_known(move, simulation, pod, by_scores=by_scores)
        if why := why or self._wanted(move, cluster, pod, nodes, away):
            return changed(f"since the plan, {why}")
        if simulation.leaves_alone(pod, move.replacement, nodes):
            return Reason(ReasonCode.WOULD_WORSEN, f"since the plan, of {pod.key}: {LAST_NEAR}")
        refuse = simulation.barred | simulation.rejecting(move.replacement)
        if len(barred := nodes[refuse[nodes]]):
            return changed(
                f"since the plan, {table.names[barred[0]]}, where {pod.key}'s replacement could land, has "
                "been marked for removal, is not set up yet, is for another operating system or "
                "architecture, lacks the pod's runtime handler, a feature of it or a driver, has not started "
                "or kept pods, or has a taint that the pod does not tolerate for ever",
                nodes=len(barred),
            )
        if not (move.certain or move.awaits) and (by_scores or self.soft(move)):
            best = simulation.preferred(pod, move.replacement, landing)
            self._destinations[move.pod.uid] = tuple(table.names[n] for n in best)
            if not self.soft(move):
                # Only a policy that trusts the scores lets them say where the replacement may not go.
                return self._worse(move, cluster, pod, best if self._certainty == "likely" else nodes)
            elsewhere = sorted({table.names[n] for n in best} - set(move.destinations))
            if elsewhere:
                return changed(
                    "pods have come and gone since the plan: the scheduler's scores now prefer "
                    f"{elsewhere[0]} for {pod.key}'s replacement, which was not planned",
                    nodes=len(elsewhere),
                )
            return self._worse(move, cluster, pod, nodes)
        for i in move.fixes:
            key = self._plan.constraints[i].constraint.topology_key
            domains = table.domains(key)
            domain = domains.ids[table.index[pod.node_name]]
            back = nodes[domains.ids[nodes] == domain]
            if len(back):
                value = domains.names[domain] if domain >= 0 else None
                return changed(
                    f"pods have come and gone since the plan: {pod.key}'s replacement could now return to "
                    f"{key}={value}",
                    nodes=len(back),
                )
        return self._worse(move, cluster, pod, nodes)

    def _wanted(self, move: Move, cluster: ClusterNow, pod: Pod, nodes: Rows, away: Away) -> str:
        """Why others that need room speak against the move, in words: pods that DaemonSets are to make, such
        as have come since the plan, and where nodes that are asked for have got pods, those that it knew."""
        if where := cluster.simulation.crowds_out(move.replacement, nodes):
            return f"{pod.key}'s replacement could land on {where}"
        names = cluster.simulation.state.table.names
        whole = cluster.filled(names[n] for n in nodes)
        waiting = None if move.awaits else self._waiting(cluster, pod, away, whole=whole)
        if waiting is None:
            return ""
        no = waiting.why_not(pod, move.replacement, nodes, stays=move.release is not None)
        return no.reason.message if no is not None else ""

    def _waiting(self, cluster: ClusterNow, pod: Pod, away: Away, *, whole: bool) -> Waiting | None:
        """The pods that have come to wait since the plan, or will be made for what has begun since; `whole`:
        those that the plan knew as well. None where there are none. Of an owner as many are the plan's own as
        replacements are coming."""
        own, came = self._own(cluster, away), list[Pod]()
        for p in cluster.arrived(whole=whole):
            if p.owner is not None and own[p.owner.uid]:
                own[p.owner.uid] -= 1
            else:
                came.append(p)
        begun, leaving = cluster.begun(own, whole=whole)
        if not (came or begun.pods or begun.workloads):
            return None
        further = PodsToCome(Owners(begun, PolicyOptions()), own)
        to_come = to_be_made(further, Replacements(begun), cluster.simulation, leaving)
        if not (came or any(to_come[0])):
            return None
        return Waiting(cluster.simulation, cluster.groups(pod.namespace), came, to_come)

    @staticmethod
    def _own(cluster: ClusterNow, away: Away) -> Counter[str]:
        """How many pods of each controller are to come because of the plan. `away` is as of the first request
        of a move; before the next one, replacements may have landed."""
        own, gone = Counter(map(controller_of, away.coming)), Counter(map(controller_of, away.gone))
        return Counter({uid: min(n, max(0, gone[uid] - cluster.landed(uid))) for uid, n in own.items()})

    def _not_known(self, move: Move, simulation: Simulation, pod: Pod, *, by_scores: bool) -> str:
        """Why what becomes of the replacement is less certain than it was planned, in words; "" if it is not,
        and for a move that was planned by scores."""
        if not move.certain and (by_scores or self.soft(move)):
            return ""
        witness, framework = self._witness(), simulation.framework(move.replacement)
        every = framework.uncertainties(move.replacement) if move.certain else ()
        why = next(chain(every, doubts(framework, move.replacement, witness)), "")
        # What goes on from a former process was not planned here, and lands nowhere any more.
        if why or not (move.certain and move.destinations and simulation.state.version.newer_by):
            return why
        after_gone = move.owner.kind == "StatefulSet"
        if simulation.covered(pod, move.replacement, witness, after_gone=after_gone, release=move.release):
            return ""
        return (
            f"{pod.key}'s move has come to rest on rules that the scheduler's own decisions have not shown "
            "often enough"
        )

    def resized(self, move: Move, autoscalers: VerticalAutoscalers) -> Reason | None:
        """Why these make the replacement larger than planned; less than planned is no harm."""
        owner = self.maker(move)
        if owner is None:
            return None
        planned = move.replacement
        now = autoscalers.applied(planned, owner, move.owner)
        if now.requests == planned.requests and not (now.autosized and move.certain):
            return None
        return changed(
            f"since the plan, a VerticalPodAutoscaler has come to size {move.pod.key}'s replacement, or "
            "recommends more than was planned with"
        )

    def made_otherwise(
        self, move: Move, owner: Workload, classes: Mapping[str, RuntimeClass]
    ) -> Reason | None:
        """Why the replacement may be another one by now: the owner's youngest pod, such as the replacement
        before, shows that admission gives new ones something else; or nodes have come to differ in what the
        pod of a certain move has and nothing that is known adds."""
        now = Replacements(self._cluster.makers(move.pod.namespace), classes)
        if (reason := edited(move.pod.template, owner, newest=now.newest(owner))) is not None:
            return reason
        made, planned = now.of(move.pod.template, owner), move.replacement
        if differs(made, planned, exactly=move.certain):
            return changed(
                f"since the plan, a younger pod of {owner.kind} {owner.name} shows that admission gives new "
                f"ones other containers, amounts or labels than {move.pod.key}'s replacement was planned with"
            )
        if not move.certain or planned.unsettled or not made.unsettled:
            return None
        return changed(
            f"since the plan, nodes differ in a selector or toleration that {move.pod.key} has and its "
            "template has not: its replacement may lack it"
        )

    def soft(self, move: Move) -> bool:
        """Whether the move serves soft constraints only."""
        return bool(move.fixes) and not any(self._plan.constraints[i].constraint.hard for i in move.fixes)

    def _worse(self, move: Move, cluster: ClusterNow, pod: Pod, nodes: Rows) -> Reason | None:
        """The hard constraint that counts the pod, carried or not, and would suffer on one of `nodes`.

        Or that nothing is left to mend of what the move was to mend: for a certain one, which alone was
        promised to help by itself, where its pod is.
        """
        state = cluster.simulation.state
        groups = cluster.groups(pod.namespace)
        row, carried = state.table.index[pod.node_name], groups.carried(pod.template)
        mends = {self._plan.constraints[i].constraint for i in move.fixes}
        left, helps = 0, not move.certain
        for i in groups.counted(pod.template):
            group = groups.all[i]
            counts = group.counts(state)
            helps = helps or (i in carried and group.keeps_out(counts, row, state))
            if not group.size:
                continue
            before = group.excess(counts)
            if group.constraint in mends:
                left += before
            after = group.excess_after(
                counts, int(group.domain_of[row]), np.unique(group.domain_of[nodes])
            ).max()
            if after > before:
                c = group.constraint
                return Reason(
                    ReasonCode.WOULD_WORSEN,
                    f"pods have come and gone since the plan: {pod.key}'s replacement could now raise the "
                    f"excess of a constraint over {c.topology_key} (maxSkew {c.max_skew}) from {before} to "
                    f"{after}",
                    {"before": before, "after": int(after)},
                )
        if mends and all(c.hard for c in mends) and not (left and helps):
            return Reason(
                ReasonCode.NOT_NEEDED,
                f"since the plan, what {pod.key} was to mend has been mended: no constraint has an excess "
                "that it adds to",
            )
        return None

    def needed(self, pod: Pod, owner: str, may_go: Callable[[Pod], bool]) -> Reason | None:
        """Which hard constraint gets worse if a released pod goes, where there is less excess if its
        ReplicaSet (uid `owner`) takes another one. Raises CacheNotReadyError.

        One is too many of them by now, whatever the move was for. Where no other is better, the old one goes,
        though all is better with both: a move that mends one constraint may leave another as it was.

        `pod`: as if it had its label, by which it counts once it is given back. `may_go`: who may be chosen.
        """
        self._rather.pop(pod.uid, None)
        self._cluster.catch_up()
        live, state = self._cluster.pod(pod), self._cluster.simulation.state
        if live is None:
            return None  # the question about the pod itself says so
        anywhere, alone = np.arange(state.table.size), self._cluster.simulation.leaves_alone
        if alone(live, live.template, anywhere):
            say = f"since its release, of {pod.key}: {LAST_NEAR}"
            return Reason(ReasonCode.WOULD_WORSEN, say)
        every, index = self._cluster.groups(pod.namespace), state.table.index
        groups = [g for i in every.counted(pod.template) if (g := every.all[i]).size]

        def where(p: Pod) -> tuple[int, ...]:
            """Its domains, -1 where it does not count."""
            count = (g.constraint.counts(p.namespace, p.template.labels) for g in groups)
            return tuple(
                int(g.domain_of[index[p.node_name]]) if c else -1 for g, c in zip(groups, count, strict=True)
            )

        there = [g.counts(state).copy() for g in groups]
        old = where(replace(live, template=pod.template))
        for counts, back, now in zip(there, old, where(live), strict=True):
            counts[back] += back != now

        @cache
        def without(domains: tuple[int, ...]) -> list[int]:
            """The excess of each constraint when one goes that counts there."""
            found = []
            for g, counts, d in zip(groups, there, domains, strict=True):
                counts[d] -= d >= 0
                found.append(g.excess(counts))
                counts[d] += d >= 0
            return found

        before, after = without((-1,) * len(groups)), without(old)
        worse = next((i for i, b in enumerate(before) if after[i] > b), None)
        if worse is None:
            return None
        left = {p: sum(without(where(p))) for p in self._cluster.pods_of(owner)}

        def rank(p: Pod) -> tuple[float, ...]:
            """As its ReplicaSet would choose, and as another process did that has changed the cost."""
            return left[p], cost_of(p.annotations.get(DELETION_COST)), -(p.created or 0.0)

        better = sorted((p for p, excess in left.items() if excess < sum(after)), key=lambda p: p.uid)
        free = (p for p in sorted(better, key=rank) if not alone(p, p.template, anywhere))
        other = next(filter(may_go, free), None)
        if other is None:
            return None
        self._rather[pod.uid] = other.uid
        c = groups[worse].constraint
        return Reason(
            ReasonCode.WOULD_WORSEN,
            f"pods have come and gone since its release: without {pod.key} the excess of a constraint over "
            f"{c.topology_key} (maxSkew {c.max_skew}) would rise from {before[worse]} to {after[worse]}, and "
            f"less is left if {other.name} goes",
            {"before": before[worse], "after": after[worse]},
        )

    def rather(self, pod: Pod) -> str:
        """The uid of the pod that goes instead, as of the last answer of `needed`; "" for none."""
        return self._rather.get(pod.uid, "")


def _nowhere(landing: Landing) -> str:
    """Why the replacement has no node to go to, in words; "" if it has."""
    if landing.barred_by:
        return bars(landing.barred_by)
    none = not landing.held.any() or not landing.freed.any()
    return "its replacement has lost every node that it could go to" if none else ""


def _default(snapshot: Snapshot) -> tuple[str, int, str] | None:
    """What the PriorityClass says that counts for all pods that name none."""
    found = snapshot.default_class
    return (found.metadata.name, found.value, found.preemption_policy) if found is not None else None


def _with_nodes(reason: Reason, removed: list[str], other: list[str]) -> Reason:
    """`reason`, for which a move is not right any more, and what of its own nodes may have led to it."""
    parts = [
        f"{len(found)} {what} ({', '.join(found[:3])}{', …' if len(found) > 3 else ''})"
        for found, what in (
            (removed, "removed"),
            (other, "relabelled, tainted, cordoned or resized"),
        )
        if found
    ]
    if not parts:
        return reason
    return Reason(
        ReasonCode.NODES_CHANGED,
        f"{reason.message}; nodes have changed since the plan: {'; '.join(parts)}",
        {**reason.numbers, "removed": len(removed), "changed": len(other)},
    )
