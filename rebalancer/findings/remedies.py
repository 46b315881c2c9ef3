"""Remedies: changes that are replayed on the snapshot, and told only where they help.

Before and after a change the cluster is at rest: what waits has a node if one takes it. Figures are those of
one workload: its pods that find no node, its running ones that could not be replaced, its excess. A change
helps if one of them gets better and none worse. How many replays there are is bounded (`effort.for_advice`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.findings.cannot_be_replaced import Kept, Stuck, stuck_pods
from rebalancer.findings.survey import REPLICATED, Proposed, Subject, Survey, as_written, changed_entry
from rebalancer.model.node import NODEPOOL, Node
from rebalancer.model.pod import PodTemplate, TopologySpreadConstraint
from rebalancer.model.reason import Change, Finding, Remedy, Severity, plural
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.placing import Placing, Waits, at_rest, by_template
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.new_nodes import cluster_autoscaler
from rebalancer.planner.objective import Effort, steps_in_all
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.room.kinds import with_nodes
from rebalancer.spread.constraint import resolve

_CHOSEN = ("max_skew", "min_domains", "node_affinity_policy", "node_taints_policy")
"""What a change of a constraint sets; pods may have a selector of their own (matchLabelKeys)."""


def constrained(template: PodTemplate, change: Change, number: int) -> PodTemplate:
    """A pod of a workload with the changed constraint. `number`: how many constraints the workload has; a
    pod that has others is of another revision, and stays."""
    if len(template.spread) != number:
        return template
    made = {field: getattr(change.after, field) for field in _CHOSEN}
    spread = (replace(c, **made) if i == change.index else c for i, c in enumerate(template.spread))
    return replace(template, spread=tuple(spread))


def applied(snapshot: Snapshot, change: Change) -> Snapshot:
    """The snapshot with the change made; pods that run stay where they are, as pods of the new template."""
    if isinstance(change.after, Node):
        if change.before is None:
            like = next(n for n in snapshot.nodes if n.name == change.like)
            return with_nodes(snapshot, [(change.after.name, like, {})])
        nodes = tuple(change.after if n.name == change.after.name else n for n in snapshot.nodes)
        return replace(snapshot, nodes=nodes)
    owners = Owners(snapshot, PolicyOptions())
    workload = next(w for w in snapshot.workloads if w.key == change.object)
    number = len(workload.template.spread) if workload.template is not None else 0
    known: dict[int, tuple[PodTemplate, PodTemplate]] = {}

    def made(template: PodTemplate) -> PodTemplate:
        if id(template) not in known:
            known[id(template)] = template, constrained(template, change, number)
        return known[id(template)][1]

    def own(w: Workload | None) -> bool:
        return w is not None and owners.top(w) is workload

    return replace(
        snapshot,
        workloads=tuple(
            replace(w, template=made(w.template)) if own(w) and w.template is not None else w
            for w in snapshot.workloads
        ),
        pods=tuple(replace(p, template=made(p.template)) if own(owners.of(p)) else p for p in snapshot.pods),
    )


class _Figures(Struct, frozen=True):
    """`anew`: pods that find no node when all are placed anew; asked for contradictions only."""

    pending: int
    stuck: int
    excess: int
    anew: int = 0

    def better_than(self, other: _Figures) -> bool:
        mine = self.pending, self.stuck, self.excess, self.anew
        theirs = other.pending, other.stuck, other.excess, other.anew
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


class _Rested:
    """A cluster at rest. `left`: pods without a node, by workload; `every`: of all."""

    def __init__(self, simulation: Simulation, snapshot: Snapshot, owners: Owners) -> None:
        self.simulation = simulation
        _, left, _ = at_rest(simulation.state, snapshot)
        self.every = left
        waiting = {key_of(p): p for p in snapshot.pods if p.waits}
        self.waiting = sum(len(w.keys) for w in left)
        found: dict[str, list[tuple[Hashable, PodTemplate]]] = {}
        for waits in left:
            for key in waits.keys:
                owner = owners.of(waiting[key])
                if owner is not None:
                    found.setdefault(owners.top(owner).key, []).append((key, waits.template))
        self.left = {key: by_template(own) for key, own in found.items()}


class Replays:
    """The changes that checks propose, one after the other. `kept`: the pods of each workload, by its
    object."""

    def __init__(
        self, survey: Survey, owners: Owners, kept: Mapping[str, list[Kept]], effort: Effort
    ) -> None:
        self._survey = survey
        self._owners = owners
        self._kept = kept
        self._effort = effort
        self._changed: dict[tuple[str, bool], _Rested] = {}
        self._templates: dict[tuple[int, int], tuple[PodTemplate, Change, PodTemplate]] = {}

    def all(self, found: Iterable[Finding | Proposed]) -> Iterator[Finding]:
        """All findings, the proposed ones with the changes that help."""
        for one in found:
            told = self.told(one) if isinstance(one, Proposed) else one
            if told is not None:
                yield told

    def told(self, proposed: Proposed) -> Finding | None:
        """The finding, with the remedies that help; None if the replay shows that it is none."""
        subject, found = proposed.subject, proposed.finding
        before = self._figures(self._now, subject, None, proposed) if not self._effort.gone else None
        if before is None:
            return _with(found, (), len(proposed.changes))
        if proposed.anew and not before.anew and self._number(subject) >= subject.replicas:
            return None
        helping: list[tuple[Change, _Figures]] = []
        untried = 0
        # Of a bare pod, or of a Job, no constraint can be changed.
        fixed = subject.kind not in REPLICATED
        for change in proposed.changes:
            if fixed and not isinstance(change.after, Node):
                continue
            if self._effort.gone:
                untried += 1
                continue
            world = self._world(change)
            after = self._figures(world, subject, change, proposed)
            if world.waiting > self._now.waiting or not after.better_than(before):
                continue
            if not isinstance(change.after, Node):
                # One change of a constraint is enough: the first of those that help most.
                known = next((h for h in helping if not isinstance(h[0].after, Node)), None)
                if known is not None and not after.better_than(known[1]):
                    continue
                helping = [h for h in helping if h is not known]
            helping.append((change, after))
        remedies = tuple(self._remedy(subject, change, before, after) for change, after in helping)
        if found.severity is Severity.ERROR and any(
            self._buyer(r.change) and not r.pending[1] and not r.stuck[1] for r in remedies
        ):
            found = replace(found, severity=Severity.WARNING)
        return _with(found, remedies, untried)

    @cached_property
    def _now(self) -> _Rested:
        simulation = self._survey.simulation
        self._effort.candidates(steps_in_all(1, len(simulation.state.pods) // 10))
        return _Rested(simulation.over(simulation.state.copy()), self._survey.snapshot, self._owners)

    def _world(self, change: Change) -> _Rested:
        """The cluster with nodes as the change has them."""
        if not isinstance(change.after, Node):
            return self._now
        key = change.like or change.object, change.before is None
        found = self._changed.get(key)
        if found is None:
            snapshot = applied(self._survey.snapshot, change)
            self._effort.candidates(steps_in_all(1, len(snapshot.pods)))
            simulation = Simulation(snapshot, self._survey.state.config, self._survey.simulation.on_progress)
            found = self._changed[key] = _Rested(simulation, snapshot, self._owners)
        return found

    def _figures(
        self, world: _Rested, subject: Subject, change: Change | None, proposed: Proposed
    ) -> _Figures:
        simulation, left = world.simulation, world.left.get(subject.object, [])
        kept = self._kept.get(subject.object, [])
        self._effort.candidates(1 + len(kept) + len(left))
        anew = self._anew(world, subject, change) if proposed.anew else 0
        if change is not None and left and not isinstance(change.after, Node):
            simulation = simulation.over(simulation.state.copy())
            own = {key for w in left for key in w.keys}
            others = [Waits(w.template, tuple(k for k in w.keys if k not in own)) for w in world.every]
            waiting = [Waits(self._made(subject, w.template, change), w.keys) for w in left]
            found = Placing(simulation.state).place(waiting, others)
            left = by_template((k, w.template) for w in found for k in w.keys if k in own)
        table = simulation.state.table
        now = [
            Kept(k.owner, k.template, self._made(subject, k.replacement, change), k.pods, table) for k in kept
        ]
        stuck = sum(len(pods) for _, pods in stuck_pods(Stuck(simulation), now))
        template = self._made(subject, subject.common, change)
        excess = sum(g.excess(g.counts_once(simulation.state)) for g in _groups(simulation.state, template))
        return _Figures(sum(len(w.keys) for w in left), stuck, excess, anew)

    def _anew(self, world: _Rested, subject: Subject, change: Change | None) -> int:
        state = world.simulation.state.copy()
        kept, left = self._kept.get(subject.object, []), world.left.get(subject.object, [])
        for pod in (p for k in kept for p in k.pods):
            state.remove(key_of(pod))
        pods = [(key_of(p), k.replacement) for k in kept for p in k.pods]
        pods += [(key, w.template) for w in left for key in w.keys]
        self._effort.candidates(len(pods))
        made = by_template((key, self._made(subject, template, change)) for key, template in pods)
        return sum(len(w.keys) for w in Placing(state).place(made))

    def _number(self, subject: Subject) -> int:
        left = sum(len(w.keys) for w in self._now.left.get(subject.object, ()))
        return left + sum(len(k.pods) for k in self._kept.get(subject.object, ()))

    def _made(self, subject: Subject, template: PodTemplate, change: Change | None) -> PodTemplate:
        if change is None or isinstance(change.after, Node):
            return template
        key = id(template), id(change)
        if key not in self._templates:
            made = constrained(template, change, len(subject.template.spread))
            self._templates[key] = template, change, made
        return self._templates[key][2]

    def _buyer(self, change: Change) -> str:
        """Who may add the change's new node without being asked, as far as it shows."""
        if not isinstance(change.after, Node) or change.before is not None:
            return ""
        if NODEPOOL in change.after.labels:
            return "Karpenter"
        return "cluster-autoscaler" if self._autoscaled else ""

    @cached_property
    def _autoscaled(self) -> bool:
        return cluster_autoscaler(self._survey.snapshot)

    def _remedy(self, subject: Subject, change: Change, before: _Figures, after: _Figures) -> Remedy:
        return Remedy(
            change,
            _text(subject, change, self._buyer(change)),
            "; ".join(_does(before, after)),
            self._given_up(subject, change),
            (before.pending, after.pending),
            (before.stuck, after.stuck),
            (before.excess, after.excess),
        )

    def _given_up(self, subject: Subject, change: Change) -> str:
        if isinstance(change.after, Node):
            return "" if change.before is None else "the cordon"
        assert isinstance(change.before, TopologySpreadConstraint)
        old, new = as_written(change.before), as_written(change.after)
        fields = [
            f"{f} {old.get(f, _DEFAULTS.get(f))} for {new.get(f, _DEFAULTS.get(f))}"
            for f in dict.fromkeys((*new, *old))
            if old.get(f) != new.get(f)
        ]
        state, key = self._now.simulation.state, change.after.topology_key
        pods = self._number(subject)
        before, after = (
            _most(state, template, change.index, pods)
            for template in (subject.common, self._made(subject, subject.common, change))
        )
        holds = f"a domain of {key} may then hold {_of(after, pods)}, now {_of(before, pods)}"
        return f"{', '.join(fields)}; {holds}"


_DEFAULTS = {"nodeTaintsPolicy": "Ignore", "nodeAffinityPolicy": "Honor", "minDomains": 1}


def _groups(state: ClusterState, template: PodTemplate) -> Iterator[Group]:
    for constraint in state.constraints(template, hard=True):
        yield Group(-1, constraint, state.eligible(template, constraint), state)


def _most(state: ClusterState, template: PodTemplate, index: int, pods: int) -> int:
    """How many of so many pods the constraint allows in one domain."""
    c = resolve(template.spread[index], template)
    group = Group(-1, c, state.eligible(template, c), state)
    if not group.size or not group.enough_domains:
        return min(pods, c.max_skew)
    return min(pods, max(c.max_skew, (pods + (group.size - 1) * c.max_skew) // group.size))


def _of(some: int, every: int) -> str:
    return f"{some} of {every} pods ({round(100 * some / max(every, 1))} %)"


def _does(before: _Figures, after: _Figures) -> Iterator[str]:
    if after.pending < before.pending:
        yield f"{before.pending - after.pending} of {plural(before.pending, 'Pending pod')} would be placed"
    if after.stuck < before.stuck:
        more = before.stuck - after.stuck
        yield f"{more} of {plural(before.stuck, 'pod')} that could not be replaced could be"
    if after.anew < before.anew:
        left = after.anew or "none"
        yield f"{left} instead of {plural(before.anew, 'pod')} without a node, all placed anew"
    if after.excess < before.excess:
        yield f"excess {after.excess} instead of {before.excess}"


def _with(found: Finding, remedies: tuple[Remedy, ...], untried: int) -> Finding:
    said = "\n# or\n".join(f"{r.text}\n# replayed: {_shown(r)}" for r in remedies) or found.remedy
    if untried:
        changes = "1 change was" if untried == 1 else f"{untried} changes were"
        said = "\n".join(filter(None, (said, f"# {changes} not tried: advice has a bound")))
    return replace(found, remedy=said, remedies=remedies, untried=untried)


def _text(subject: Subject, change: Change, buyer: str) -> str:
    if not isinstance(change.after, Node):
        return changed_entry(subject, change)
    if change.before is None:
        return f"# one more node like {change.like}" + (f", which {buyer} may add" if buyer else "")
    return f"kubectl uncordon {change.after.name}"


def _shown(r: Remedy) -> str:
    return f"{r.does}\n# gives up {r.gives_up}" if r.gives_up else r.does
