"""One failure, pod by pod: the nodes go down, owners make new pods, the scheduler places them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from rebalancer.drill.lost import SILENT, Breach, Drilled, Failure, Fate, Lost, Manner, Owned, WorkloadLoss
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.explain import shut_nodes, told
from rebalancer.engine.plugins.pod_topology_spread import PodTopologySpread
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import key_of
from rebalancer.planner.cluster.waiting import Placing, Waits, at_rest, by_template
from rebalancer.planner.effort import OnProgress, unwatched
from rebalancer.policy.budgets import Budget, Budgets
from rebalancer.spread.arrays import Bools
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import NodeTable

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
        table = self.state.table
        self.on_node: list[list[Pod]] = [[] for _ in table.names]
        for pod in snapshot.pods:
            row = table.index.get(pod.node_name)
            if row is not None and not pod.finished and not pod.terminating:
                self.on_node[row].append(pod)
        placing, self.left = at_rest(self.state, snapshot)
        by_key = {key_of(p): p for p in snapshot.pods if p.waits}
        for key, row in placing.placed.items():
            self.on_node[row].append(by_key[key])
            self.owned.runs(by_key[key])

    @property
    def waiting(self) -> int:
        """How many pods no node takes before anything fails."""
        return sum(len(w.keys) for w in self.left)


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
