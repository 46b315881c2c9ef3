"""The engine's state of the cluster as it is watched now, and whether the watch is as new as the API server.

It follows the watch pod by pod, which costs milliseconds. It is built again, which takes a second for 150,000
pods, when a node says something else than before to anything that was asked of it (`NodeTable.follow`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, islice

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.version import ServerVersion
from rebalancer.kube.lists import PAGE, HeadMeta
from rebalancer.kube.reading import Objects
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import Identity, Object, Snapshot, alike, build_snapshot, going, to_be_replaced
from rebalancer.model.workload import Namespace, ResourceQuota, Service, Workload
from rebalancer.planner.cluster.bystanders import usable
from rebalancer.planner.cluster.drained import Drained
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.cluster.to_be_made import Expelling, to_be_made
from rebalancer.planner.cluster.waiting import without_claims
from rebalancer.planner.new_nodes import with_nodes
from rebalancer.planner.plan import Move
from rebalancer.policy.options import Method, PolicyOptions
from rebalancer.policy.owners import KEPT_UP, Owners
from rebalancer.policy.pods_to_come import PodsToCome
from rebalancer.policy.replacement import Replacements
from rebalancer.policy.vertical_autoscalers import VerticalAutoscalers
from rebalancer.spread.constraint import SELECTING


class ClusterNow:
    """Begins as `snapshot`. `config`: the scheduler's, None for its defaults. `now`: in seconds of the epoch,
    None for always that of the snapshot. `victims`: pods that the plan has go. `new`: nodes that are not
    there yet, and stand beside the others."""

    def __init__(
        self,
        snapshot: Snapshot,
        config: SchedulerConfig | None,
        watched: WatchCache,
        now: Callable[[], float] | None = None,
        victims: Iterable[Pod] = (),
        new: Sequence[Node] = (),
    ) -> None:
        self._config = config
        self.hard_defaults = (config or DEFAULT_CONFIG).hard_defaults
        self._new = new
        self._watched = watched
        self._planned = {n.name: n for n in snapshot.nodes}
        self.nodes = snapshot.nodes
        self._karpenter = snapshot.node_claims, snapshot.node_pools
        self._now, self._apart = now or (lambda: snapshot.now), snapshot.apart
        self._pods: Mapping[Identity, Pod] = {}
        self._at_plan, self._snapshot = _by_name(snapshot), snapshot
        self._classes: dict[int, Object] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self._groups: dict[str, Groups] = {}
        self._templates: dict[str, dict[int, tuple[PodTemplate, dict[str, Pod]]]] = {}
        self._waiting: dict[Identity, Pod] = {}
        self._ending: dict[Identity, Pod] = {}
        self._sets: list[Workload] = []
        self._of_daemons_changed = False
        self._generations = {w.metadata.uid: w.metadata.generation for w in snapshot.workloads}
        self.simulation = self._begin(snapshot)
        self._had = {uid: len(pods) for uid, pods in self._of.items()}
        self._ended = {p.uid for p in snapshot.over}
        leaving = [*self._expelling.pods(snapshot)]
        self._expelled = {p.uid for p in leaving}
        self._restless, self._needed = self._known(leaving, victims)
        self.expect(())

    def catch_up(self) -> None:
        """Takes over what has changed since the last time. Raises CacheNotReadyError."""
        nodes, now = self._watched.nodes(), self._now()
        if (karpenter := (self._watched.node_claims(), self._watched.node_pools())) != self._karpenter:
            self._karpenter = karpenter
            self._outgoing = to_be_replaced(*karpenter, nodes, self._watched.pods().values())
        # Time alone has nodes replaced, too.
        renewed = going(self._outgoing, now, now + self._apart) != self.simulation.snapshot.going
        renewed = renewed or {id(o) for o in self._watched.classes()} != self._classes.keys()
        # Affinity may mean pods of the namespaces that have certain labels.
        renewed = renewed or _labels(self._watched.namespaces()) != self._labels
        if self.hard_defaults and not renewed:
            by = _selecting(self._watched.services(""), self._watched.workloads(""))
            renewed = by != self._by
        if nodes is not self.nodes or renewed:
            # Volumes attach, and new pods are ranked, by what seldom changes.
            if renewed or not self.simulation.state.table.follow((*nodes, *self._new)):
                self.simulation = self._begin(replace(self._watched.snapshot(now), apart=self._apart))
            self.nodes = nodes
        live = self._watched.pods()
        known = self._pods
        for key in known.keys() - live.keys():
            self._take(known[key])
        for key, pod in live.items():
            before = known.get(key)
            if before is not pod:
                if before is not None:
                    self._take(before)
                self._put(pod)
        self._pods = live
        self._keep_for_daemons()
        # A volume is detached some time after its pod is gone.
        self.simulation.state.attach(self._watched.attachments())

    def _keep_for_daemons(self) -> None:
        """Room is kept for what pods of DaemonSets are yet to take, if one of these or a set has changed."""
        sets = [w for w in self._watched.workloads("") if w.kind == "DaemonSet"]
        if not self._of_daemons_changed and [*map(id, sets)] == [*map(id, self._sets)]:
            return
        live = chain.from_iterable(self._of[w.metadata.uid].values() for w in sets)
        self.simulation.keep_for_daemons(sets, alike(live), self._ending.values())
        self._sets, self._of_daemons_changed = sets, False

    def pod(self, planned: Pod) -> Pod | None:
        """The pod as it is now; None if it is gone, or no longer on a node."""
        live = self._pods.get((planned.namespace, planned.name))
        there = (
            live is not None
            and live.uid == planned.uid
            and (live.uid or live.key) in self.simulation.state.pods
        )
        return live if there else None

    def filled(self, nodes: Iterable[str]) -> bool:
        """Whether one of these nodes, or of those that pods could use of which the plan knew that they will
        need room, has got a pod since the plan, or nodes or autoscalers of such pods are others: what it knew
        says nothing any more."""
        rebuilt = self.simulation.snapshot is not self._snapshot
        asked, now = self._needed.union(nodes), self._watched.vertical_autoscalers
        return (
            rebuilt
            or any(number > 0 and name in asked for name, number in self._came.items())
            or any({id(v) for v in now(n)} != sized for n, sized in self._sized.items())
        )

    def arrived(self, *, whole: bool) -> list[Pod]:
        """The pods that wait for a node, and did not when the plan was made; `whole`: those that did, too."""
        known = (self._at_plan.get(key) for key in self._waiting)
        found = zip(self._waiting.values(), known, strict=True)
        new = (p for p, was in found if whole or was is None or was.uid != p.uid or not was.waits)
        return [self._placeable(p) for p in new]

    def expect(self, victims: Collection[str]) -> None:
        """Finds the pods that have to leave their nodes by now, without regard to `victims`, the uids of pods
        that the plan has ended."""
        self._ended_by_others = [p for p in self._ending.values() if p.uid not in victims]
        there = self.simulation.state.pods
        self.simulation.expect_to_end(key for p in self._ended_by_others if (key := key_of(p)) in there)
        self._to_leave = [p for name in sorted(self._expelling.nodes) for p in self._on[name].values()]
        pods = (*self._ended_by_others, *self._to_leave)
        found = replace(self.simulation.snapshot, now=self._now(), nodes=self.nodes, pods=pods)
        self._leaving = list(self._expelling.pods(found))
        self.simulation.drained = Drained(self._leaving)

    def begun(self, coming: Mapping[str, int], *, whole: bool) -> tuple[Snapshot, list[Pod]]:
        """What has begun since the plan, as of `expect`, as far as pods are made for it: owners that were
        changed, sets whose pods somebody ends, and those that have fewer pods, with all their pods; and the
        pods that have to leave their nodes, if one is among them that had not. `coming`: how many pods of
        each owner's uid are not there yet, as the plan has ended them; `whole`: what had begun before the
        plan counts, too."""
        every = self._watched.workloads("")
        uids = ((w.metadata.uid, w.metadata.generation) for w in every)
        changed = [uid for uid, generation in uids if self._generations.get(uid) != generation]
        ending = [p for p in self._ended_by_others if whole or p.uid not in self._ended]
        sets = (p.owner for p in ending if p.owner is not None and p.owner.kind == "StatefulSet")
        owners = {o.uid for o in sets}.union(changed, self._restless if whole else ())
        # A ReplicaSet makes the next one at once, if its controller is not behind.
        owners.update(u for u, n in self._had.items() if len(self._of[u]) + coming.get(u, 0) < n)
        leaving = self._leaving
        if not whole and self._expelled.issuperset(p.uid for p in leaving):
            leaving = []
        owners.update(p.owner.uid for p in leaving if p.owner is not None)
        # What a ReplicaSet makes next, another one of its Deployment may show.
        owners.update([w.owner.uid for w in every if w.owner is not None and w.metadata.uid in owners])
        family = [w for w in every if w.metadata.uid in owners or (w.owner and w.owner.uid in owners)]
        owners.update(w.metadata.uid for w in family)
        of_them = (p for u in sorted(owners) for p in self._of[u].values())
        pods = {key_of(p): p for p in (*ending, *self._to_leave, *of_them)}
        sizing = (self._watched.vertical_autoscalers(n) for n in sorted({w.namespace for w in family}))
        found = replace(
            self.simulation.snapshot,
            now=self._now(),
            nodes=self.nodes,
            pods=tuple(pods.values()),
            workloads=tuple(family),
            vertical_autoscalers=tuple(chain.from_iterable(sizing)),
        )
        return found, leaving

    def _known(self, leaving: Sequence[Pod], victims: Iterable[Pod]) -> tuple[frozenset[str], frozenset[str]]:
        """The uids of the owners of which the plan knew that pods are to be made; and the names of the nodes
        that these pods could use, or those that wait."""
        simulation, to_come = self.simulation, PodsToCome(Owners(self._snapshot, PolicyOptions()))
        restless = {w.metadata.uid for w, _ in to_come.further}
        restless.update(w.metadata.uid for w, *_ in to_come.rolled_out())
        restless.update(p.owner.uid for p in to_come.made_again if p.owner is not None)
        made = to_be_made(to_come, Replacements(self._snapshot), simulation, leaving)
        pods = [p for reading in made for p in reading.pods]
        sized = self._snapshot.vertical_autoscalers
        self._sized = {
            n: {id(v) for v in sized if v.metadata.namespace == n} for n in {p.namespace for p in pods}
        }
        waiting = map(self._placeable, self._waiting.values())
        gone = (*leaving, *(p for p, _ in made[0].rolls), *victims)
        mask = usable(simulation, (*waiting, *pods), gone)
        return frozenset(restless), frozenset(simulation.named(np.flatnonzero(mask)))

    @remembered()
    def _placeable(self, pod: Pod) -> Pod:
        """The pod as it may be placed soon: claims are those of the plan."""
        return without_claims(pod, self.simulation)

    def changed_nodes(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Which of these nodes of the plan are gone; and which say something else than they did to anything
        that was asked of them."""
        table = self.simulation.state.table
        planned = sorted(n for n in names if n in self._planned)
        there = [n for n in planned if n in table.index]
        return (
            [n for n in planned if n not in table.index],
            [n for n in there if table.differs(self._planned[n])],
        )

    def autoscalers(self, namespace: str) -> VerticalAutoscalers:
        """What sets the requests of pods that are made in a namespace now."""
        return VerticalAutoscalers(build_snapshot(self._watched.vertical_autoscalers(namespace), now=0.0))

    def pods_of(self, owner: str) -> list[Pod]:
        """Those that run, of the controller of that uid."""
        placed = self.simulation.state.pods
        return [p for p in self._of[owner].values() if key_of(p) in placed]

    def landed(self, owner: str) -> int:
        """How many of `pods_of` were not there when the plan was made."""
        return sum(not self._planned_with(p) for p in self.pods_of(owner))

    def templates(self, namespace: str) -> list[PodTemplate]:
        """Of the pods of a namespace that may still come again."""
        return [t for t, _ in self._templates[namespace].values()]

    def makers(self, namespace: str) -> Snapshot:
        """What the replacements of a namespace's pods are made by: nodes and its pods as they are now, and of
        others one of each template."""
        each = ((n, there) for n, found in self._templates.items() for _, there in found.values())
        pods = (p for n, there in each for p in islice(there.values(), None if n == namespace else 1))
        return replace(self.simulation.snapshot, nodes=self.nodes, pods=tuple(pods))

    def named(self, namespace: str, selector: Selector) -> frozenset[str]:
        """The names of the pods that a selector selects, which neither have ended nor are about to."""
        each = self._templates[namespace].values()
        return frozenset(name for t, pods in each if selector.matches(t.labels) for name in pods)

    def groups(self, namespace: str) -> Groups:
        """The hard constraints of the pods of a namespace, which are all that count such pods."""
        found = self._groups.get(namespace)
        if found is None:
            found = self._groups[namespace] = Groups(self.simulation.state, self.templates(namespace))
        return found

    def beside(self, pod: Pod) -> list[Workload]:
        """The topmost owners, as watched, of pods that are or may come, and that a constraint counts which
        counts this pod, too, or which it carries; its own is among them."""
        groups, found = self.groups(pod.namespace), dict[str, Workload]()
        asked = {*groups.carried(pod.template), *groups.counted(pod.template)}
        there = {
            t.controller[1:]
            for t in self.templates(pod.namespace)
            if t.controller is not None and not asked.isdisjoint(groups.counted(t))
        }
        every = self._watched.workloads(pod.namespace)
        by_uid = {w.metadata.uid: w for w in every}
        for w in every:
            made = w.template if w.replicas else None
            if w.kind not in KEPT_UP:
                continue
            if (w.kind, w.name) in there or (made and not asked.isdisjoint(groups.counted(made))):
                top = by_uid.get(w.owner.uid, w) if w.owner is not None else w
                found[top.key] = top
        return list(found.values())

    def around(
        self, pod: Pod, read: Sequence[Object], away: Iterable[Pod], *, now: float, release: bool
    ) -> Snapshot:
        """All that policy goes by when it judges this one pod: what is near it, as it is now.

        `read`: objects that were read by themselves. `away`: pods that were evicted, and whose replacements
        have not landed. They count as if they were there, and their replacements do not count yet: the plan
        has seen to how many are away together. `release`: what asks for a label of the pod counts too. What
        a set's pod gives back of a quota, any owner of the namespace may take.
        """
        namespace, planned = pod.namespace, self.simulation.snapshot
        every = (*self._watched.workloads(namespace), *(o for o in read if isinstance(o, Workload)))
        workloads = {(w.kind, w.name): w for w in every}
        own = next((w for w in workloads.values() if pod.owner and w.metadata.uid == pod.owner.uid), None)
        bound = (
            own is not None and own.kind == "StatefulSet" and any(isinstance(o, ResourceQuota) for o in read)
        )
        whole = release or bound
        top = own.owner.uid if own is not None and own.owner is not None else ""
        of_pod = {pod.owner.uid, top} - {""} if pod.owner is not None else set[str]()
        of_pod |= {o.metadata.uid for o in read if isinstance(o, Workload)}
        related = {
            key: w
            for key, w in workloads.items()
            if whole or w.metadata.uid in of_pod or (w.owner is not None and w.owner.uid in of_pod)
        }
        owners, pods = related.keys() | ({(pod.owner.kind, pod.owner.name)} if pod.owner else set()), {}
        group, claims = pod.template.restarts_with, frozenset(pod.template.claims)
        for template, there in self._templates[namespace].values():
            gated, owner = bool(template.scheduling_gates), template.controller and template.controller[1:]
            if gated and owner in workloads:
                related[owner] = workloads[owner]
            if (
                whole
                or gated
                or owner in owners
                or (group and template.restarts_with == group)
                or not claims.isdisjoint(template.claims)
            ):
                pods.update(there)
        pods.update((p.name, p) for p in read if isinstance(p, Pod))
        self._put_back(pods, [p for p in away if p.namespace == namespace], related.values())
        made_anew = {("DaemonSet", name) for kind, name in owners if kind == "DaemonSet"}
        ending = ((p, p.owner) for p in self._ending.values() if p.namespace == namespace)
        daemons = [p for p, ref in ending if ref is not None and (ref.kind, ref.name) in made_anew]
        others = (
            next(iter(there.values()))
            for other in (self._templates if release else ())
            for template, there in self._templates[other].values()
            if other != namespace and template.affinity is not None
        )
        around = build_snapshot(
            [*read, *pods.values(), *daemons, *others, *related.values(), *self._watched.services(namespace)],
            now=now,
        )
        # The pod's own, and those of the others: a pod whose node is gone is away.
        hosts = {pod.node_name, *(p.node_name for p in around.pods)}
        return replace(
            planned,
            now=now,
            nodes=tuple(n for n in self.nodes if n.name in hosts),
            node_claims=planned.node_claims if pod.node_name in planned.going else (),
            pods=around.pods,
            workloads=around.workloads,
            budgets=around.budgets,
            quotas=around.quotas,
            services=around.services,
            namespaces=around.namespaces,
        )

    def _put_back(self, pods: dict[str, Pod], away: Iterable[Pod], owners: Iterable[Workload]) -> None:
        """`pods`, by name, as if those that are away had not gone."""
        by_owner: dict[str, dict[str, Pod]] = defaultdict(dict)
        for p in away:
            by_owner[p.owner.uid if p.owner is not None else ""][p.name] = p
        for uid, gone in by_owner.items():
            there = [p for p in pods.values() if p.owner and p.owner.uid == uid and p.name not in gone]
            wanted = next((w.replicas for w in owners if w.metadata.uid == uid), len(there))
            new = [p for p in there if not self._planned_with(p)]
            for p in sorted(new, key=lambda p: p.ready)[: max(0, len(there) + len(gone) - wanted)]:
                del pods[p.name]
            pods.update(gone)

    def _planned_with(self, pod: Pod) -> bool:
        known = self._at_plan.get((pod.namespace, pod.name))
        return known is not None and known.uid == pod.uid

    def _begin(self, snapshot: Snapshot) -> Simulation:
        self._pods = self._at_plan if snapshot is self._snapshot else _by_name(snapshot)
        by_class = (
            snapshot.storage_classes,
            snapshot.csi_nodes,
            snapshot.csi_drivers,
            snapshot.priority_classes,
        )
        self._outgoing = snapshot.outgoing
        self._labels = _labels(snapshot.namespaces.values())
        self._by = _selecting(snapshot.services, snapshot.workloads) if self.hard_defaults else {}
        self._classes = {id(o): o for objects in by_class for o in objects.values()}
        self._groups = {}
        self._templates, self._waiting, self._ending = defaultdict(dict), {}, {}
        self._of: dict[str, dict[Identity, Pod]] = defaultdict(dict)
        self._on: dict[str, dict[Identity, Pod]] = defaultdict(dict)
        self._came = Counter[str]()
        self._sets = [w for w in snapshot.workloads if w.kind == "DaemonSet"]
        for pod in snapshot.pods:
            self._count(pod, 1)
        self._of_daemons_changed = False
        simulation = Simulation(with_nodes(snapshot, self._new) if self._new else snapshot, self._config)
        self._expelling = Expelling(simulation)
        return simulation

    def _put(self, pod: Pod) -> None:
        self.simulation.state.put(pod)
        self._count(pod, 1)

    def _take(self, pod: Pod) -> None:
        self.simulation.state.take(pod)
        self._count(pod, -1)

    def _count(self, pod: Pod, by: int) -> None:
        """Keeps the pods of each template, owner and node that may still come again."""
        key = pod.namespace, pod.name
        if pod.finished:
            return
        if pod.owner is not None and pod.owner.kind == "DaemonSet":
            self._of_daemons_changed = True
        kept = [self._ending] if pod.terminating else [self._on[pod.node_name]]
        if pod.owner is not None and not pod.terminating:
            kept.append(self._of[pod.owner.uid])
        for some in kept:
            some.pop(key, None)
            if by > 0:
                some[key] = pod
        if pod.terminating:
            return
        known = self._at_plan.get(key)
        was = (known.uid, known.node_name, known.template) if known is not None else None
        if pod.node_name and was != (pod.uid, pod.node_name, pod.template):
            self._came[pod.node_name] += by
        if by < 0:
            self._waiting.pop(key, None)
        elif pod.waits:
            self._waiting[key] = pod
        template, there = pod.template, self._templates[pod.namespace]
        _, pods = there.get(id(template)) or (template, dict[str, Pod]())
        before = len(pods)
        if by > 0:
            pods[pod.name] = pod
        else:
            pods.pop(pod.name, None)
        if not before or not pods:
            self._groups.pop(pod.namespace, None)
        if pods:
            there[id(template)] = template, pods
        else:
            there.pop(id(template), None)


def _by_name(snapshot: Snapshot) -> dict[Identity, Pod]:
    return {(p.namespace, p.name): p for p in snapshot.pods}


def _labels(namespaces: Iterable[Namespace]) -> dict[str, dict[str, str]]:
    return {n.metadata.name: n.metadata.labels for n in namespaces}


def _selecting(
    services: Iterable[Service], workloads: Iterable[Workload]
) -> dict[Identity, dict[str, str] | Selector | None]:
    """What default constraints take their selectors of; most changes of these are of their status."""
    return {
        **{(s.metadata.namespace, s.metadata.name): s.spec.selector for s in services},
        **{(w.namespace, w.name, w.kind): w.selector for w in workloads if w.kind in SELECTING},
    }


# Is the watch of nodes and pods known to be up to date?
#
# A connection that is half open is silent for minutes before it is found out, and the cluster can be
# another one by then. So the kinds on which the room question rests are followed closely while evictions
# are under way (`kube.watch.reflector`), and nothing is evicted unless they are known to be a few seconds
# old at most.

_KINDS = ("Node", "Pod")
_BESIDE = ("PodDisruptionBudget", "ResourceQuota", "VerticalPodAutoscaler")
"""Kinds by which a plan waits and goes on, or that size a replacement. What the first two say of one pod
is read just before it goes, or kept by the API server; the last a cluster need not have. So nothing waits for
them; but a dead connection is found out as soon."""
_WITHIN = 5.0
"""Seconds that the watch may be behind the API server; a close watch confirms it every two or so."""
_PATIENCE = 8.0
"""Seconds that are waited for it: a watch that was found dead is opened anew within them."""
_AHEAD = 30.0
"""Seconds after a look for which the watch goes on to be close: the next look is mostly not far."""


class WatchAge:
    """Made when a cycle begins. The first answer rests on what was confirmed after that, each further one on
    what was confirmed within seconds. `stopping`: whether a stop was asked for."""

    def __init__(self, watch: WatchCache, stopping: Callable[[], bool]) -> None:
        self._watch = watch
        self._stopping = stopping
        self._made = watch.monotonic()

    def begin(self) -> None:
        """Begins to follow closely: some time before the first question, which then need not wait."""
        self._watch.follow_closely((*_KINDS, *_BESIDE), _AHEAD)

    def why_not(self) -> Reason | None:
        """What is not known to be up to date; None if all is. Waits for some seconds at most."""
        self.begin()
        as_of = max(self._made, self._watch.monotonic() - _WITHIN)
        late = self._watch.wait_current(_KINDS, as_of, _PATIENCE, self._stopping)
        if not late:
            return None
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the watch is behind: {late}",
            {},
            "look at the network and the proxies between here and the API server",
        )


# Does the watch show what the API server has? Asked of the objects that the move rests on most.
#
# An API server's watch cache can hang (kubernetes #97294, etcd #15402). Then it accepts watches, brings
# nothing and ends them in time, which looks as if nothing happened; and so does a replica that lags behind
# the others. So the node on which the replacement is expected, the pods there and the victim are read by
# themselves, which is consistent; and so is the victim's node, which may say no, and the pods that the move's
# constraints count, up to 100. The watch may be believed if it has brought the newest of them as it is. This
# costs four small requests, however large the cluster. Kinds of which any object may matter are few objects:
# they are read as a whole, every few seconds.

_WHOLE = ("Namespace", "NodeClaim", "NodePool", "PriorityClass")
_OF_VOLUMES = ("CSIDriver", "CSINode", "StorageClass", "VolumeAttachment")
"""What `ClusterNow.catch_up` goes by beside nodes and pods: always, and for pods with volumes."""
_INDEXED = (1, 31)
"""From this release on a consistent list of one node's pods comes from an index (KEP-2340). Before it, the
API server reads every pod from etcd for it."""
_FEW = 5000
"""Pods of a cluster in which it may do so once per eviction."""
_COUNTED = 100
"""Pods under one selector that are read for an eviction; a look shall not cost more, the larger the owner."""


def whole_kinds(move: Move, hard_defaults: bool) -> list[tuple[str, str]]:
    """The kinds of which any object may matter to a move; each with a namespace, "" for one without.
    `hard_defaults`: whether the scheduler has hard constraints for pods without any of their own."""
    kinds = (*_WHOLE, *(_OF_VOLUMES if move.replacement.attaches else ()))
    selects = move.method is Method.REPLACE_FIRST or (hard_defaults and not move.replacement.spread)
    services = [("Service", move.pod.namespace)] if selects else []
    return [*((kind, "") for kind in kinds), *services]


def heads_of(*pods: Pod | HeadMeta | None) -> list[HeadMeta]:
    """Those that are there."""
    return [
        HeadMeta(p.name, p.namespace, p.resource_version) if isinstance(p, Pod) else p
        for p in pods
        if p is not None
    ]


class Compared(Struct, frozen=True):
    """Objects with their kinds, as read by themselves; and kind, namespace and name of those that only the
    watch has."""

    read: tuple[tuple[str, HeadMeta], ...] = ()
    gone: tuple[tuple[str, str, str], ...] = ()


class SpotCheck:
    """For one plan. `server`: its version; `pods`: how many there are in the cluster; `stopping`: whether a
    stop was asked for."""

    def __init__(
        self, reads: Objects, watch: WatchCache, stopping: Callable[[], bool], *, server: str, pods: int
    ) -> None:
        self._reads = reads
        self._watch = watch
        self._stopping = stopping
        version = ServerVersion.parse(server)
        self._pods_too = (bool(version.text) and version.minor >= _INDEXED) or pods <= _FEW
        self._whole: dict[tuple[str, str], tuple[float, Compared]] = {}

    def node(self, name: str) -> HeadMeta | None:
        """A node; None if it is gone. Raises KubeError."""
        return self._reads.newest("Node", f"metadata.name={name}")

    def pod_on(self, node: str) -> HeadMeta | None:
        """The pod on a node that changed last; None if there is none, or it costs too much to ask."""
        return self._reads.newest("Pod", f"spec.nodeName={node}") if self._pods_too else None

    def counted(self, namespace: str, watched: Mapping[str, Collection[str]]) -> Compared:
        """The pods that label selectors select, where it does not cost too much to ask: `_COUNTED` of each at
        most. `watched`: the names of those that the watch has, by selector. Raises KubeError."""
        every = watched.items() if self._pods_too else ()
        found = [
            self._compared("Pod", namespace, names, labels)
            for labels, names in every
            if len(names) <= _COUNTED
        ]
        return Compared(tuple(o for c in found for o in c.read), tuple(o for c in found for o in c.gone))

    def whole(self, kind: str, namespace: str = "") -> Compared:
        """The objects of a kind (in a namespace) as they were `_WITHIN` seconds ago at most, the first
        `PAGE`; none where the watch has none. Raises KubeError."""
        now, key = self._watch.monotonic(), (kind, namespace)
        if key not in self._whole or now - self._whole[key][0] > _WITHIN:
            names = self._watch.names(kind, namespace)
            self._whole[key] = now, self._compared(kind, namespace, names) if names else Compared()
        return self._whole[key][1]

    def _compared(self, kind: str, namespace: str, watched: Collection[str], labels: str = "") -> Compared:
        found = self._reads.heads(kind, namespace, labels=labels)
        gone = sorted({*watched} - {o.name for o in found}) if len(found) < PAGE else []
        return Compared(tuple((kind, o) for o in found), tuple((kind, namespace, name) for name in gone))

    def watched(self, kind: str, namespace: str, name: str) -> str:
        """The version of an object that the watch has; "" if it has none."""
        return self._watch.version_of(kind, namespace, name)

    def behind(
        self, nodes: Collection[HeadMeta], pods: Collection[HeadMeta], compared: Collection[Compared]
    ) -> str:
        """Which of these objects, which were read by themselves, the watch has not brought; "" if it has
        all."""
        read = [("Node", n) for n in nodes] + [("Pod", p) for p in pods]
        read += [o for c in compared for o in c.read]
        for kind, o in read:
            if not self._watch.has_come_to(kind, o.namespace, o.name, o.resource_version):
                return f"{kind} {o.name}"
        gone = (o for c in compared for o in c.gone)
        return next((f"{kind} {name}" for kind, at, name in gone if self.watched(kind, at, name)), "")

    def why_not(
        self, nodes: Collection[HeadMeta], pods: Collection[HeadMeta], compared: Collection[Compared]
    ) -> Reason | None:
        """Why the watch cannot be believed; None if it has brought them. Waits for it for some seconds."""

        def behind() -> str:
            return self.behind(nodes, pods, compared)

        self._watch.wait_for(lambda: not behind(), _PATIENCE, self._stopping)
        if not (late := behind()):
            return None
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the watch is behind: it has not brought what the API server has of {late}",
            {},
            "does the watch cache of an API server hang, or a replica of etcd lag?",
        )
