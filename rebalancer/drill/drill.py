"""All failures, as the cluster is and after a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from rebalancer.drill.lost import NODE, Drill, Drilled, Failure, Fate, Lost, Manner, failures, keys_to_try
from rebalancer.drill.replay import Intact, breaches, losses, replayed
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import Frameworks
from rebalancer.engine.plugins.pod_topology_spread import PodTopologySpread
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import Group, conflicts_at_all
from rebalancer.planner.cluster.simulation import key_of
from rebalancer.planner.new_nodes import with_nodes
from rebalancer.planner.objective import OnProgress, unwatched
from rebalancer.planner.plan import Plan
from rebalancer.spread.arrays import Bools, Ints
from rebalancer.spread.constraint import Constraint

# The snapshot as a plan leaves it: each replacement on its predicted node, in its victim's place.


def after_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot after all moves."""
    moved = {key_of(m.pod): m for m in plan.moves}
    if not moved:
        return snapshot
    pods = tuple(
        replace(p, template=moved[key_of(p)].replacement, node_name=moved[key_of(p)].predicted)
        if key_of(p) in moved
        else p
        for p in snapshot.pods
    )
    added = [n for n in plan.new_nodes if any(n.name == m.predicted for m in plan.moves)]
    return with_nodes(replace(snapshot, pods=pods), added)


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
            if one.fate is Fate.IN_TURN:
                fine[row] = False
            if one.fate is not Fate.MADE:
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
        breaches=breaches(intact, lost, [one for one in lost if one.fate is Fate.MADE]),
        waiting=intact.waiting,
    )
