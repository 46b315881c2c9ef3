"""One failure, pod by pod: the nodes go down, owners make new pods, the scheduler places them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.drill.lost import SILENT, Breach, Drilled, Failure, Fate, Lost, Manner, Owned, WorkloadLoss
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.explain import shut_nodes, told
from rebalancer.engine.framework import Frameworks
from rebalancer.engine.plugins.pod_topology_spread import PodTopologySpread
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import key_of
from rebalancer.planner.effort import OnProgress, unwatched
from rebalancer.policy.budgets import Budget, Budgets
from rebalancer.spread.arrays import Bools
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import NodeTable

# The scheduler over a state: Pending pods are placed by filter and score, one after the other.
#
# Equal scores go to the first node by name. A pod that finds no node is asked about again after a placement
# that can have opened one to it: only counts of its spread constraints do that, and pods that it wants to
# be near. Many pods of one template without such ties are placed by few rounds of scores.

_FEW = 20
"""So many pods of a template are placed one by one in any case."""


class Waits(Struct, frozen=True, eq=False):
    """Pending pods of one template, in order of arrival. `keys`: under which the state shall hold them."""

    template: PodTemplate
    keys: tuple[Hashable, ...]


def by_template(pods: Iterable[tuple[Hashable, PodTemplate]]) -> list[Waits]:
    """Pods in order of arrival, those of one template together."""
    found: dict[int, tuple[PodTemplate, list[Hashable]]] = {}
    for key, template in pods:
        found.setdefault(id(template), (template, []))[1].append(key)
    return [Waits(template, tuple(keys)) for template, keys in found.values()]


class _Left:
    """Pods that found no node, by template in order, and by where a placement can matter to them."""

    def __init__(self) -> None:
        self._all: dict[int, Waits] = {}
        self._in_namespace: dict[str, dict[int, None]] = {}

    def put(self, waits: Waits) -> None:
        """What is left of this template now."""
        key, namespace = id(waits.template), self._in_namespace.setdefault(waits.template.namespace, {})
        if waits.keys:
            self._all[key] = waits
            namespace[key] = None
        else:
            self._all.pop(key, None)
            namespace.pop(key, None)

    def beside(self, placed: PodTemplate, state: ClusterState) -> list[Waits]:
        """Those of the namespace of a pod that was placed, and those that want to be near others."""
        near = [k for k, w in self._all.items() if state.terms.of(w.template).required]
        return [self._all[k] for k in dict.fromkeys((*self._in_namespace.get(placed.namespace, ()), *near))]

    def all(self) -> list[Waits]:
        """All of them."""
        return list(self._all.values())


class Placing:
    """The scheduler. `down`: bool[N], nodes that do not exist for it any more."""

    def __init__(self, state: ClusterState, down: Bools | None = None) -> None:
        self.state = state
        self.frameworks = Frameworks(state)
        self._down = down
        self.placed: dict[Hashable, int] = {}

    def feasible(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that take the pod now."""
        mask = self.frameworks.of(template).feasible(template)
        return mask if self._down is None else mask & ~self._down

    def place(self, every: Sequence[Waits]) -> list[Waits]:
        """Places what finds a node, higher priorities first; returns what does not."""
        left = _Left()
        together = by_template((key, waits.template) for waits in every for key in waits.keys)
        for waits in sorted(together, key=lambda w: -w.template.priority):
            before = len(self.placed)
            left.put(self._some(waits))
            if len(self.placed) > before:
                self._again(left, waits.template)
        return left.all()

    def _again(self, left: _Left, placed: PodTemplate) -> None:
        """Tries those again to which the last placements may have opened a node."""
        opened = [placed]
        while opened:
            at = opened.pop()
            for waits in left.beside(at, self.state):
                if self._linked(waits.template, at):
                    before = len(self.placed)
                    left.put(self._some(waits))
                    if len(self.placed) > before:
                        opened.append(waits.template)

    def _linked(self, waiting: PodTemplate, placed: PodTemplate) -> bool:
        """Whether a placement of the one can open a node to the other."""
        if self.state.terms.of(waiting).required:
            return True
        return any(
            c.counts(placed.namespace, placed.labels) for c in self.state.constraints(waiting, hard=True)
        )

    def _some(self, waits: Waits) -> Waits:
        """Places pods of one template until no node takes one; what is left."""
        template, keys = waits.template, list(waits.keys)
        tied = bool(
            self.state.constraints(template, hard=True)
            or template.host_ports
            or template.attaches
            or self.state.terms.of(template).required
            or self.state.terms.of(template).required_anti
        )
        while keys:
            mask = self.feasible(template)
            number = int(np.count_nonzero(mask))
            if not number:
                break
            totals = self.frameworks.of(template).score(template, mask).totals if number > 1 else None
            at_once = 1 if tied or len(keys) <= _FEW else max(1, min(len(keys), number // 4))
            rows = np.flatnonzero(mask)
            if totals is not None:
                rows = rows[np.argsort(-totals[rows], kind="stable")]
            for row in rows[:at_once].tolist():
                key = keys.pop(0)
                self.state.add(key, template, row)
                self.placed[key] = row
        return Waits(template, tuple(keys))


# The cluster before anything fails: pods that terminate are gone, and what finds a node has one.


class Intact:
    """A snapshot at rest. `on_node[row]`: its live pods; `left`: pods that no node takes."""

    def __init__(
        self,
        snapshot: Snapshot,
        config: SchedulerConfig | None,
        manner: Manner,
        on_progress: OnProgress = unwatched,
    ) -> None:
        self.snapshot = snapshot
        self.manner = manner
        self.on_progress = on_progress
        self.owned = Owned(snapshot, manner)
        self.budgets = Budgets(snapshot)
        self.state = ClusterState.of(snapshot, config)
        on_progress()
        for key in list(self.state.nominated):
            self.state.unnominate(key)
        table = self.state.table
        self.on_node: list[list[Pod]] = [[] for _ in table.names]
        for pod in snapshot.pods:
            row = table.index.get(pod.node_name)
            if row is None or pod.finished:
                continue
            if not pod.terminating:
                self.on_node[row].append(pod)
            elif table.nodes[row].ready:
                self.state.remove(key_of(pod))
        self.left = self._placed([p for p in snapshot.pods if p.waits])

    @property
    def waiting(self) -> int:
        """How many pods no node takes before anything fails."""
        return sum(len(w.keys) for w in self.left)

    def _placed(self, pods: list[Pod]) -> list[Waits]:
        """Places waiting pods, as far as they find a node; they count as running there."""
        by_key = {key_of(p): p for p in pods}
        placing = Placing(self.state)
        left = placing.place(by_template((key_of(p), p.template) for p in sorted(pods, key=_arrival)))
        for key, row in placing.placed.items():
            self.on_node[row].append(by_key[key])
            self.owned.runs(by_key[key])
        # One of a DaemonSet waits for its own node, and goes with it.
        of_nodes = {k for k, p in by_key.items() if p.owner is not None and p.owner.kind == "DaemonSet"}
        return by_template((k, w.template) for w in left for k in w.keys if k not in of_nodes)


def _arrival(pod: Pod) -> tuple[float, str]:
    return pod.created or 0.0, pod.key


# PodDisruptionBudgets that a failure breaches: it asks nobody.


def breaches(intact: Intact, lost: Iterable[Lost], placed: Iterable[Lost]) -> tuple[Breach, ...]:
    """The budgets with fewer healthy pods than they need, by name. `placed`: whose replacement has a node."""
    known: dict[str, Budget] = {}
    gone: Counter[str] = Counter()
    back: Counter[str] = Counter()
    for one in lost:
        if one.pod.ready:
            for budget in intact.budgets.of(one.pod):
                known[budget.key] = budget
                gone[budget.key] += 1
    for one in placed:
        for budget in intact.budgets.of(one.pod):
            back[budget.key] += 1
    found = []
    for key, budget in sorted(known.items()):
        status = budget.budget.status
        healthy = status.current_healthy - gone[key]
        if not budget.stale and healthy < status.desired_healthy:
            found.append(Breach(key, healthy, healthy + back[key], status.desired_healthy))
    return tuple(found)


_CAUSES = 3
_EXPLAINED = 50
"""Workloads of one failure of which is told what shuts the nodes."""


def lost_with(intact: Intact, down: Bools) -> list[Lost]:
    """The pods that are lost with these nodes, by node and name."""
    return [lost for row in np.flatnonzero(down).tolist() for lost in intact.owned.lost(intact.on_node[row])]


def replayed(intact: Intact, failure: Failure) -> Drilled:
    """What comes of the failure."""
    down = failure.down(intact.state.table)
    lost = lost_with(intact, down)
    silent = intact.manner == "silent"
    state = intact.state.over(_table(intact.state.table, down, silent=silent))
    placing = Placing(state, down=None if silent else down)
    new: dict[Hashable, Lost] = {("new", key_of(one.pod)): one for one in lost}
    left = intact.left
    for pods in _in_order(intact, down):
        gone = {key_of(pod) for pod in pods}
        for key in gone:
            if silent:
                state.terminate(key)
            else:
                state.remove(key)
        made = (
            (k, one.replacement)
            for k, one in new.items()
            if one.fate is Fate.MADE and key_of(one.pod) in gone
        )
        left = placing.place([*left, *by_template(made)])
    unmade = _in_turn(placing, {k: one for k, one in new.items() if one.fate is Fate.IN_TURN}, left)
    pending = {key for waits in left for key in waits.keys if key in new}
    waiting = sum(len(waits.keys) for waits in left) - len(pending)
    why = _why(placing, left, new, down)
    return Drilled(
        failure=failure,
        nodes=int(np.count_nonzero(down)),
        workloads=losses(intact, new, pending, unmade, why),
        breaches=breaches(intact, lost, [new[k] for k in placing.placed if k in new]),
        waiting=waiting,
    )


def _in_order(intact: Intact, down: Bools) -> list[list[Pod]]:
    """The pods on these nodes that are deleted, those first that tolerate the silence for the shortest time.
    Of deleted nodes they go all at once."""
    by_time: dict[float, list[Pod]] = {}
    for row in np.flatnonzero(down).tolist():
        for pod in intact.on_node[row]:
            after = intact.owned.deleted_after(pod) if intact.manner == "silent" else 0.0
            if after is not None:
                by_time.setdefault(after, []).append(pod)
    return [by_time[after] for after in sorted(by_time)] or [[]]


def losses(
    intact: Intact,
    new: dict[Hashable, Lost],
    pending: set[Hashable],
    unmade: set[Hashable],
    why: dict[str, Why],
) -> tuple[WorkloadLoss, ...]:
    """The workloads that lose pods. `pending`, `unmade`: replacements that find no node, or are not made."""
    number: dict[str, Counter[str]] = {}
    for key, one in new.items():
        count = number.setdefault(one.workload, Counter())
        count["lost"] += 1
        if key in pending:
            count["pending"] += 1
        elif one.fate is Fate.GONE:
            count["gone"] += 1
        elif one.fate is Fate.HELD or key in unmade:
            count["held"] += 1
        else:
            count["replaced"] += 1
    found = [
        WorkloadLoss(
            workload=workload,
            pods=intact.owned.running[workload],
            lost=count["lost"],
            replaced=count["replaced"],
            pending=count["pending"],
            held=count["held"],
            gone=count["gone"],
            why=why[workload].told if workload in why else "",
            counts_dead=workload in why and why[workload].counts_dead,
        )
        for workload, count in number.items()
    ]
    return tuple(sorted(found, key=lambda w: (-w.pending, -w.missing, -w.lost, w.workload)))


def _table(table: NodeTable, down: Bools, *, silent: bool) -> NodeTable:
    rows = np.flatnonzero(down).tolist()
    if silent:
        return table.tainted(rows, SILENT)
    # A node without labels lies in no domain, and belongs to none that spread counts.
    nodes = list(table.nodes)
    for row in rows:
        nodes[row] = replace(nodes[row], metadata=replace(nodes[row].metadata, labels={}))
    return NodeTable(nodes)


def _in_turn(placing: Placing, ordered: dict[Hashable, Lost], left: list[Waits]) -> set[Hashable]:
    """Makes the pods of OrderedReady sets by ordinal. One that finds no node joins those that are `left`, and
    the later ones of its set, which are returned, are not made."""
    stopped: set[str] = set()
    unmade: set[Hashable] = set()
    for key, one in sorted(ordered.items(), key=lambda item: (item[1].workload, _ordinal(item[1].pod.name))):
        if one.workload in stopped:
            unmade.add(key)
            continue
        unplaced = placing.place([Waits(one.replacement, (key,))])
        if unplaced:
            stopped.add(one.workload)
            left += unplaced
    return unmade


def _ordinal(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


class Why(NamedTuple):
    """What shuts the nodes to a replacement, and whether counts of nodes that are down are part of it."""

    told: str
    counts_dead: bool


def _why(placing: Placing, left: Sequence[Waits], new: dict[Hashable, Lost], down: Bools) -> dict[str, Why]:
    """By workload, of those with most: what shuts the nodes to its replacements (of the first template)."""
    number: Counter[str] = Counter()
    templates: dict[str, PodTemplate] = {}
    for waits in left:
        for key in waits.keys:
            if key in new:
                number[new[key].workload] += 1
                templates.setdefault(new[key].workload, waits.template)
    found: dict[str, Why] = {}
    known: dict[int, Why] = {}
    for workload, _ in number.most_common(_EXPLAINED):
        template = templates[workload]
        if id(template) not in known:
            shut = shut_nodes(placing.frameworks.of(template), template)
            dead = any(s.plugin == PodTopologySpread.name for s in shut) and any(
                c.node_taints_policy == "Ignore" and _has_lost_a_domain(placing, template, c, down)
                for c in placing.state.constraints(template, hard=True)
            )
            known[id(template)] = Why(told(shut[:_CAUSES]), dead)
        found[workload] = known[id(template)]
    return found


def _has_lost_a_domain(placing: Placing, template: PodTemplate, constraint: Constraint, down: Bools) -> bool:
    """Whether all nodes of a domain are down that the constraint still counts."""
    eligible = placing.state.eligible(template, constraint)
    domains = Group(-1, constraint, eligible, placing.state).domain_of
    dead, left = domains[down], domains[~down]
    return bool((~np.isin(dead, left) & (dead >= 0)).any())
