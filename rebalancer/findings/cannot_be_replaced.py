"""Workloads that run, and whose next pod to die would stay Pending: no node would take its replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.framework import Shut, shut_nodes, told, would_preempt
from rebalancer.engine.plugins.node_resources import NodeResourcesFit
from rebalancer.engine.plugins.node_unschedulable import CORDON, NodeUnschedulable
from rebalancer.engine.plugins.pod_topology_spread import PodTopologySpread
from rebalancer.engine.plugins.taint_toleration import TaintToleration
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.findings.survey import REPLICATED, FindingCode, Proposed, Subject, Survey, finding
from rebalancer.model.node import HOSTNAME, Node
from rebalancer.model.pod import Pod, PodTemplate, TopologySpreadConstraint
from rebalancer.model.reason import Change, Finding, Severity, listing
from rebalancer.model.snapshot import Snapshot, among
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Bools, Ints, Rows
from rebalancer.spread.constraint import Constraint, resolve
from rebalancer.spread.nodes import FILTERED_EFFECTS, ByIdentity, NodeTable, tolerated
from rebalancer.spread.tally import Measure

# Pods that an owner keeps running and that are alike: one owner, one template, by node.


class Kept(Struct, frozen=True, eq=False, dict=True):
    """`replacement`: what the owner makes in place of one. `pods`: its live pods; `table`: their nodes."""

    owner: Workload
    template: PodTemplate
    replacement: PodTemplate
    pods: list[Pod]
    table: NodeTable

    @cached_property
    def rows(self) -> Rows:
        """The numbers of their nodes, each once."""
        index = self.table.index
        return np.fromiter(dict.fromkeys(index[p.node_name] for p in self.pods), dtype=np.intp)

    @cached_property
    def by_node(self) -> dict[int, list[Pod]]:
        """The pods on each node, by its number."""
        found: dict[int, list[Pod]] = {}
        for pod in self.pods:
            found.setdefault(self.table.index[pod.node_name], []).append(pod)
        return found


def kept_pods(snapshot: Snapshot, evictable: Evictable, table: NodeTable) -> list[Kept]:
    """All of them whose owner makes a new pod in place of one that is gone, in the snapshot's order."""
    found = []
    for group in among(snapshot.live, table.index):
        owner = evictable.owners.of(group.one)
        if owner is not None and owner.kind in REPLICATED:
            replacement = evictable.replacements.of(group.template, owner)
            found.append(Kept(owner, group.template, replacement, group.pods, table))
    return found


# What may have to change so that a replacement finds a node: a constraint, a cordon, or one node.


def changes(simulation: Simulation, subject: Subject, kept: Kept, shut: tuple[Shut, ...]) -> Iterator[Change]:
    """What may open a node, in the state in which the pod is gone; what gives up least comes first. `shut`:
    why none is open."""
    yield from leaving_out(simulation.state, subject, kept.replacement)
    yield from _skew(simulation, subject, kept)
    yield from _uncordon(simulation, kept)
    yield from _node(simulation, kept, shut)


def leaving_out(state: ClusterState, subject: Subject, template: PodTemplate) -> Iterator[Change]:
    """Changes of the workload's hard constraints that have fewer domains count: the taints of nodes, what
    the pods' affinity leaves out, and `minDomains`."""
    if len(template.spread) != len(subject.template.spread):
        return

    def domains(c: TopologySpreadConstraint) -> int:
        found = resolve(c, template)
        return Group(-1, found, state.eligible(template, found), state).size

    for i, (written, meant) in enumerate(zip(subject.template.spread, template.spread, strict=True)):
        if written.when_unsatisfiable != "DoNotSchedule":
            continue
        known, wanted = domains(meant), written.min_domains or 1
        if 0 < known < wanted:
            yield Change(subject.object, written, replace(written, min_domains=known), i)
        for fields in ({"node_taints_policy": "Honor"}, {"node_affinity_policy": "Honor"}):
            left = domains(replace(meant, **fields))
            if 0 < left < known:
                honored = replace(written, **fields)
                yield Change(subject.object, written, honored, i)
                if left < wanted:
                    yield Change(subject.object, written, replace(honored, min_domains=left), i)


def _skew(simulation: Simulation, subject: Subject, kept: Kept) -> Iterator[Change]:
    """The constraint whose maxSkew alone opens a node when it is raised, by the least."""
    state, new = simulation.state, kept.replacement
    if len(subject.template.spread) != len(new.spread):
        return
    asked = simulation.framework(new).questions(new)
    every = state.table.every
    spread = [q for q in asked if q.plugin == PodTopologySpread.name]
    others = every
    for question in asked:
        if question.plugin != PodTopologySpread.name:
            others = others & question.pass_
    hard = [i for i, c in enumerate(new.spread) if c.when_unsatisfiable == "DoNotSchedule"]
    best: tuple[int, int, int] | None = None
    for place, constraint in enumerate(state.constraints(new, hard=True)[: len(hard)]):
        open_ = others
        for i, question in enumerate(spread):
            if i != place:
                open_ = open_ & question.pass_
        group = Group(-1, constraint, state.eligible(new, constraint), state)
        needed = _needed(group, group.counts_once(state), open_, constraint.self_match(new.labels))
        if needed is not None and (best is None or needed - constraint.max_skew < best[0]):
            best = needed - constraint.max_skew, hard[place], needed
    if best is not None and best[0] > 0:
        written = subject.template.spread[best[1]]
        yield Change(subject.object, written, replace(written, max_skew=best[2]), best[1])


def _needed(group: Group, counts: Ints, open_: Bools, counts_itself: bool) -> int | None:
    """The lowest maxSkew with which the constraint admits one of the nodes."""
    domains = np.unique(group.domain_of[open_])
    domains = domains[domains >= 0]
    if not len(domains):
        return None
    return int(counts[domains].min()) + int(counts_itself) - group.minimum(counts)


def _uncordon(simulation: Simulation, kept: Kept) -> Iterator[Change]:
    """A cordoned node to which nothing else is shut."""
    table, new = simulation.state.table, kept.replacement
    open_ = table.unschedulable
    for question in simulation.framework(new).questions(new):
        if question.plugin not in (NodeUnschedulable.name, TaintToleration.name):
            open_ = open_ & question.pass_
    for row in np.flatnonzero(open_).tolist():
        node = table.nodes[row]
        taints = (t for t in node.spec.taints if t.effect in FILTERED_EFFECTS)
        if all(t.key == CORDON.key or tolerated(t, new.tolerations) for t in taints):
            left = tuple(t for t in node.spec.taints if t.key != CORDON.key)
            spec = replace(node.spec, unschedulable=False, taints=left)
            yield Change(f"Node/{node.name}", node, replace(node, spec=spec))
            return


def _single(simulation: Simulation, shut: tuple[Shut, ...]) -> str:
    """Nodes that one cause alone shuts."""
    for s in shut:
        if s.alone.any():
            names = (simulation.state.table.names[i] for i in np.flatnonzero(s.alone))
            return f"# on {listing(names)} nothing else is in the way: {s.cause}"
    return ""


def _node(simulation: Simulation, kept: Kept, shut: tuple[Shut, ...]) -> Iterator[Change]:
    """One more node: like one that is full, or one that pods are on already."""
    table, new = simulation.state.table, kept.replacement
    full = table.none
    for s in shut:
        if s.plugin == NodeResourcesFit.name:
            full = full | s.alone
    # A new node is empty, and a host of its own.
    open_ = full if full.any() else simulation.static(new)
    state = simulation.state
    for question, constraint in zip(
        (q for q in simulation.framework(new).questions(new) if q.plugin == PodTopologySpread.name),
        state.constraints(new, hard=True),
        strict=False,
    ):
        if constraint.topology_key != HOSTNAME:
            open_ = open_ & question.pass_
    if open_.any():
        yield one_more_like(table.nodes[int(np.flatnonzero(open_)[0])])


def one_more_like(node: Node) -> Change:
    """An empty node beside another one."""
    metadata = replace(node.metadata, name=f"{node.name}-more")
    return Change(f"Node/{metadata.name}", None, replace(node, metadata=metadata), like=node.name)


# Whether a replacement could go right back to where its pod was: asked of many nodes in one go.
#
# In a healthy cluster it can for nearly every pod, so that the engine is asked only about the others. A yes
# means that the pod can be replaced. A no says nothing yet, because another node may take the replacement.


class Back(Struct, frozen=True, eq=False):
    """For each of the rows: whether the replacement `fits` there, bool[R], and `lowers`, bool[R, C]: whether
    the pod's end lowers the global minimum of each constraint."""

    fits: Bools
    lowers: Bools


class BackAgain:
    """The question, over a simulation's present state."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._state = state = simulation.state
        self._nodes: ByIdentity[Bools] = ByIdentity()
        self._over: dict[str, bool] = {}
        self._nominated = {placed.row for placed in state.nominated.values()}

    def all(self, kept: Kept) -> bool:
        """Whether every one of them surely could, asked of domains and not of nodes."""
        new, own = kept.replacement, kept.template
        nodes, held = self._state.tally.nodes(own), dict(self._state.holds(own))
        return (
            not self._nominated
            and not self._repelled(kept, nodes).any()
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
        fits = fits & ~self._repelled(kept, rows)
        if set(new.host_ports) - set(kept.template.host_ports):
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

    def _repelled(self, kept: Kept, rows: Rows) -> Bools:
        """bool[R]: nodes that required (anti-)affinity, the replacement's own or others', may close to it,
        the pod gone that was there."""
        state, new = self._state, kept.replacement
        own, found = state.terms.of(new), np.zeros(len(rows), dtype=np.bool_)
        if own.required:
            return ~found
        measures: list[tuple[str, Measure]] = [
            (term.topology_key, state.terms.selects(term)) for term, _ in own.required_anti
        ]
        measures += ((c.term.topology_key, c) for c in state.terms.selecting(new, "required anti", 0))
        for key, measure in measures:
            layout = state.table.layout(key, state.table.every)
            there, ids = state.tally.by_domain_once(measure, layout), layout.rows[rows]
            inside = ids >= 0
            found[inside] |= there[ids[inside]] > measure.weigh(kept.template)
        return found

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
        group = self._simulation.group(constraint, self._state.eligible(template, constraint))
        return group, group.counts_once(self._state)


# Pods whose replacement would find no node at all, the pod itself gone.
#
# Most are known to be replaceable in one go (`BackAgain`). Of the rest one pod is tried for all whose end
# lowers the same minimums: a node that is open to its replacement, outside of the domains that it left, is
# open to theirs as well. Only where there is none each node is tried by itself.


class Stuck:
    """The search, over a simulation's present state."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._back = BackAgain(simulation)

    def pods(self, kept: Kept) -> list[Pod]:
        """The pods that could not be replaced now, by node."""
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
        new, state = kept.replacement, self.simulation.state
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
        with gone(self.simulation, kept.by_node[row][0]):
            framework = self.simulation.framework(kept.replacement)
            if framework.feasible(kept.replacement).any():
                return True
            nodes = np.flatnonzero(self.simulation.static(kept.replacement)).tolist()
            return would_preempt(framework, kept.replacement, nodes)

    def _open(self, kept: Kept, row: int) -> Bools:
        with gone(self.simulation, kept.by_node[row][0]):
            return self.simulation.framework(kept.replacement).feasible(kept.replacement)


@contextmanager
def gone(simulation: Simulation, pod: Pod) -> Iterator[None]:
    """While it lasts, the pod is not there."""
    with simulation.without(pod) as leaving:
        leaving.let_go()
        yield


def stuck_pods(search: Stuck, every: list[Kept]) -> Iterator[tuple[Kept, list[Pod]]]:
    """Each group with pods that could not be replaced, and these pods."""
    for kept in every:
        search.simulation.on_progress()
        if pods := search.pods(kept):
            yield kept, pods


Found = list[tuple[Kept, list[Pod]]]


def kept_by_workload(survey: Survey, evictable: Evictable) -> dict[str, list[Kept]]:
    """`kept_pods`, by the topmost owner (Kind/namespace/name)."""
    found: dict[str, list[Kept]] = {}
    for kept in kept_pods(survey.snapshot, evictable, survey.table):
        found.setdefault(evictable.owners.top(kept.owner).key, []).append(kept)
    return found


def check(survey: Survey, every: Mapping[str, list[Kept]]) -> Iterator[Proposed]:
    """A finding for each workload in scope of which a pod could not be replaced."""
    search = Stuck(survey.simulation)
    for subject in survey.subjects:
        own = every.get(subject.object, [])
        found = list(stuck_pods(search, own))
        if found:
            yield _finding(survey, subject, found, sum(len(k.pods) for k in own))


def _finding(survey: Survey, subject: Subject, found: Found, total: int) -> Proposed:
    simulation = survey.simulation
    kept, pods = max(found, key=lambda f: len(f[1]))
    number = sum(len(p) for _, p in found)
    with gone(simulation, pods[0]):
        shut = shut_nodes(simulation.framework(kept.replacement), kept.replacement)
        may = tuple(changes(simulation, subject, kept, shut))
    names = sorted(p.name for _, some in found for p in some)
    if total == 1:
        what = f"if its pod {names[0]} died now, no present node would take its replacement"
    elif number == total:
        what = f"if one of its {total:,} pods died now, no present node would take its replacement"
    else:
        what = (
            f"if one died now, no present node would take the replacement of {number:,} of its {total:,} "
            f"pods ({listing(names)})"
        )
    return _told(simulation, subject, what, shut, may, number, total)


def not_placed(simulation: Simulation, subject: Subject, number: int) -> Proposed:
    """The finding about pods of a workload that find no node when they are first placed."""
    new, total = subject.template, subject.replicas
    owner = subject.workload
    assert owner is not None
    kept = Kept(owner, new, new, [], simulation.state.table)
    shut = shut_nodes(simulation.framework(new), new)
    may = tuple(changes(simulation, subject, kept, shut))
    if total == 1:
        what = "its pod finds no node"
    elif number == total:
        what = f"none of its {total:,} pods finds a node"
    else:
        what = f"{number:,} of its {total:,} pods {'finds' if number == 1 else 'find'} no node"
    return _told(simulation, subject, what, shut, may, number, total)


def _told(
    simulation: Simulation,
    subject: Subject,
    what: str,
    shut: tuple[Shut, ...],
    may: tuple[Change, ...],
    number: int,
    total: int,
) -> Proposed:
    advice = _single(simulation, shut)
    numbers = {"pods": number, "of": total}
    code = FindingCode.CANNOT_BE_REPLACED
    message = f"{what}: {told(shut)}"
    return Proposed(
        finding=finding(Severity.ERROR, code, subject, message, advice, numbers=numbers),
        subject=subject,
        changes=may,
    )


# Since when pods of a workload cannot be replaced, as far as somebody has looked and remembers.


def first_seen(
    known: Mapping[str, float],
    findings: Iterable[Finding],
    *,
    now: float,
    looked_at: Callable[[str], bool] = lambda _: True,
) -> dict[str, float]:
    """Workload (Kind/namespace/name) → epoch seconds at which this was seen first, of those of which it is so
    now. `known`: what was remembered before; who can be replaced again is forgotten, as far as somebody
    looked at the namespace."""
    elsewhere = {w: at for w, at in known.items() if not looked_at(w.split("/")[1])}
    return elsewhere | {
        f.object: min(known.get(f.object, now), now)
        for f in findings
        if f.code == FindingCode.CANNOT_BE_REPLACED
    }


def dated(known: Mapping[str, float], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, those with their time whose workload was remembered."""
    return tuple(
        replace(f, since=known[f.object])
        if f.code == FindingCode.CANNOT_BE_REPLACED and f.object in known
        else f
        for f in findings
    )
