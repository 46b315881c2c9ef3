"""A month of ordinary life on the engine, under nothing, evictions, prevention, both: how much excess arises,
and what it takes to be rid of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.drill.lost import SILENT
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import ZONE, Node, OwnerReference
from rebalancer.model.pod import Pod, PodTemplate, TopologySpreadConstraint
from rebalancer.model.reason import Finding, Severity
from rebalancer.model.selectors import canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import HASH, Workload
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.cluster.placing import Placing, by_template
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.plan import ConstraintResult, Move, Plan, PlanOptions
from rebalancer.planner.planner import plan
from rebalancer.prevention.rollouts import tells_revisions
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.prevention.steering import steer
from rebalancer.room.kinds import belongs_to_node

# A cluster that lives: what controllers and the scheduler make of a change, at once.
#
# Pods start and end in no time. The scheduler is the engine's filter and score, of equal nodes the first by
# name. A ReplicaSet that shrinks deletes by deletion cost, then from nodes with more of its pods, then the
# younger (kubernetes pkg/controller/controller_utils.go, ActivePodsWithRanks). StatefulSets keep their
# replicas and are not rolled out: what their ordinals do nobody can change.

_SURGE = 0.25
"""maxSurge and maxUnavailable of a rolling update, as Deployments have them by default."""
_STEERED = ScaleInOptions(mode="all", excluded=())


@dataclass(eq=False)
class Work:
    """A ReplicaSet as it is now. `base`: its replicas in the snapshot."""

    owner: Workload
    template: PodTemplate
    base: int
    revision: int = 0


class World:
    """`prevented`: scale-ins are steered, and revisions are counted apart. `time` in hours; `state`: the
    scheduler's view."""

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig | None, *, prevented: bool) -> None:
        self._base, self._config, self._prevented = snapshot, config, prevented
        self.time = 0.0
        self._made = 0
        self.nodes: dict[str, Node] = {n.name: n for n in snapshot.nodes}
        self.pods: dict[str, Pod] = {}
        self.works: dict[str, Work] = {}
        self._of: dict[str, str] = {}
        own: dict[str, list[Pod]] = {}
        for pod in snapshot.pods:
            owner = snapshot.owner_of(pod.namespace, pod.owner)
            if pod.finished or pod.terminating:
                continue
            if pod.node_name and pod.node_name not in self.nodes:
                # It is lost; whoever keeps up its number makes another, which finds no node yet.
                pod = replace(pod, node_name="", ready=False)
            if owner is None or owner.kind != "ReplicaSet" or not owner.replicas:
                self.pods[pod.uid or pod.key] = pod
            else:
                own.setdefault(owner.key, []).append(pod)
        owners = {w.key: w for w in snapshot.workloads}
        for key, pods in sorted(own.items()):
            metadata = replace(owners[key].metadata, owner_references=())
            template = self._template(pods[0].template, 0)
            owner = replace(owners[key], metadata=metadata, template=template, replicas=len(pods))
            self.works[key] = Work(owner, template, len(pods))
            for pod in pods:
                uid = pod.uid or pod.key
                self.pods[uid] = replace(
                    pod, uid=uid, template=template, owner=_reference(owner), annotations={}
                )
                self._of[uid] = key
        self._rebuild()

    @property
    def zones(self) -> list[str]:
        """The zones that there are."""
        return sorted({n.labels[ZONE] for n in self.nodes.values() if ZONE in n.labels})

    def snapshot(
        self, pods: Iterable[Pod] | None = None, owners: Iterable[Workload] | None = None
    ) -> Snapshot:
        """The cluster now, or a part of it."""
        others = [w for w in self._base.workloads if w.kind not in ("ReplicaSet", "Deployment")]
        return replace(
            self._base,
            nodes=tuple(sorted(self.nodes.values(), key=lambda n: n.name)),
            pods=tuple(
                sorted(self.pods.values() if pods is None else pods, key=lambda p: (p.namespace, p.name))
            ),
            workloads=tuple(owners)
            if owners is not None
            else (*others, *(w.owner for w in self.works.values())),
            now=self._base.now + self.time * 3600,
        )

    def scale(self, key: str, share: float) -> None:
        """To that share of the replicas in the snapshot."""
        work = self.works[key]
        wanted = max(2, round(work.base * share))
        pods = self.pods_of(key)
        work.owner = replace(work.owner, replicas=wanted)
        if wanted < len(pods):
            for pod in self._first_to_go(work.owner, pods)[: len(pods) - wanted]:
                self._delete(pod)
        self._create(work, wanted - len(pods))

    def roll_out(self, key: str) -> None:
        """A new revision, by a rolling update."""
        work, old = self.works[key], self.pods_of(key)
        work.revision += 1
        before, wanted = work.owner, work.owner.replicas
        template = self._template(work.template, work.revision)
        metadata = replace(before.metadata, uid=f"{before.key}/{work.revision}")
        work.template = template
        work.owner = replace(before, metadata=metadata, template=template)
        surge, unavailable = math.ceil(_SURGE * wanted), math.floor(_SURGE * wanted)
        made = ready = 0
        while old or made < wanted:
            more = min(wanted - made, wanted + surge - len(old) - made)
            ready += sum(bool(p.node_name) for p in self._create(work, more))
            made += more
            # One that cannot go on because new pods find no node ends by hand.
            gone = max(len(old) + ready - (wanted - unavailable), 1)
            going = self._first_to_go(replace(before, replicas=len(old)), old)[:gone]
            for pod in going:
                self._delete(pod)
            old = [p for p in old if p not in going]

    def replace_node(self, name: str) -> None:
        """Its pods go elsewhere; then an empty node of its shape joins. Not while its zone is down."""
        node = self.nodes[name]
        if set(SILENT) & set(node.spec.taints):
            return
        here = [p for p in self.pods.values() if p.node_name == name]
        stay = [p for p in here if belongs_to_node(p)]
        del self.nodes[name]
        for pod in here:
            del self.pods[pod.uid or pod.key]
        self._rebuild()
        self._again([p for p in here if p not in stay])
        self.nodes[name] = node
        self.pods.update({p.uid or p.key: p for p in stay})
        self._rebuild()

    def fail(self, zone: str) -> None:
        """Its nodes fall silent; what they ran is made anew."""
        names = {n.name for n in self.nodes.values() if n.labels.get(ZONE) == zone}
        lost = [p for p in self.pods.values() if p.node_name in names and not belongs_to_node(p)]
        for name in names:
            node = self.nodes[name]
            self.nodes[name] = replace(node, spec=replace(node.spec, taints=(*node.spec.taints, *SILENT)))
        for pod in lost:
            self.pods.pop(pod.uid or pod.key)
        self._rebuild()
        self._again(lost)

    def back(self, zone: str) -> None:
        """The zone is there again, empty."""
        for name, node in self.nodes.items():
            if node.labels.get(ZONE) == zone:
                kept = tuple(t for t in node.spec.taints if t not in SILENT)
                self.nodes[name] = replace(node, spec=replace(node.spec, taints=kept))
        self._rebuild()

    def evict(self, move: Move) -> None:
        """A move as it goes: the scheduler decides where the replacement lands."""
        pod = self.pods.get(move.pod.uid or move.pod.key)
        if pod is not None:
            self._delete(pod)
            self._again([pod])

    def retry(self) -> None:
        """Pods that wait are placed where they find a node by now."""
        waiting = [p for p in self.pods.values() if not p.node_name]
        for pod in waiting:
            self.pods.pop(pod.uid or pod.key)
        self._again(waiting)

    def pods_of(self, key: str) -> list[Pod]:
        """Those of a ReplicaSet."""
        return [p for uid, p in self.pods.items() if self._of.get(uid) == key]

    def _create(self, work: Work, number: int) -> list[Pod]:
        made = []
        for _ in range(max(0, number)):
            self._made += 1
            name = f"{work.owner.name}-{self._made:06d}"
            pod = Pod(
                name=name,
                namespace=work.owner.namespace,
                uid=name,
                template=work.template,
                owner=_reference(work.owner),
            )
            made.append(pod)
            self._of[name] = f"ReplicaSet/{work.owner.namespace}/{work.owner.name}"
        return self._again(made)

    def _again(self, pods: Iterable[Pod]) -> list[Pod]:
        """Places them, as new ones of the same owner."""
        by_key = {p.uid or p.key: p for p in pods}
        placing = Placing(self.state)
        placing.place(by_template((uid, p.template) for uid, p in by_key.items()))
        names, now = self.state.table.names, self._base.now + self.time * 3600
        for uid, pod in by_key.items():
            row = placing.placed.get(uid)
            node = names[row] if row is not None else ""
            self.pods[uid] = replace(
                pod,
                node_name=node,
                nominated_node_name="",
                phase="Running" if node else "Pending",
                ready=bool(node),
                ready_since=now if node else None,
                created=now,
                started=now if node else None,
                unschedulable="" if node else "no node",
            )
        return [self.pods[uid] for uid in by_key]

    def _delete(self, pod: Pod) -> None:
        uid = pod.uid or pod.key
        if self.pods.pop(uid).node_name:
            self.state.remove(uid)

    def _first_to_go(self, owner: Workload, pods: list[Pod]) -> list[Pod]:
        costs: dict[str, int] = {}
        if self._prevented and len(pods) > 1:
            near = self._counted_with(pods[0].template)
            steering = steer(self.snapshot(near, (owner,)), _STEERED, self._config)
            costs = {c.pod.uid: c.cost for o in steering.owners for c in o.changes}
        rank = Counter(p.node_name for p in pods)
        return sorted(
            pods,
            key=lambda p: (
                bool(p.node_name),
                costs.get(p.uid, 0),
                -rank[p.node_name],
                -(p.created or 0),
                p.name,
            ),
        )

    def _counted_with(self, template: PodTemplate) -> list[Pod]:
        """The pods that the constraints of such a pod count, and those that carry them."""
        own = [c for hard in (True, False) for c in self.state.constraints(template, hard=hard)]
        which: dict[int, bool] = {}
        for pod in self.pods.values():
            if id(pod.template) not in which:
                t = pod.template
                alike = t.controller == template.controller and t.labels == template.labels
                which[id(t)] = alike or any(c.counts(t.namespace, t.labels) for c in own)
        return [p for p in self.pods.values() if which[id(p.template)]]

    def _template(self, template: PodTemplate, revision: int) -> PodTemplate:
        labels = {**template.labels, HASH: f"r{revision}"}
        spread = tuple(map(self._counted_apart, template.spread, (labels,) * len(template.spread)))
        return replace(template, labels=labels, spread=spread if self._prevented else template.spread)

    def _counted_apart(self, c: TopologySpreadConstraint, labels: dict[str, str]) -> TopologySpreadConstraint:
        if c.label_selector is None:
            return c
        selector = canonical(c.label_selector)
        keys = [r.key for r in selector.requirements]
        if not keys or not selector.matches(labels) or tells_revisions(c.match_label_keys, keys, {"app"}):
            return c
        return replace(c, match_label_keys=(*c.match_label_keys, HASH))

    def _rebuild(self) -> None:
        self.state = ClusterState.of(self.snapshot(), self._config)


def _reference(owner: Workload) -> OwnerReference:
    return OwnerReference(kind="ReplicaSet", name=owner.name, uid=owner.metadata.uid, controller=True)


# The excess of a cluster, and what the loss of a domain would take beyond what it has to.


class Measured(Struct, frozen=True):
    """`excess`: of all hard constraints. `loss`: the largest share of a constraint's pods that the fullest
    domain holds beyond the smallest share possible."""

    excess: int
    loss: float


def measure(world: World) -> Measured:
    """Now."""
    templates = {id(p.template): p.template for p in world.pods.values()}
    excess, loss = 0, 0.0
    for group in Groups(world.state, templates.values()).all:
        if not group.size:
            continue
        counts = group.counts_once(world.state)
        excess += group.excess(counts)
        total = int(counts.sum())
        if total:
            loss = max(loss, (int(counts.max()) - -(-total // group.size)) / total)
    return Measured(excess, loss)


# Where a rollout ends better than evictions could: it places all pods anew, with surge, and asks no budget.
#
# A finding, and never done: a restart replaces every pod, and deploys what a mutable image tag means by
# now.


class RestartCode(StrEnum):
    """The word for it in report and documentation."""

    WOULD_HELP = "restart-would-help"


_MOST = 20
"""Deployments that are tried."""
_PODS = 5_000
"""In a larger cluster none is."""


def restart_findings(snapshot: Snapshot, options: PlanOptions, plan: Plan) -> tuple[Finding, ...]:
    """Deployments whose constraints keep an excess after the plan and would keep less after a restart, whose
    pods land only where a move's may."""
    left: dict[tuple[str, str], list[ConstraintResult]] = {}
    for c in plan.constraints:
        if c.in_scope and c.constraint.hard and c.residual_excess:
            for workload in c.workloads:
                kind, _, name = workload.partition("/")
                if kind == "Deployment":
                    left.setdefault((c.constraint.namespace, name), []).append(c)
    if not left or len(snapshot.pods) > _PODS:
        return ()
    return tuple(_found(snapshot, options, dict(sorted(left.items())[:_MOST])))


def _found(
    snapshot: Snapshot, options: PlanOptions, left: dict[tuple[str, str], list[ConstraintResult]]
) -> Iterator[Finding]:
    simulation = Simulation(snapshot, options.scheduler)
    index = simulation.state.table.index
    for (namespace, name), constraints in left.items():
        owner = snapshot.workloads_by_name.get(("Deployment", namespace, name))
        sets = [
            w.key
            for w in snapshot.workloads
            if w.kind == "ReplicaSet" and w.replicas and w.owner and w.owner.name == name
            and w.namespace == namespace
        ]  # fmt: skip
        # Of two revisions one is on its way out; with Recreate a restart is an outage.
        if owner is None or owner.paused or owner.update_strategy == "Recreate" or len(sets) != 1:
            continue
        world = World(snapshot, options.scheduler, prevented=False)
        if sets[0] not in world.works:
            continue
        before = measure(world).excess
        waiting = sum(not p.node_name for p in world.pods.values())
        world.roll_out(sets[0])
        gained = before - measure(world).excess
        now, stays = sum(c.excess for c in constraints), sum(c.residual_excess for c in constraints)
        refuses = simulation.refuses(world.works[sets[0]].template)
        unfit = any(refuses[index[p.node_name]] for p in world.pods_of(sets[0]) if p.node_name)
        waits = sum(not p.node_name for p in world.pods.values())
        if now - gained < stays and waits <= waiting and not unfit:
            yield Finding(
                Severity.INFO,
                RestartCode.WOULD_HELP.value,
                f"Deployment/{namespace}/{name}",
                f"a restart would leave its constraints an excess of {max(0, now - gained)}, evictions "
                f"leave {stays}: it places all pods anew, takes no budget into account, and deploys what its "
                "image tag means now",
                f"see it first: rebalancer simulate --restart {namespace}/{name}\n"
                f"then: kubectl rollout restart deployment/{name} -n {namespace}",
                numbers={"after_restart": max(0, now - gained), "after_evictions": stays},
            )


# How often what happens in a month. Fixed before the first month was played; the results do not choose
# them.
#
# All are means of a Poisson process. None is measured in a real cluster: they are what an autoscaled
# cluster with weekly releases, rolling node upgrades and a bad day a month may see.

SCALINGS_PER_DAY = 1.0
"""Changes of a workload's replicas: out by day, in by night and every other day."""
SCALED_TO = (0.5, 1.5)
"""What a workload is scaled to, of the replicas that it has in the snapshot; never below two."""
ROLLOUTS_PER_WEEK = 2.0
"""New revisions of a workload."""
REPLACEMENTS_PER_MONTH = 2.0
"""A node is drained and replaced by an empty one of its shape and zone."""
OUTAGES_PER_MONTH = 1.0
"""A zone of the cluster falls silent; its pods are made anew elsewhere."""
OUTAGE_HOURS = 2.0
"""After so long it is back, empty."""
CYCLE_HOURS = 0.25
"""How long after a change evictions follow, where they are on."""


# What happens in a month, drawn before it is played: the same for every variant.

_DAY, _WEEK, _MONTH = 24.0, 24.0 * 7, 24.0 * 30


class Kind(StrEnum):
    """What happens."""

    SCALE = "scale"
    ROLLOUT = "rollout"
    REPLACE = "replace-node"
    OUTAGE = "outage"
    RETURN = "return"


class Event(Struct, frozen=True, order=True):
    """At a time in hours. `target`: a workload's key, a node's name, or a zone; `share`: of the replicas."""

    at: float
    kind: Kind
    target: str
    share: float = 1.0


def events(
    draw: Callable[[], float], hours: float, works: Sequence[str], nodes: Sequence[str], zones: Sequence[str]
) -> list[Event]:
    """In order. `draw`: uniform from 0 to below 1."""
    found: list[Event] = []
    least, most = SCALED_TO
    for work in works:
        found += (
            Event(at, Kind.SCALE, work, least + (most - least) * draw())
            for at in _times(draw, SCALINGS_PER_DAY / _DAY, hours)
        )
        found += (Event(at, Kind.ROLLOUT, work) for at in _times(draw, ROLLOUTS_PER_WEEK / _WEEK, hours))
    for node in nodes:
        rate = REPLACEMENTS_PER_MONTH / _MONTH
        found += (Event(at, Kind.REPLACE, node) for at in _times(draw, rate, hours))
    for at in _times(draw, OUTAGES_PER_MONTH / _MONTH, hours) if len(zones) > 1 else ():
        zone = zones[int(draw() * len(zones))]
        found += (Event(at, Kind.OUTAGE, zone), Event(at + OUTAGE_HOURS, Kind.RETURN, zone))
    return sorted(e for e in found if e.at < hours)


def _times(draw: Callable[[], float], rate: float, hours: float) -> Iterator[float]:
    at = 0.0
    while True:
        at -= math.log(1.0 - draw()) / rate
        if at >= hours:
            return
        yield at


_ROUNDS = 3
"""Plans of one cycle at most: after the first, where something has landed elsewhere than predicted."""


class Variant(StrEnum):
    """What is done about excess."""

    NOTHING = "nothing"
    EVICTIONS = "evictions"
    PREVENTION = "prevention"
    BOTH = "both"

    @property
    def evicts(self) -> bool:
        """Whether cycles follow changes."""
        return self in (Variant.EVICTIONS, Variant.BOTH)

    @property
    def prevents(self) -> bool:
        """Whether scale-ins are steered, and revisions counted apart."""
        return self in (Variant.PREVENTION, Variant.BOTH)


class Lived(Struct, frozen=True, kw_only=True):
    """What a month came to. `excess_hours`: pods in excess times hours. `losses`: of each day the worst
    `Measured.loss`. `events`: how many of each kind."""

    variant: Variant
    excess_hours: float
    evictions: int
    losses: tuple[float, ...]
    events: dict[str, int]


def play(
    snapshot: Snapshot,
    options: PlanOptions,
    variant: Variant,
    *,
    days: int,
    draw: Callable[[], float],
) -> Lived:
    """`draw`: uniform from 0 to below 1; equal draws, equal months."""
    options = replace(options, policy=replace(options.policy, min_pod_age=0.0))
    world = World(snapshot, options.scheduler, prevented=variant.prevents)
    hours = days * 24.0
    coming = events(draw, hours, sorted(world.works), sorted(world.nodes), world.zones)
    tally = _Tally(world, hours)
    due = CYCLE_HOURS if variant.evicts and tally.now.excess else hours
    for event in [*coming, Event(hours, Kind.RETURN, "")]:
        while due < event.at:
            tally.until(due)
            tally.evictions += _cycle(world, options)
            tally.changed()
            due = hours
        tally.until(event.at)
        if event.at < hours:
            _happens(world, event)
            tally.changed()
            tally.events[event.kind.value] = tally.events.get(event.kind.value, 0) + 1
            if variant.evicts and tally.now.excess:
                due = min(due, event.at + CYCLE_HOURS)
    return Lived(
        variant=variant,
        excess_hours=round(tally.excess_hours, 2),
        evictions=tally.evictions,
        losses=tuple(round(x, 4) for x in tally.losses),
        events=tally.events,
    )


class _Tally:
    """What is added up while time passes."""

    def __init__(self, world: World, hours: float) -> None:
        self._world = world
        self.now: Measured = measure(world)
        self.excess_hours, self.evictions = 0.0, 0
        self.losses = [0.0] * max(1, round(hours / 24))
        self.events: dict[str, int] = {}

    def until(self, at: float) -> None:
        """Nothing changes until then."""
        self.excess_hours += self.now.excess * (at - self._world.time)
        first, last = int(self._world.time // 24), min(int(at // 24), len(self.losses) - 1)
        for day in range(first, last + 1):
            self.losses[day] = max(self.losses[day], self.now.loss)
        self._world.time = at

    def changed(self) -> None:
        """Something has happened."""
        self.now = measure(self._world)


def _happens(world: World, event: Event) -> None:
    if event.kind is Kind.SCALE:
        world.scale(event.target, event.share)
    elif event.kind is Kind.ROLLOUT:
        world.roll_out(event.target)
    elif event.kind is Kind.REPLACE:
        world.replace_node(event.target)
    elif event.kind is Kind.OUTAGE:
        world.fail(event.target)
    else:
        world.back(event.target)
    world.retry()


def _cycle(world: World, options: PlanOptions) -> int:
    """Plans and evicts; how many."""
    evicted = 0
    for _ in range(_ROUNDS):
        # Nobody adds nodes here.
        moves = [m for m in plan(world.snapshot(), options).moves if not m.awaits]
        for move in moves:
            world.evict(move)
        evicted += len(moves)
        if not moves or not measure(world).excess:
            break
    return evicted
