"""Why an excess stays, and why a pod is left alone: typed reasons, with figures and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.model.node import HOSTNAME, NodePool
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Alike
from rebalancer.planner.cluster.groups import Group, Groups, conflicts_at_all
from rebalancer.planner.cluster.pod_classes import Classes, PodClass
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.moves import JudgedMove
from rebalancer.planner.plan import ConstraintResult, Move, Refusal, Status, reason
from rebalancer.policy.options import Method
from rebalancer.policy.owners import Owners
from rebalancer.policy.replace_first import Release
from rebalancer.spread.arrays import Bools, Ints, Shared, first_places, narrow
from rebalancer.spread.constraint import PerDomain
from rebalancer.spread.nodes import FILTERED_EFFECTS, tolerated


class SamePlaces:
    """Which pods of a class what is said of one is true of too, in the simulation's present state."""

    def __init__(self, simulation: Simulation, groups: Groups) -> None:
        self._simulation = simulation
        self._groups = groups

    def place(self, c: PodClass, node: int) -> Hashable:
        """Equal for nodes of the same domains, or with as many pods where each node is a domain, that take a
        replacement alike. What minds other pods, ports or volumes is looked at node by node."""
        if conflicts_at_all(c.replacement) or c.replacement.claims:
            return c.index, node
        domains = (self._domain(self._groups.all[i], node) for i in sorted({*c.counted, *c.carried}))
        return c.index, *domains, bool(c.static[node]), bool(self._room(c)[node])

    @remembered()
    def _room(self, c: PodClass) -> Bools:
        room: Bools = self._simulation.room(c.replacement, {}) > 0
        return room

    @remembered()
    def _counts(self, group: Group) -> Ints:
        return group.counts(self._simulation.state)

    def _domain(self, group: Group, node: int) -> tuple[int, int]:
        domain = int(group.domain_of[node])
        if domain < 0 or not group.layout.own_domain[node]:
            return domain, -1
        return -1, int(self._counts(group)[domain])


_TOLD = 3
"""Messages of one kind of reason that are told, the most frequent first."""
WhyNot = Callable[[PodClass, int, Pod], Reason]
"""(class, node, pod) → why a pod that policy would let go is not moved."""


class Explained(Struct, frozen=True, eq=False):
    """Why a group's excess stays, and the pods that are left where they are."""

    reasons: tuple[Reason, ...] = ()
    refused: tuple[Refusal, ...] = ()


class Explainer:
    """Explains what the finished simulation leaves behind."""

    def __init__(self, simulation: Simulation, groups: Groups, classes: Classes) -> None:
        self._simulation = simulation
        self._groups = groups
        self._classes = classes

    def explained(
        self,
        group: Group,
        before: Ints,
        after: Ints,
        given_up: Sequence[Refusal],
        movable: Sequence[PodClass],
        why_not: WhyNot,
    ) -> Explained:
        """`given_up`: moves that were planned and not kept; `movable`: classes of which pods could move."""
        if not (group.excess(before) or group.excess(after)):
            return Explained()
        here = list(self._protected(group, before if group.excess(before) else after))
        if not group.excess(after):
            return Explained((), tuple(here))
        late = [r for r in given_up if group.index in self._groups.counted(r.pod.template)]
        known = {r.pod.key for r in late}
        stuck = [r for r in self._stuck(group, movable, why_not) if r.pod.key not in known]
        if late:
            # They wait for those that were given up.
            waits = (ReasonCode.SIMULATION_LIMIT, ReasonCode.NOT_NEEDED)
            stuck = [r for r in stuck if r.reason.code not in waits]
        here += stuck
        return Explained(self._of_group(group, after, [*late, *here]), tuple(here))

    def _protected(self, group: Group, counts: Ints) -> Iterator[Refusal]:
        """Counted pods of the overfull domains that policy keeps where they are."""
        for _, _, pod in self._overfull(group, counts, self._classes.counted_by(group)):
            kept = self._classes.why_not(pod)
            if kept is not None:
                yield Refusal(pod, kept)

    def _stuck(self, group: Group, movable: Sequence[PodClass], why_not: WhyNot) -> Iterator[Refusal]:
        """Pods of the overfull domains that policy would let go, and what keeps a move from helping."""
        counts = group.counts(self._simulation.state)
        known: dict[Hashable, Reason] = {}
        same = SamePlaces(self._simulation, self._groups)
        for c, node, pod in self._overfull(group, counts, movable):
            if self._classes.why_not(pod) is None:
                place = same.place(c, node)
                if place not in known:
                    known[place] = self._why_stuck(group, counts, c, node, pod, why_not)
                yield Refusal(pod, known[place])

    def _why_stuck(
        self, group: Group, counts: Ints, c: PodClass, node: int, pod: Pod, why_not: WhyNot
    ) -> Reason:
        """What is true of this constraint comes first, then what is true of the move."""
        if group.index not in c.carried:
            return reason(ReasonCode.NOT_CARRIED)
        replacement = self._classes.replacement(pod, c)
        if replacement.claims and not (c.static & (group.domain_of != group.domain_of[node])).any():
            domain = f"{group.constraint.topology_key}={group.names[group.domain_of[node]]}"
            return reason(ReasonCode.PINNED_BY_VOLUME, f"its volume keeps it in {domain}")
        found = why_not(c, node, pod)
        if found.code is ReasonCode.NO_FEASIBLE_NODE:
            return self._no_node(group, counts, replacement, pod)
        return found

    def _of_group(self, group: Group, counts: Ints, refused: list[Refusal]) -> tuple[Reason, ...]:
        """Why a group's excess stays: each kind of reason once, with how many pods it concerns."""
        reasons: list[Reason] = []
        if not group.enough_domains:
            need = group.constraint.min_domains
            reasons.append(
                Reason(
                    ReasonCode.TOO_FEW_DOMAINS,
                    f"minDomains {need} with {group.size} eligible domains: the minimum counts as 0: no "
                    f"domain may hold more than {group.constraint.max_skew}",
                    {"minDomains": need, "domains": group.size},
                    "add a domain, or lower minDomains",
                )
            )
        pods = Counter(r.reason.code for r in refused)
        first = {r.reason.code: r.reason for r in reversed(refused)}
        for code, number in sorted(pods.items(), key=lambda item: (-item[1], item[0])):
            r = first[code]
            said = Counter(s.reason.message for s in refused if s.reason.code is code).most_common()
            told = [f"{_pods(n)}: {message}" for message, n in said[:_TOLD]]
            if others := sum(n for _, n in said[_TOLD:]):
                more = len(said) - _TOLD
                told.append(f"{_pods(others)}: {more} other message{'s' if more > 1 else ''}")
            reasons.append(Reason(code, "; ".join(told), {**r.numbers, "pods": number}, r.remedy))
        if not reasons:
            reasons.append(
                Reason(
                    ReasonCode.NO_FEASIBLE_NODE,
                    f"no pod that may move is in the fuller domains; highest count {int(counts.max())}, "
                    f"lowest {int(counts.min())}",
                )
            )
        return tuple(reasons)

    def _overfull(
        self, group: Group, counts: Ints, classes: Sequence[PodClass]
    ) -> Iterator[tuple[PodClass, int, Pod]]:
        """Counted pods, still in place, of the domains beyond the minimum + maxSkew."""
        over = np.append(counts > group.minimum(counts) + group.constraint.max_skew, False)
        for c in classes:
            if group.index in c.counted:
                for node in sorted(c.by_node):
                    if over[group.domain_of[node]]:
                        for pod in c.by_node[node]:
                            if key_of(pod) in self._simulation.state.pods:
                                yield c, node, pod

    def _no_node(self, group: Group, counts: Ints, replacement: PodTemplate, pod: Pod) -> Reason:
        """Counts, domain by domain, what rejects the replacement where it should go."""
        simulation = self._simulation
        sentences: list[str] = []
        numbers: dict[str, int] = {}
        emptiest = np.flatnonzero(counts == counts.min())[:3]
        with simulation.without(pod):
            framework = simulation.framework(replacement)
            of = [(d, np.flatnonzero(group.domain_of == d)) for d in emptiest]
            verdicts = [(d, nodes, framework.rejections(replacement, nodes)) for d, nodes in of]
        for d, nodes, rejections in verdicts:
            why = Counter(" and ".join(r.reasons) if r else "would take it" for r in rejections)
            name = group.names[int(d)]
            numbers[f"nodes {name}"] = len(nodes)
            detail = ", ".join(f"{n} {text}" for text, n in sorted(why.items()))
            how_many = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
            sentences.append(f"{group.constraint.topology_key}={name}: {how_many}: {detail}")
        preempts = self._would_preempt(replacement)
        code = ReasonCode.NEEDS_PREEMPTION if preempts else ReasonCode.NO_FEASIBLE_NODE
        found = reason(code, "its replacement would find no node; " + "; ".join(sentences))
        if more := self._may_be_added(group, replacement, [group.names[int(d)] for d in emptiest]):
            found = replace(found, message=f"{found.message}; {more}", remedy=_WAIT_FOR_IT)
        return replace(found, numbers=numbers)

    def _may_be_added(self, group: Group, replacement: PodTemplate, names: Sequence[str]) -> str:
        """That an autoscaler would have to add a node, and from which pool; "" where none is known to."""
        key = group.constraint.topology_key
        for name in names:
            where = {} if key == HOSTNAME else {key: name}
            pools = [
                _what_is_left(pool, replacement)
                for pool in self._simulation.snapshot.node_pools
                if pool.metadata.deletion_timestamp is None
                and pool.adds({**replacement.node_selector, **where})
                and all(
                    tolerated(t, replacement.tolerations)
                    for t in pool.spec.template.spec.taints
                    if t.effect in FILTERED_EFFECTS
                )
            ]
            if pools:
                place = f" in {name}" if where else ""
                return f"an autoscaler would have to add a node{place} ({'; '.join(pools)})"
        return ""

    def _would_preempt(self, replacement: PodTemplate) -> bool:
        """Whether the scheduler could preempt: pods of lower priority are where it may go."""
        static = self._simulation.static(replacement)
        return replacement.preempts and bool((self._lowest[static] < replacement.priority).any())

    @cached_property
    def _lowest(self) -> Ints:
        """int64[N]: the lowest priority of a pod on each node."""
        found = np.full(self._simulation.state.table.size, np.iinfo(np.int64).max)
        for p in self._simulation.state.pods.values():
            found[p.row] = min(found[p.row], p.template.priority)
        return found


_WAIT_FOR_IT = (
    "make room, or add a node, in the emptier domains; evictions.intoNewNodes: true lets a pod that is "
    "replaced first wait for the autoscaler"
)


def _what_is_left(pool: NodePool, replacement: PodTemplate) -> str:
    """The pool, with what its limits leave of what the pod asks for, or of nodes."""
    asked = {**replacement.requests, "nodes": 1}
    left = {r: n for r, n in pool.left.items() if r in asked}
    short = [r for r, n in left.items() if n < asked[r]]
    named = ", ".join(
        f"{n / 1000:g} CPU" if r == "cpu" else f"{n / 2**30:.3g}Gi" if r == "memory" else f"{n} {r}"
        for r, n in left.items()
    )
    says = f": limits leave {named}{', which is too little' if short else ''}" if left else ""
    return f"NodePool {pool.metadata.name}{says}{'' if pool.works else ', not Ready'}"


# Who carries which constraint, and which constraints somebody wrote.


class Carriers(Struct, frozen=True, eq=False):
    """Per group (by its number): the workloads that carry it, as Kind/name; `written`: groups that stand in
    a pod's own spec, not only in the scheduler's defaults."""

    workloads: dict[int, tuple[str, ...]]
    written: frozenset[int]


def carriers(groups: Groups, owners: Owners, live: Iterable[Alike], waiting: Iterable[Pod]) -> Carriers:
    """The carriers of all groups among the live pods; waiting pods count for what is written."""
    found: dict[int, set[str]] = {}
    written: set[int] = set()
    for a in live:
        carried = groups.carried(a.template)
        if a.template.spread:
            written.update(carried)
        if carried:
            owner = owners.of(a.one)
            top = owners.top(owner) if owner is not None else None
            for g in carried:
                found.setdefault(g, set()).add(f"{top.kind}/{top.name}" if top else "Pod")
    for p in waiting:
        if p.template.spread:
            written.update(groups.carried(p.template))
    return Carriers({g: tuple(sorted(names)) for g, names in found.items()}, frozenset(written))


# Constraints and moves as a Plan shows them.


def shown_constraint(
    group: Group,
    before: Ints,
    after: Ints,
    reasons: tuple[Reason, ...],
    workloads: tuple[str, ...],
    shared: Shared,
) -> ConstraintResult:
    """The result of one group. `workloads`: who carries it; `shared`: where equal counts are held once."""
    excess, residual = group.excess(before), group.excess(after)
    status: Status = "balanced"
    if excess or residual:
        # A soft constraint may have to give way to a hard one.
        status = "fixable" if not residual else "partly-fixable" if residual < excess else "unfixable"
    total = int(before.sum())
    domains = PerDomain(group.layout, shared.of(narrow(before)))
    # Of thousands of constraints by hostname, most keep their counts: those are held once.
    kept = np.array_equal(before, after)
    return ConstraintResult(
        constraint=group.constraint,
        workloads=workloads,
        domains=domains,
        after=domains if kept else PerDomain(group.layout, shared.of(narrow(after))),
        skew=group.skew(before),
        excess=excess,
        residual_excess=residual,
        status=status,
        reasons=reasons,
        worst_domain_loss=int(before.max()) / total if total else 0.0,
        best_domain_loss=-(-total // group.size) / total if total else 0.0,
    )


def shown_move(
    simulation: Simulation,
    owners: Owners,
    move: JudgedMove,
    wave: int,
    position: Mapping[int, int],
    waits: Reason | None,
    first: Release | Reason | None,
    *,
    certain: bool,
) -> Move:
    """One move, with what it does for each constraint. `position`: of each group, by `id`, in the plan.
    `waits`: why it is left to a later cycle. `first`: what is said of replacing the pod first. `certain`:
    nothing is unknown of the scheduler's rules."""
    table, node = simulation.state.table, move.candidate.node
    owner = move.candidate.members.owner
    assert owner is not None, "a pod without an owner is never evicted"
    parts = []
    for g in move.fixes:
        into = g.domain_of[move.destinations]
        to = [g.names[d] for d in into[first_places(into)].tolist() if d >= 0]
        where = ", ".join(to[:4]) + (f" or {len(to) - 4} more" if len(to) > 4 else "")
        source = g.names[g.domain_of[node]] if g.domain_of[node] >= 0 else "no domain"
        parts.append(f"{g.constraint.topology_key}: from {source} to {where}")
    reason = "; ".join(dict.fromkeys(parts)) or "makes way for the constraints of its neighbours"
    if move.fixes and not any(g.constraint.hard for g in move.fixes):
        reason += "; rests on the scheduler's scores, as the constraint is soft"
    elif not move.certain:
        reason += "; how this ends depends on where replacements land: a new plan is made unless as predicted"
    if move.release is not None:
        reason += "; its replacement comes first"
    elif first is not None:
        beside = "beside it no node would take another, or not where it helps"
        reason += f"; not replaced first: {first.message if isinstance(first, Reason) else beside}"
    return Move(
        pod=move.pod,
        owner=owners.top(owner),
        replacement=move.replacement,
        destinations=simulation.named(move.destinations),
        predicted=table.names[move.landed],
        certain=move.certain and certain,
        wave=wave,
        fixes=tuple(position[id(g)] for g in move.fixes),
        reason=reason,
        waits=waits,
        method=Method.EVICT if move.release is None else Method.REPLACE_FIRST,
        release_label=move.release.label if move.release is not None else "",
        released=move.release.template if move.release is not None else None,
    )


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
