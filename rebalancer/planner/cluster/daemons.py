"""Room that pods of DaemonSets are yet to take on their nodes, of which the scheduler does not know.

A set makes a pod anew on its node: in place of one that ends, in a rollout, or where it lacks one. That pod,
and one that waits for its node, can go nowhere else. The filter knows only pods that are there, so it is
asked without these: a node that it leaves, and that would then lack room for one of them, takes no
replacement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.plugins.node_affinity import named_nodes
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import Node, set_up_by
from rebalancer.model.pod import Pod, PodTemplate, at_least
from rebalancer.model.snapshot import Alike
from rebalancer.model.workload import REVISION, Workload
from rebalancer.planner.cluster.groups import can_conflict, conflicts_at_all
from rebalancer.policy.replacement import Replacements
from rebalancer.spread.arrays import Bools, Ints

_NOTHING: Mapping[str, Ints] = {}


class Coming(Struct, frozen=True, eq=False):
    """A DaemonSet's next pods, as they may be made. bool[N]: nodes on which none runs yet, on which one is
    to grow, and on which one is made anew that others can be in the way of by more than room."""

    daemons: Workload
    templates: Sequence[PodTemplate]
    lacks: Bools
    grows: Bools
    anew: Bools


class DaemonRoom(Struct, frozen=True, eq=False):
    """`kept`: what these pods are yet to take of each node, int64[N] by resource. `beyond`: how much that is
    beyond what pods of the same sets hold until they have ended. `coming`: whose they are. `short`: bool[N],
    new nodes that still lack one."""

    kept: Mapping[str, Ints]
    beyond: Mapping[str, Ints]
    coming: tuple[Coming, ...]
    short: Bools

    def lacking(self, left: Mapping[str, Ints], ending: Mapping[str, Ints] = _NOTHING) -> Bools:
        """bool[N]: nodes without enough for these pods. `left`: int64[N] by resource, what others would leave
        of the node; where that is less than nothing, they come only once all that ends is gone, which holds
        `ending`."""
        found: Bools = np.zeros_like(self.short)
        for r in left.keys() & self.kept.keys():
            later = left[r] + ending.get(r, 0) < self.kept[r]
            found |= (self.kept[r] > 0) & np.where(left[r] < 0, later, left[r] < self.beyond[r])
        return found

    def given(self, resource: str) -> Ints | int:
        """int64[N]: what pods of these sets give up until others are there in their place."""
        kept = self.kept.get(resource)
        return kept - self.beyond[resource] if kept is not None else 0

    def conflicting(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes on which the pod could be in the way of one of these by more than room."""
        found: Bools = np.zeros_like(self.short)
        for some in self.coming:
            if any(can_conflict(t, template) for t in some.templates):
                found |= some.lacks | some.anew
        return found

    def who(self, row: int) -> str:
        """The DaemonSet that keeps room on the node, by namespace and name."""
        able = [some for some in self.coming if some.lacks[row] or some.grows[row] or some.anew[row]]
        w = max(able, key=lambda some: bool(some.lacks[row] or some.grows[row])).daemons
        return f"{w.namespace}/{w.name}"


def _is_there(node: Node) -> bool:
    """Whether the API server has it: one that is only supposed gets its DaemonSets' pods in time."""
    return bool(node.metadata.uid)


def _meant_for(template: PodTemplate) -> frozenset[str]:
    """The nodes that it names, as a DaemonSet's pod names the one that it waits for."""
    affinity = template.affinity.node_affinity if template.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return (named_nodes(required.node_selector_terms) if required is not None else None) or frozenset()


class _Making:
    """`DaemonRoom` in the making."""

    def __init__(
        self,
        state: ClusterState,
        static: Callable[[PodTemplate], Bools],
        fits: Callable[[PodTemplate], Bools],
        replacements: Replacements,
    ) -> None:
        self._state, self._static, self._fits, table = state, static, fits, state.table
        self._replacements = replacements
        self._new = np.array(table.answers(set_up_by)) > state.snapshot.now
        self._there = np.array(table.answers(_is_there), dtype=np.bool_)
        self.kept = defaultdict[str, Ints](lambda: np.zeros(table.size, np.int64))
        self.meanwhile = defaultdict[str, Ints](lambda: np.zeros(table.size, np.int64))
        self.short: Bools = table.none.copy()
        self.coming: list[Coming] = []

    def add(self, w: Workload, template: PodTemplate, live: Sequence[Alike], over: Sequence[Pod]) -> None:
        """One more set with its template and its pods."""
        index, none = self._state.table.index, self._state.table.none
        covered, waits, grows = none.copy(), none.copy(), none.copy()
        for some in live:
            on = {p.node_name for p in some.pods}
            meant = _meant_for(some.template) if "" in on else frozenset[str]()
            covered[[index[n] for n in on | meant if n in index]] = True
            waits[[index[n] for n in meant if n in index]] = True
        lacks = self._lacks(w, template, covered)
        self.short |= lacks & self._new
        lacks, rolls = lacks & ~self._new, _rolls(w)
        beside = rolls and w.surge > 0
        if beside:
            lacks |= self._lacks_beside(w, live) & self._static(template) & ~self._new
        if not (rolls or lacks.any() or waits.any()):
            return
        made, then = self._next(w, template, [*(p for some in live for p in some.pods), *over])
        for t in made if waits.any() else ():
            # One that fits is about to be placed as any other that waits.
            lacks |= waits & self._static(t) & ~self._fits(t)
        for some in live if rolls and not beside else ():
            now = dict(self._state.holds(some.template))
            if more := {r: n - now.get(r, 0) for r, n in then.items() if n > now.get(r, 0)}:
                rows = np.array([index[p.node_name] for p in some.pods if p.node_name in index], np.int64)
                grows[rows] = True
                for r, n in more.items():
                    self.kept[r][rows] += n
        for r, n in then.items() if lacks.any() else ():
            self.kept[r] += n * lacks
        for p in over:
            row = index.get(p.node_name)
            if row is not None and lacks[row] and not p.finished:
                for r, n in self._state.holds(p.template):
                    self.meanwhile[r][row] += min(n, then.get(r, 0))
        anew = covered if rolls and any(map(conflicts_at_all, made)) else none
        if lacks.any() or grows.any() or anew.any():
            self.coming.append(Coming(w, made, lacks, grows, anew))

    def _lacks_beside(self, w: Workload, live: Sequence[Alike]) -> Bools:
        """bool[N]: nodes on which the next pod is still to come, while the old one runs."""
        index, found = self._state.table.index, self._state.table.none.copy()

        def rows(sets: Iterable[Alike]) -> list[int]:
            on = ({p.node_name} - {""} or _meant_for(some.template) for some in sets for p in some.pods)
            return [index[name] for names in on for name in names if name in index]

        youngest = max(live, key=lambda some: max(p.created or 0.0 for p in some.pods), default=None)
        last = youngest.template.labels.get(REVISION) if youngest is not None and w.updated_replicas else None
        found[rows(live)] = True
        found[rows(s for s in live if last is not None and s.template.labels.get(REVISION) == last)] = False
        return found

    def _next(
        self, w: Workload, template: PodTemplate, pods: Iterable[Pod]
    ) -> tuple[Sequence[PodTemplate], Mapping[str, int]]:
        """The set's next pod, with what admission gave its youngest; and what it may hold at most."""
        like = max(pods, key=lambda p: p.created or 0.0).template
        full, _, *others = self._replacements.next_of(like, w, None, None)
        then = dict[str, int]()
        for t in (full, *others):
            at_least(then, dict(self._state.holds(t)))
        # Affinity of the other one names its node.
        every = {id(t): t for t in (full, *others)}.values()
        return [replace(t, affinity=template.affinity) for t in every], then

    def _lacks(self, w: Workload, template: PodTemplate, covered: Bools) -> Bools:
        """bool[N]: nodes on which a pod is still to be made: on an old one only if the set's controller wants
        more than there are."""
        wanted = w.on_nodes if w.observed_generation >= w.metadata.generation else None
        where = self._new if wanted is not None and wanted <= np.count_nonzero(covered) else self._there
        return where & self._static(template) & ~covered if where.any() else self._state.table.none


def room_for_daemons(
    state: ClusterState,
    static: Callable[[PodTemplate], Bools],
    fits: Callable[[PodTemplate], Bools],
    replacements: Replacements,
    workloads: Iterable[Workload],
    live: Iterable[Alike],
    over: Iterable[Pod],
) -> DaemonRoom:
    """The room, with `over`, the pods that are finished or end, and `live`, the others. `static`: the nodes
    that would take a pod if they were empty; `fits`: as they are. A set without any pod keeps none: perhaps
    none can be made."""
    sets = {w.metadata.uid: w for w in workloads if w.kind == "DaemonSet"}
    alive, ended = defaultdict[str, list[Alike]](list), defaultdict[str, list[Pod]](list)
    for some in live if sets else ():
        if some.owner is not None and some.owner.uid in sets:
            alive[some.owner.uid].append(some)
    for pod in over if sets else ():
        if pod.owner is not None and pod.owner.uid in sets:
            ended[pod.owner.uid].append(pod)
    making = _Making(state, static, fits, replacements)
    for uid in dict.fromkeys((*alive, *ended)):
        w = sets[uid]
        if w.template is not None and w.metadata.deletion_timestamp is None:
            making.add(w, w.template, alive[uid], ended[uid])
    beyond = {r: np.maximum(n - making.meanwhile.get(r, 0), 0) for r, n in making.kept.items()}
    return DaemonRoom(making.kept, beyond, tuple(making.coming), making.short)


def _rolls(daemons: Workload) -> bool:
    """Whether its controller makes pods anew that are not as its template has them."""
    seen, wanted = daemons.observed_generation >= daemons.metadata.generation, daemons.on_nodes
    done = seen and wanted is not None and daemons.updated_replicas >= wanted
    return daemons.update_strategy != "OnDelete" and not done
