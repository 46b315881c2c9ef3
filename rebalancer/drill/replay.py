"""Failures, pod by pod: the nodes go down, owners make new pods, the scheduler places
them; as the cluster is, and after a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace

from rebalancer.drill.lost import (
    NODE,
    SILENT,
    Breach,
    Drill,
    Drilled,
    Failure,
    Honored,
    Lost,
    Manner,
    Owned,
    Remade,
    WorkloadLoss,
    failures,
    keys_to_try,
)
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import Frameworks, shut_nodes, told
from rebalancer.engine.plugins.pod_topology_spread import PodTopologySpread
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod, PodTemplate, TopologySpreadConstraint
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import Group, conflicts_at_all
from rebalancer.planner.cluster.placing import Placing, Waits, at_rest, by_template
from rebalancer.planner.cluster.simulation import key_of
from rebalancer.planner.objective import OnProgress, for_advice, unwatched
from rebalancer.planner.plan import Plan
from rebalancer.policy.budgets import Budget, Budgets
from rebalancer.spread.arrays import Bools, Ints
from rebalancer.spread.constraint import Constraint, resolve
from rebalancer.spread.nodes import NodeTable

# The cluster before anything fails: pods that terminate are gone, and what finds a node has one.


class Intact:
    """A snapshot at rest. `on_node[row]`: its live pods; `left`: pods that no node takes; `of_nodes`: of
    them those that wait for their own node (DaemonSets), and are not counted."""

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
        self.effort = for_advice(0)
        self.state = ClusterState.of(snapshot, config)
        on_progress()
        table = self.state.table
        self.on_node: list[list[Pod]] = [[] for _ in table.names]
        for pod in snapshot.pods:
            row = table.index.get(pod.node_name)
            if row is not None and not pod.finished and not pod.terminating:
                self.on_node[row].append(pod)
        placing, left, of_nodes = at_rest(self.state, snapshot)
        self.left = [*left, *of_nodes]
        self.of_nodes = {key for w in of_nodes for key in w.keys}
        by_key = {key_of(p): p for p in snapshot.pods if p.waits}
        for key, row in placing.placed.items():
            self.on_node[row].append(by_key[key])
            self.owned.runs(by_key[key])

    @property
    def waiting(self) -> int:
        """How many pods no node takes before anything fails."""
        return self.without_node(self.left)

    def without_node(self, left: Iterable[Waits]) -> int:
        """How many of these wait for any node."""
        return sum(key not in self.of_nodes for w in left for key in w.keys)


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


_T = TypeVar("_T")
_CAUSES = 3
_EXPLAINED = 50
"""Workloads of one failure of which is told what shuts the nodes."""


_STEPS, _TURNS = 8, 64
"""In so many steps at most the nodes of a domain fail one after the other, and in about so many turns their
pods are deleted."""
_ORDERS, _PODS = 8, 2000
"""A failure is played in so many orders of nodes and pods at most, as far as so many pods are lost in all."""


class _Order(NamedTuple):
    """In which order things happen. `mix`: by name (0), the other way round (1), else as a hash has it.
    `steps`: nodes fail one after the other, each once all has come to rest. `singly`: a pod is made again
    before the next is deleted, as on nodes that are silent, and meanwhile those that are still there
    count."""

    mix: int = 0
    steps: bool = False
    singly: bool = False

    def of(self, things: Iterable[_T]) -> list[_T]:
        """These in that order; also which of equally good nodes is taken."""
        found = list(things)
        if self.mix < 2:
            return found[:: -1 if self.mix else 1]
        return sorted(found, key=lambda t: sha256(f"{self.mix} {t}".encode()).digest())


_AT_ONCE = _Order()


class _Ended(NamedTuple):
    """A failure once everything has come to rest. `where`: replacements on their nodes; `left`: all pods
    without one; `unmade`: replacements that are not made."""

    placing: Placing
    new: dict[Hashable, Lost]
    where: dict[Hashable, int]
    left: list[Waits]
    unmade: set[Hashable]

    @property
    def pending(self) -> set[Hashable]:
        """The replacements that find no node."""
        return {key for waits in self.left for key in waits.keys if key in self.new}


def replayed(intact: Intact, failure: Failure) -> Drilled:
    """What comes of the failure: all at once, and, for the range, in other orders."""
    down = failure.down(intact.state.table)
    rows = np.flatnonzero(down).tolist()
    lost = [lost for row in rows for lost in intact.owned.lost(intact.on_node[row])]
    several = bool(lost) and np.count_nonzero(down) > 1
    mixes = min(_ORDERS, max(1, _PODS // len(lost))) if several else 1
    ended, *others = (
        _played(intact, lost, down, _Order(mix, steps, singly))
        for mix in range(mixes)
        for steps in ((False, True) if several else (False,))
        for singly in ((False, True) if len(lost) > 1 else (False,))
    )
    pending = ended.pending
    why = _why(ended.placing, ended.left, ended.new, down)
    return Drilled(
        failure=failure,
        nodes=int(np.count_nonzero(down)),
        workloads=losses(intact, ended.new, pending, ended.unmade, why),
        breaches=breaches(intact, lost, [ended.new[k] for k in ended.where if k in ended.new]),
        waiting=intact.without_node(ended.left) - len(pending),
        orders=tuple(Counter(play.new[k].workload for k in play.pending) for play in (ended, *others)),
        honored=_honored(intact, lost, down, ended, why),
    )


Honoring = Mapping[str, Mapping[int, PodTemplate]]
"""Of workloads what takes the place of their replacements' templates (by identity)."""


def _played(
    intact: Intact,
    lost: Sequence[Lost],
    down: Bools,
    order: _Order = _AT_ONCE,
    honoring: Honoring | None = None,
) -> _Ended:
    """All of it. What was placed on a node that fails later is lost again."""
    silent = intact.manner == "silent"
    new: dict[Hashable, Lost] = {("new", key_of(one.pod)): one for one in lost}
    of_pod: dict[Hashable, Hashable] = {key_of(one.pod): ("new", key_of(one.pod)) for one in lost}
    made: dict[Hashable, PodTemplate] = {
        k: (honoring or {}).get(one.workload, {}).get(id(one.replacement), one.replacement)
        for k, one in new.items()
    }
    state, left, unmade = intact.state, list(intact.left), set[Hashable]()
    where: dict[Hashable, int] = {}
    templates: dict[Hashable, PodTemplate] = {k: w.template for w in intact.left for k in w.keys} | made
    ordered = {k for k, one in new.items() if one.fate is Remade.IN_TURN}
    some = -(-len(lost) // _TURNS) if order.singly else 0
    equal = np.array(order.of(range(state.table.size)), dtype=np.intp)
    rows = order.of(np.flatnonzero(down).tolist())
    down = state.table.none.copy()
    for fails in np.array_split(rows, min(len(rows), _STEPS) if order.steps else 1):
        down[fails] = True
        state = state.over(_table(intact.state.table, down, silent=silent))
        placing = Placing(state, None if silent else down.copy(), equal)
        groups = _in_order(intact, fails.tolist(), order)
        groups[0] += [key for key, row in where.items() if row in fails]
        for gone in (turn for group in groups for turn in _turns(group, some)):
            keys: list[Hashable] = []
            for key in gone:
                if silent and key not in where:
                    state.terminate(key)
                else:
                    state.remove(key)
                one = of_pod.get(key, key)
                again = where.pop(key, None) is not None and one not in ordered
                if again or (one in new and new[one].fate is Remade.MADE):
                    keys.append(one)
            # Others that wait are asked once the step is over.
            own = {id(templates[key]) for key in keys}
            asked = [w for w in left if not some or id(w.template) in own]
            others = [w for w in left if some and id(w.template) not in own]
            left = placing.place([*asked, *by_template((k, templates[k]) for k in keys)], others)
        left = placing.place(left) if some else left
        where.update(placing.placed)
        unplaced = {k for w in left for k in w.keys}
        in_turn = {
            k: new[k]
            for k in ordered
            if down[intact.state.pods[key_of(new[k].pod)].row] and k not in where and k not in unplaced
        }
        unmade = _in_turn(placing, in_turn, left)
        where.update(placing.placed)
    return _Ended(placing, new, where, left, unmade)


def _turns(group: list[Hashable], some: int) -> list[list[Hashable]]:
    """So many at a time; 0: all."""
    return [group[i : i + some] for i in range(0, len(group), some)] if some and group else [group]


# What nodeTaintsPolicy Honor would change where counts of nodes that are down shut the others.


def _honored(
    intact: Intact, lost: Sequence[Lost], down: Bools, ended: _Ended, why: Mapping[str, Why]
) -> Honored | None:
    """Replayed with the workloads that it helps; None if it helps none, or the bound of advice is reached."""
    counted = [workload for workload, w in why.items() if w.counts_dead]
    state = ended.placing.state
    before = Counter(ended.new[k].workload for k in ended.pending)
    found: Honored | None = None
    for lowered in (False, True):
        honoring: dict[str, dict[int, PodTemplate]] = {}
        for one in lost:
            if one.workload in counted:
                own = honoring.setdefault(one.workload, {})
                own.setdefault(id(one.replacement), _honors(state, one.replacement, lowered=lowered))
        while honoring and not intact.effort.gone:
            intact.effort.candidates(len(lost))
            then = _played(intact, lost, down, honoring=honoring)
            after = Counter(then.new[k].workload for k in then.pending)
            helped = {w: own for w, own in honoring.items() if after[w] < before[w]}
            if len(helped) < len(honoring):
                honoring = helped
                continue
            if found is None or len(then.pending) < found.pending[1]:
                found = Honored(
                    workloads=tuple(sorted(helped)),
                    min_domains=lowered,
                    pending=(len(ended.pending), len(then.pending)),
                    loss=(_share(intact, lost, ended, helped), _share(intact, lost, then, helped)),
                )
            break
    return found if found is not None and found.pending[1] < found.pending[0] else None


def _honors(state: ClusterState, template: PodTemplate, *, lowered: bool) -> PodTemplate:
    """The template whose hard constraints leave out what is tainted; `lowered`: and ask for no more domains
    than are left then."""

    def honors(c: TopologySpreadConstraint) -> TopologySpreadConstraint:
        if c.when_unsatisfiable != "DoNotSchedule":
            return c
        made = replace(c, node_taints_policy="Honor")
        meant = resolve(made, template)
        size = Group(-1, meant, state.eligible(template, meant), state).size
        short = lowered and 0 < size < (c.min_domains or 1)
        return replace(made, min_domains=size) if short else made

    return replace(template, spread=tuple(map(honors, template.spread)))


def _share(intact: Intact, lost: Sequence[Lost], ended: _Ended, workloads: Iterable[str]) -> float:
    """The largest share of one of the workloads' pods that one of the domains that it spreads over has."""
    gone = {key_of(one.pod) for one in lost}
    nodes: dict[str, Counter[int]] = {w: Counter() for w in workloads}
    keys: dict[str, str] = {}
    for one in lost:
        if one.workload in nodes:
            keys.setdefault(one.workload, one.replacement.spread[0].topology_key)
    for row, pods in enumerate(intact.on_node):
        for pod in pods:
            workload = intact.owned.workload(pod)
            if workload in nodes and key_of(pod) not in gone:
                nodes[workload][row] += 1
    for key, row in ended.where.items():
        if key in ended.new and ended.new[key].workload in nodes:
            nodes[ended.new[key].workload][row] += 1
    worst = 0.0
    for workload, by_node in nodes.items():
        ids = intact.state.table.domains(keys[workload]).ids
        by_domain: Counter[int] = Counter()
        for row, number in by_node.items():
            by_domain[int(ids[row])] += number
        worst = max(worst, max(by_domain.values(), default=0) / max(1, intact.owned.running[workload]))
    return worst


def _in_order(intact: Intact, rows: Iterable[int], order: _Order) -> list[list[Hashable]]:
    """The pods on these nodes that are deleted, those first that tolerate the silence for the shortest time.
    Of deleted nodes they go all at once."""
    by_time: dict[float, list[Hashable]] = {}
    for row in rows:
        pods = {key_of(pod): pod for pod in intact.on_node[row]}
        for key in order.of(pods):
            after = intact.owned.deleted_after(pods[key]) if intact.manner == "silent" else 0.0
            if after is not None:
                by_time.setdefault(after, []).append(key)
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
        elif one.fate is Remade.GONE:
            count["gone"] += 1
        elif one.fate is Remade.HELD or key in unmade:
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
    return int(number) if number.isdecimal() else 0


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


# All failures, as the cluster is and after a plan.

# The snapshot as a plan leaves it: each replacement on its predicted node, in its victim's place.


def after_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot after all moves, but one that waits for a node."""
    moved = {key_of(m.pod): m for m in plan.moves if not m.awaits}
    if not moved:
        return snapshot
    pods = tuple(
        replace(p, template=moved[key_of(p)].replacement, node_name=moved[key_of(p)].predicted)
        if key_of(p) in moved
        else p
        for p in snapshot.pods
    )
    return replace(snapshot, pods=pods)


# Nodes of which each pod is known to find another node, so that no replay is needed.
#
# Asked per template, of all its nodes in one go. With a node gone, its pods no longer count, so that a
# global minimum may be lower, which can only shut domains, and its own domain may open. If to each
# replacement as many nodes are open as its node makes pods in all, the others cannot take them all, as each
# takes room on one. This holds for pods that mind no others of their node: by counts, ports, volumes or
# affinity. Whatever is not known is replayed.


def surely_fine(intact: Intact, lost: list[list[Lost]]) -> Bools:
    """bool[N]: nodes whose lost pods (`lost[row]`) all find a node if that node alone fails."""
    state = intact.state
    fine = state.table.every.copy()
    new: Ints = np.zeros(state.table.size, dtype=np.int64)
    templates: dict[int, tuple[PodTemplate, Counter[int]]] = {}
    for row, pods in enumerate(lost):
        for one in pods:
            if one.fate is Remade.IN_TURN:
                fine[row] = False
            if one.fate is not Remade.MADE:
                continue
            new[row] += 1
            found = templates.setdefault(id(one.replacement), (one.replacement, Counter()))
            found[1][row] += 1
    # A pod that waits may be opened a node, too, and then takes one.
    new += sum(len(w.keys) for w in intact.left)
    frameworks = Frameworks(state)
    for template, rows in templates.values():
        intact.on_progress()
        nodes = np.fromiter(rows, dtype=np.intp)
        fine[nodes] &= _open(state, frameworks, template, nodes) >= new[nodes]
    return fine


def _open(state: ClusterState, frameworks: Frameworks, template: PodTemplate, rows: Ints) -> Ints:
    """int64[R]: for each node how many others surely take the pod once that one fails; 0 = not known."""
    nothing: Ints = np.zeros(len(rows), dtype=np.int64)
    if conflicts_at_all(template):
        return nothing
    framework = frameworks.of(template)
    others = framework.feasible(template) if not state.constraints(template, hard=True) else None
    if others is not None:
        count: Ints = np.count_nonzero(others) - others[rows]
        return count
    left = state.table.every
    for question in framework.questions(template):
        if question.plugin != PodTopologySpread.name:
            left = left & question.pass_
    asked = [_Asked(state, template, c, rows) for c in state.constraints(template, hard=True)]
    # Whoever else of the node counts here may shut a domain by where it goes.
    known = np.logical_and.reduce([a.here <= 1 for a in asked])
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for i in np.flatnonzero(known).tolist():
        alike.setdefault(tuple(a.case(i) for a in asked), []).append(i)
    found = nothing.copy()
    for cases, places in alike.items():
        mask = left
        for one, case in zip(asked, cases, strict=True):
            mask = mask & one.open(*case)
        found[places] = np.count_nonzero(mask) - mask[rows[places]]
    return found


class _Asked:
    """One hard constraint of a template, for each of the nodes `rows` that may fail. `here`: how many pods it
    counts on each."""

    def __init__(
        self, state: ClusterState, template: PodTemplate, constraint: Constraint, rows: Ints
    ) -> None:
        self._group = group = Group(-1, constraint, state.eligible(template, constraint), state)
        on_node = state.counts_once(constraint.namespace, constraint.selector)
        self._counts = group.by_domain(on_node)
        self._own = int(constraint.self_match(template.labels))
        self._most = constraint.max_skew
        self.here: Ints = on_node[rows]
        minimum = group.minimum(self._counts)
        domains = group.domain_of[rows]
        # Outside of every domain, where the array of counts may be empty, the last one stands for none.
        left = np.where(domains >= 0, np.append(self._counts, 0)[domains] - self.here, minimum)
        # With the node its domain may go, too (nodeTaintsPolicy Honor), and then there may be too few.
        enough = group.size - 1 >= constraint.min_domains
        self._lowest: Ints = np.minimum(minimum, left) if enough else np.zeros(len(rows), dtype=np.int64)
        # Where it does not count its own pods, the one that it counts here may be one that stays.
        opens = (domains >= 0) & (left + self._own - self._lowest <= self._most) & bool(self._own)
        self._opened: Ints = np.where(opens, domains, -1)

    def case(self, i: int) -> tuple[int, int]:
        """(global minimum, domain that has room for one more) once the node of that place fails."""
        return int(self._lowest[i]), int(self._opened[i])

    def open(self, lowest: int, opened: int) -> Bools:
        """bool[N]: nodes that it leaves open in this case."""
        if not self._group.size:
            return self._group.domain_of >= 0
        open_: Bools = self._counts + self._own - lowest <= self._most
        if opened >= 0:
            open_[opened] = True
        mask: Bools = (self._group.domain_of >= 0) & open_[np.maximum(self._group.domain_of, 0)]
        return mask


def drill(
    snapshot: Snapshot,
    *,
    keys: Sequence[str] = (),
    manner: Manner = "silent",
    plan: Plan | None = None,
    scheduler: SchedulerConfig | None = None,
    on_progress: OnProgress = unwatched,
) -> Drill:
    """Lets every node or domain of the keys fail, one at a time.

    `keys`: NODE, labels of nodes, or KEY=VALUE for a single domain; by default nodes and every key of a
    spread constraint. With a `plan` all of it again as the plan leaves the cluster.
    """
    intact = Intact(snapshot, scheduler, manner, on_progress)
    tried = tuple(keys) or keys_to_try(intact.state.table, _spread_keys(snapshot))
    today = tuple(_all(intact, tried))
    planned: tuple[Drilled, ...] = ()
    if plan is not None:
        after = after_plan(snapshot, plan)
        same = after is snapshot
        planned = today if same else tuple(_all(Intact(after, scheduler, manner, on_progress), tried))
    return Drill(manner=manner, keys=tried, today=today, planned=planned, waiting=intact.waiting)


def _spread_keys(snapshot: Snapshot) -> Iterator[str]:
    yield "topology.kubernetes.io/zone"
    for template in {id(p.template): p.template for p in snapshot.pods}.values():
        yield from (c.topology_key for c in template.spread)


def _all(intact: Intact, keys: Iterable[str]) -> Iterator[Drilled]:
    known = {NODE: _each_node} if intact.manner == "silent" else {}
    for key in keys:
        every = list(failures(intact.state.table, [key]))
        yield from known.get(key, _each)(intact, every)


def _each(intact: Intact, every: Sequence[Failure]) -> Iterator[Drilled]:
    for failure in every:
        intact.on_progress()
        yield replayed(intact, failure)


def _each_node(intact: Intact, every: Sequence[Failure]) -> Iterator[Drilled]:
    """Nodes whose pods surely find others are not replayed."""
    table = intact.state.table
    lost = [intact.owned.lost(pods) for pods in intact.on_node]
    fine = surely_fine(intact, lost)
    for failure in every:
        row = table.index[failure.value]
        intact.on_progress()
        yield _harmless(intact, failure, lost[row]) if fine[row] else replayed(intact, failure)


def _harmless(intact: Intact, failure: Failure, lost: list[Lost]) -> Drilled:
    new: dict[Hashable, Lost] = {("new", key_of(one.pod)): one for one in lost}
    return Drilled(
        failure=failure,
        nodes=1,
        workloads=losses(intact, new, set(), set(), {}),
        breaches=breaches(intact, lost, [one for one in lost if one.fate is Remade.MADE]),
        waiting=intact.waiting,
    )
