"""Eviction and rescheduling, on the production engine.

A replacement is placed while victims still hold their room (a ReplicaSet replaces at once) or after they are
gone (a StatefulSet; a slow scheduler). A move has to hold in both worlds, so both are asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cached_property
from itertools import chain
from typing import Protocol

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.engine.branches import Touched
from rebalancer.engine.config import SchedulerConfig, Witness
from rebalancer.engine.framework import Framework, Frameworks
from rebalancer.engine.state.cluster import ClusterState, Placed
from rebalancer.model.node import (
    ails,
    is_leaving,
    is_outdated,
    is_starting,
    is_uninitialized,
    set_up_by,
    troubles,
)
from rebalancer.model.pod import Affinity, Pod, PodTemplate
from rebalancer.model.quantity import MOST
from rebalancer.model.snapshot import Alike, Snapshot, candidates
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.daemons import DaemonRoom, room_for_daemons
from rebalancer.planner.cluster.drained import Drained, whichever_have_gone
from rebalancer.planner.cluster.groups import (
    Group,
    can_conflict,
    conflicts_at_all,
)
from rebalancer.planner.cluster.kubelets import Kubelets
from rebalancer.planner.objective import OnProgress, Spent, unwatched
from rebalancer.policy.replace_first import Release
from rebalancer.policy.replacement import Replacements
from rebalancer.spread.arrays import Bools, Ints, Rows, Shared, among
from rebalancer.spread.constraint import Constraint

# Pods that go in a simulated state: they hold their room, and may then let go of it.


def key_of(pod: Pod) -> Hashable:
    """The key under which the state holds the pod of a snapshot."""
    return pod.uid or pod.key


class Terminating:
    """The victims that terminate in a state, or are released and run on; it can be put back as it was."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.placed: dict[Hashable, Placed] = {}
        self._gone: set[Hashable] = set()

    def take(self, victim: Pod, release: Release | None = None) -> None:
        """One more pod terminates, or is released."""
        key = key_of(victim)
        self.placed[key] = placed = self._state.pods[key]
        if release is None:
            self._state.terminate(key)
        else:
            self._state.remove(key)
            self._state.add(key, release.template, placed.row)

    def let_go(self, *victims: Pod) -> None:
        """These victims are gone; without a name, all of them."""
        for key in [key_of(v) for v in victims] or self.placed:
            if key not in self._gone:
                self._state.remove(key)
                self._gone.add(key)

    def hold_again(self, victim: Pod) -> None:
        """A victim that let go terminates and holds its room as before."""
        key = key_of(victim)
        self._gone.remove(key)
        self._state.add(key, self.placed[key].template, self.placed[key].row)
        self._state.terminate(key)

    @contextmanager
    def back(self, victims: Iterable[tuple[Pod, Release | None]]) -> Iterator[None]:
        """The state as if these victims, who are gone, had not been evicted, or were released and no more; as
        it was afterwards."""
        were = [(key_of(v), self.placed[key_of(v)], release) for v, release in victims]
        with self._state.also([(key, r.template if r else p.template, p.row) for key, p, r in were]):
            yield

    def undo(self, *victims: Pod) -> None:
        """These victims are as they were; without a name, all of them."""
        for key in [key_of(v) for v in victims] or list(self.placed):
            placed = self.placed.pop(key)
            if key not in self._gone and self._state.pods[key].terminating:
                self._state.restore(key)
                continue
            if key not in self._gone:
                self._state.remove(key)
            self._gone.discard(key)
            self._state.add(key, placed.template, placed.row)


class Landing(Struct, frozen=True, eq=False):
    """Where the filter lets a replacement go, bool[N].

    `held`: while the victims still hold their room. `freed`: once they are gone. `later`: nodes that are
    open without the pods that may be gone or not be there yet. `release`: how the victim is released, if it
    is: it stays until the replacement is there, and `freed` is as `held`. `barred_by`: pods that have to
    leave their nodes, if there may be no node once they have.
    """

    held: Bools
    freed: Bools
    later: Bools
    release: Release | None = None
    barred_by: tuple[Pod, ...] = ()

    @property
    def anywhere(self) -> Bools:
        """Every node that can come into question."""
        return self.held | self.freed | self.later


class Made(Protocol):
    """A move as it went: the victim, its replacement, and the node (by number) where that landed."""

    @property
    def pod(self) -> Pod:
        """The victim."""

    @property
    def replacement(self) -> PodTemplate:
        """What the owner makes in its place."""

    @property
    def landed(self) -> int:
        """The number of the replacement's node."""


_SETTLED = 3
"""So many Ready pods show that a node is set up."""


class Simulation:
    """A cluster state that moves are tried on and then made on. `on_progress`: see `PlanOptions`."""

    def __init__(
        self,
        snapshot: Snapshot,
        config: SchedulerConfig | None,
        on_progress: OnProgress = unwatched,
    ) -> None:
        self.snapshot = snapshot
        self.on_progress = on_progress
        self.spent = Spent()
        self.state = ClusterState.of(snapshot, config)
        on_progress()
        self._frameworks = Frameworks(self.state)
        table = self.state.table
        self._bare = ClusterState(snapshot, self.state.config, table)
        self._bare_frameworks = Frameworks(self._bare)
        self.leaving: Bools = np.array(table.answers(is_leaving), dtype=np.bool_)
        """bool[N]: nodes that are cordoned or about to be removed."""
        self._setting_up = np.array(table.answers(is_starting), dtype=np.bool_) | self._uninitialized()
        said = table.answers(troubles)
        # What most nodes have alike says nothing of one of them.
        alike = {t for t, n in Counter(chain.from_iterable(said)).items() if 2 * n > table.size}
        self.ailing = [a | (some - alike) for a, some in zip(table.answers(ails), said, strict=True)]
        """By node: the conditions by which nothing starts there."""
        self.failing: Bools = np.array(list(map(bool, self.ailing)), dtype=np.bool_)
        """bool[N]: nodes on which nothing starts."""
        self.expiring: Bools = np.array([n in snapshot.going for n in table.names], dtype=np.bool_)
        self.expiring |= np.array(table.answers(is_outdated), dtype=np.bool_)
        """bool[N]: nodes that Karpenter, or a rollout of nodes, is about to replace."""
        self.starting: Bools
        """bool[N]: nodes that are being set up."""
        self.barred: Bools
        """bool[N]: nodes on which no replacement may land."""
        self.daemons: DaemonRoom
        """Room that pods of DaemonSets are yet to take."""
        self.kubelets = Kubelets(self.state)
        self.rejecting = self.kubelets.rejecting
        may_go = candidates(snapshot)
        self._candidates: Bools = np.array([n in may_go for n in table.names], dtype=np.bool_)
        self.shared = Shared()
        """Sets of nodes that moves keep: few of many thousand differ."""
        self._named: dict[int, tuple[Rows, tuple[str, ...]]] = {}
        self._static: dict[int, tuple[PodTemplate, Bools]] = {}
        self._alike: dict[Hashable, Bools] = {}
        self.unsure: list[Hashable]
        """Pods that may be gone when a replacement is placed, since somebody else has deleted them, or not be
        there yet (`place_early`)."""
        self.unsure_on: Bools
        """bool[N]: the nodes of these."""
        self.expect_to_end(key for key, placed in self.state.pods.items() if placed.terminating)
        self.early: list[Pod] = []
        """Those that are not there yet."""
        self._replacements = Replacements(snapshot)
        self.keep_for_daemons(snapshot.workloads, snapshot.live, snapshot.over)
        self.drained = Drained(())
        """Pods that have to leave their nodes."""

    def expect_to_end(self, keys: Iterable[Hashable]) -> None:
        """These are the pods that somebody else has deleted."""
        self.unsure = list(keys)
        there = [self.state.pods[key] for key in self.unsure]
        self._unsure_rows: Rows = np.array([p.row for p in there], dtype=np.int64)
        self.unsure_on = among(self.state.table.size, self._unsure_rows)
        self._reacting = [i for i, p in enumerate(there) if conflicts_at_all(p.template)]
        self._held: tuple[int, Mapping[str, Ints]] = -1, {}

    def place_early(self, pod: Pod, row: int) -> None:
        """A waiting pod is placed that may find its node only after a replacement has found one."""
        key = ("placed", key_of(pod))
        self.state.add(key, pod.template, row)
        self._reacting.append(len(self.unsure))
        self.unsure.append(key)
        self.early.append(pod)
        self._unsure_rows = np.append(self._unsure_rows, row)
        self.unsure_on = among(self.state.table.size, self._unsure_rows)

    @contextmanager
    def without_unsure(self) -> Iterator[None]:
        """The state without the pods that may be gone or not be there yet; as it was afterwards."""
        with self.state.removed([key for key in self.unsure if key in self.state.pods]):
            yield

    def _uninitialized(self) -> Bools:
        """bool[N]: nodes that Karpenter has not seen set up, but for old ones on which pods are Ready that it
        may have made them for."""
        table, live = self.state.table, self.snapshot.live
        found = np.array(table.answers(is_uninitialized), dtype=np.bool_)
        if found.any():
            old = np.array(table.answers(set_up_by)) <= self.snapshot.now
            others = (g.pods for g in live if g.owner is None or g.owner.kind != "DaemonSet")
            ready = Counter(p.node_name for pods in others for p in pods if p.ready)
            found &= ~(old & np.array([ready[name] >= _SETTLED for name in table.names], dtype=np.bool_))
        return found

    def keep_for_daemons(self, sets: Iterable[Workload], live: Iterable[Alike], over: Iterable[Pod]) -> None:
        """Room is kept for what pods of DaemonSets are yet to take, as they and these pods are now."""
        self.daemons = room_for_daemons(
            self.state, self.static, self._fits, self._replacements, sets, live, over
        )
        self.starting = self._setting_up | self.daemons.short
        self.barred = self.leaving | self.starting | self.failing | self.expiring

    def over(self, state: ClusterState) -> Simulation:
        """A simulation over another state of the same nodes."""
        other = copy(self)
        other.state, other._frameworks = state, Frameworks(state)
        return other

    @cached_property
    def coming(self) -> tuple[PodTemplate, ...]:
        """Templates of pods that are on no node, or on one that is gone, and of those that end: these may be
        replaced."""
        here = self.state.table.index
        pods = self.snapshot.pods
        every = (p for p in pods if not p.finished and (p.terminating or p.node_name not in here))
        return tuple({id(p.template): p.template for p in every}.values())

    @remembered(by=lambda constraint, eligible: (constraint, id(eligible)))
    def group(self, constraint: Constraint, eligible: Bools) -> Group:
        """A constraint over its eligible nodes, by itself: it has no number among others."""
        return Group(-1, constraint, eligible, self.state)

    def framework(self, template: PodTemplate) -> Framework:
        """The scheduler profile that places pods of this template."""
        self.on_progress()
        return self._frameworks.of(template)

    def static(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that would take the pod if the cluster were empty (inter-pod affinity aside).

        The same array for equal sets of nodes.
        """
        found = self._static.get(id(template))
        if found is None:
            key = self._static_key(template)
            if key is None:
                mask = self.shared.of(self._bare_feasible(template))
            else:
                # Thousands of pods differ in nothing but what they ask for, which most nodes have.
                if key not in self._alike:
                    bare = self._bare_feasible(msgspec.structs.replace(template, requests={}))
                    self._alike[key] = self.shared.of(bare)
                mask, asked = self._alike[key], self.state.asks(template)
                if much := [(r, amount) for r, amount in asked if amount > self._least(r)]:
                    enough = (self.state.allocatable(r) >= amount for r, amount in much)
                    mask = self.shared.of(np.logical_and.reduce([mask, *enough]))
            found = self._static[id(template)] = (template, mask)
        return found[1]

    @remembered(by=str)
    def _least(self, resource: str) -> int:
        """What pods may request of a resource on every node."""
        return int(self.state.allocatable(resource).min(initial=MOST))

    def _fits(self, template: PodTemplate) -> Bools:
        return self.framework(template).feasible(template)

    def _bare_feasible(self, template: PodTemplate) -> Bools:
        if (a := template.affinity) is not None and (a.pod_affinity or a.pod_anti_affinity):
            template = msgspec.structs.replace(template, affinity=Affinity(node_affinity=a.node_affinity))
        return self._bare_frameworks.of(template).feasible(template)

    def _static_key(self, template: PodTemplate) -> Hashable | None:
        """Equal for templates that the same nodes of an empty cluster would take if they asked for nothing;
        None where that is not known.

        There no pod is counted, so that a spread constraint asks for its key only.
        """
        t = template
        node_affinity = t.affinity is not None and t.affinity.node_affinity is not None
        if t.volumes or t.resource_claims or node_affinity:
            return None
        return (
            t.scheduler_name,
            tuple(c.topology_key for c in self.state.constraints(t, hard=True)),
            frozenset(t.node_selector.items()),
            t.tolerations,
            t.host_ports,
        )

    def free(self, resource: str, *, ended: bool = False) -> Ints:
        """int64[N]: what each node has left of it, beside what pods of DaemonSets are yet to take. `ended`:
        for who adds what pods hold that end, since one of such a set leaves its room to the next."""
        left = self.state.left(resource)
        taken = (self.daemons.kept if ended else self.daemons.beyond).get(resource)
        return left if taken is None else left - taken

    def crowded(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that, with the pod, would lack room for a DaemonSet's pod that is yet to come."""
        if not self.daemons.coming:
            return self.state.table.none
        state = self.state
        left = {r: state.left(r) - n for r, n in state.holds(template)}
        return self.daemons.lacking(left, self._ending()) | self.daemons.conflicting(template)

    def crowds_out(self, template: PodTemplate, nodes: Rows) -> str:
        """The first of the nodes that are `crowded`, and for whom, in words; "" if there is none."""
        found = nodes[self.crowded(template)[nodes]]
        if not len(found):
            return ""
        name, who = self.state.table.names[found[0]], self.daemons.who(int(found[0]))
        return f"{name}, where a pod of DaemonSet {who} that needs room is yet to come"

    def refuses(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes on which such a replacement may not land, though the filter may leave them."""
        return self.barred | self.rejecting(template) | self.crowded(template)

    def _ending(self) -> Mapping[str, Ints]:
        """int64[N] by resource: what pods hold that somebody else has deleted."""
        state = self.state
        if self._held[0] != state.mark:
            there = (state.pods[key] for key in self.unsure if key in state.pods)
            self._held = state.mark, self.held_by((p.template, p.row, 1) for p in there if p.terminating)
        return self._held[1]

    def room(self, template: PodTemplate, given: Mapping[str, Ints], *, ended: bool = False) -> Ints:
        """int64[N]: how many more pods of this template each node has resources for; 0 where it can't go.

        `given`: resources that others would give up; `ended`: all that end among them. A host port is one
        pod's alone.
        """
        state = self.state
        most = np.where(self.static(template), 1 if template.host_ports else MOST, 0)
        for resource, amount in state.asks(template):
            free = self.free(resource, ended=ended) + given.get(resource, 0)
            most = np.minimum(most, np.maximum(free, 0) // amount)
        return most

    def held_by(self, pods: Iterable[tuple[PodTemplate, int | Rows, int]]) -> dict[str, Ints]:
        """int64[N] by resource: what these pods take of each of their nodes (rows), times 1 or -1."""
        found = defaultdict[str, Ints](lambda: np.zeros(self.state.table.size, np.int64))
        for template, row, sign in pods:
            for resource, amount in self.state.holds(template):
                found[resource][row] += sign * amount
        return found

    def has_room(self, template: PodTemplate, rows: Rows) -> Bools:
        """bool[len(rows)]: which of these nodes have resources for one more pod of this template. As the
        scheduler sees it: what pods of DaemonSets are yet to take is not kept for them."""
        fits = self.static(template)[rows]
        for resource, amount in self.state.asks(template):
            fits &= self.state.left(resource)[rows] >= amount
        return fits

    def landing(
        self, victim: Pod, replacement: PodTemplate, *, after_gone: bool, release: Release | None = None
    ) -> Landing:
        """Where one victim's replacement can go; `after_gone`: its owner waits for the victim's end;
        `release`: the victim goes after it."""
        framework = self.framework(replacement)
        if replacement.migrates:
            # The target is placed while the source runs and counts; KubeVirt keeps it off the source's node.
            there = framework.feasible(replacement).copy()
            there[self.state.table.index[victim.node_name]] = False
            found = Landing(self.shared.of(there), self.shared.of(there), self.state.table.none)
            return self._as_others_leave(victim, replacement, found)
        with self.without(victim, release=release) as leaving:
            held = None if after_gone else framework.feasible(replacement)
            if release is None:
                leaving.let_go()
            freed = framework.feasible(replacement) if release is None or held is None else held
            held = freed if held is None else held
            if self.unsure:
                found = replace(self._without_unsure(replacement, held, freed), release=release)
            else:
                found = Landing(self.shared.of(held), self.shared.of(freed), self.state.table.none, release)
            return self._as_others_leave(victim, replacement, found)

    def _as_others_leave(self, victim: Pod, replacement: PodTemplate, found: Landing) -> Landing:
        """The landing, whichever of those have gone by then that have to leave their nodes."""
        none, tied = self.state.table.none, self.drained.tied_to(replacement, self.state)
        there = [p for p in tied if p.key != victim.key and key_of(p) in self.state.pods]
        if not there or not found.held.any():
            return found
        able = self.static(replacement) & ~self.barred
        lasts, may_open = whichever_have_gone(
            self.framework(replacement), replacement, map(key_of, there), able
        )
        if not (lasts & found.held & found.freed).any():
            return Landing(none, none, none, found.release, tuple(there))
        return replace(found, later=found.later | (may_open & ~found.held & ~found.freed))

    def named(self, rows: Rows) -> tuple[str, ...]:
        """The names of the nodes with these numbers, one tuple for equal rows."""
        rows = self.shared.of(rows)
        found = self._named.get(id(rows))
        if found is None:
            names = self.state.table.names
            found = self._named[id(rows)] = (rows, tuple(names[n] for n in rows.tolist()))
        return found[1]

    def _without_unsure(self, replacement: PodTemplate, held: Bools, freed: Bools) -> Landing:
        """The landing with regard to pods that may be gone or not be there yet: it has to hold without them.

        That may open nodes, and, where the replacement has to be near one of them, close some.
        """
        state, closed = self.state, self.static(replacement) & ~held & ~freed
        affinity = replacement.affinity
        near = affinity is not None and affinity.pod_affinity is not None
        which = set(np.flatnonzero(near | closed[self._unsure_rows]).tolist())
        which.update(self._reacting if not conflicts_at_all(replacement) else range(len(self.unsure)))
        asked = state.constraints(replacement, hard=True)

        def matters(placed: Placed) -> bool:
            t = placed.template
            counted = not placed.terminating and any(c.counts(t.namespace, t.labels) for c in asked)
            return near or bool(closed[placed.row]) or counted or can_conflict(t, replacement)

        there = (key for key in (self.unsure[i] for i in sorted(which)) if key in state.pods)
        gone = [key for key in there if matters(state.pods[key])]
        if not gone:
            return Landing(held, freed, state.table.none)
        with state.removed(gone):
            later = self.framework(replacement).feasible(replacement)
        if not later.any():
            return Landing(later, later, later)
        return Landing(held, freed, later & ~held & ~freed)

    @contextmanager
    def without(self, *victims: Pod, release: Release | None = None) -> Iterator[Terminating]:
        """The state with pods terminating, or released; as it was afterwards."""
        leaving = Terminating(self.state)
        try:
            for victim in victims:
                leaving.take(victim, release)
            yield leaving
        finally:
            leaving.undo()

    @contextmanager
    def after(self, moves: Iterable[Made]) -> Iterator[None]:
        """The state with moves made, the victims gone and the replacements there; as it was afterwards."""
        state = self.state
        undo: list[tuple[Hashable, Placed, Hashable]] = []
        for move in moves:
            victim = key_of(move.pod)
            was = state.pods[victim]
            state.remove(victim)
            replacement: Hashable = ("replacement", victim)
            state.add(replacement, move.replacement, move.landed)
            undo.append((victim, was, replacement))
        try:
            yield
        finally:
            for victim, was, replacement in reversed(undo):
                state.remove(replacement)
                state.add(victim, was.template, was.row)

    def leaves_alone(self, victim: Pod, replacement: PodTemplate, nodes: Rows) -> bool:
        """Whether the victim is the last that a term of another's required affinity selects in its domain and
        the replacement may land outside of it: once made anew, the other may find no node."""
        state, table = self.state, self.state.table
        template, row, _ = state.pods[key_of(victim)]
        own = state.terms.labels(replacement.namespace)
        for carries in state.terms.selecting(template, "required", 0):
            term = carries.term
            ids = table.domains(term.topology_key).ids
            if ids[row] < 0 or (term.matches(replacement, own) and (ids[nodes] == ids[row]).all()):
                continue
            there = ids == ids[row]
            others = state.tally.column(carries)[there].sum() - carries.weigh(template)
            if others > 0 and state.tally.column(state.terms.keeps(term))[there].sum() <= 1:
                return True
        return False

    def uncertainties(self, template: PodTemplate) -> tuple[str, ...]:
        """Why a prediction for such a pod cannot be certain, in sentences; empty if it can."""
        return self.framework(template).uncertainties(template)

    def covered(
        self,
        victim: Pod,
        replacement: PodTemplate,
        witness: Witness,
        *,
        after_gone: bool,
        release: Release | None = None,
    ) -> bool:
        """Whether the scheduler's own decisions have shown enough of all that `landing` rests on."""
        if not witness.covered:
            return False

        def shown() -> bool:
            return Touched(self.framework(replacement), replacement).covered(witness.covered)

        with self.without(victim, release=release) as leaving:
            if not after_gone and not shown():
                return False
            if release is None:
                leaving.let_go()
            return shown()

    def assumptions(self) -> tuple[str, ...]:
        """What every prediction rests on, in sentences, over all scheduler profiles."""
        profiles = self.state.config.profiles
        return tuple(dict.fromkeys(s for p in profiles for s in Framework(self.state, p).assumptions()))

    def preferred(self, victim: Pod, replacement: PodTemplate, landing: Landing) -> Rows:
        """The best-scored nodes, by number: while the victim holds its room, and once it is gone."""
        best = self.state.table.none
        with self.without(victim, release=landing.release) as leaving:
            framework = self.framework(replacement)
            for mask in (landing.held, landing.freed)[: 1 if landing.release else 2]:
                if mask.any():
                    best = best | framework.best(replacement, mask)
                leaving.let_go()
        return np.flatnonzero(best)

    def expected(self, victim: Pod, replacement: PodTemplate, landing: Landing, *, after_gone: bool) -> Rows:
        """The best-scored nodes, by number, when the replacement is made: at once, or `after_gone`.

        Without those that an autoscaler would like to remove, where there are others as good.
        """
        if np.count_nonzero(landing.held) == 1:
            return np.flatnonzero(landing.held)
        with self.without(victim, release=landing.release) as leaving:
            if after_gone:
                leaving.let_go()
            totals = self.framework(replacement).score(replacement, landing.held).totals
        best = landing.held & (totals == totals[landing.held].max())
        lasting = best & ~self._candidates
        return np.flatnonzero(lasting if lasting.any() else best)


# Moves tried on a simulation, one sequence after the other: what two of them begin with is made once.


class Tried:
    """The sequence of moves that is made on the simulation at present."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._made: list[tuple[Made, ExitStack]] = []
        self._users = 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While it lasts, `after` leaves its moves made for the next sequence; then all are undone."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._back_to(0)

    @contextmanager
    def after(self, moves: Sequence[Made]) -> Iterator[None]:
        """The state with these moves made, and no others of those tried."""
        same = 0
        for (made, _), move in zip(self._made, moves, strict=False):
            if made is not move:
                break
            same += 1
        with self.kept():
            self._back_to(same)
            for move in moves[same:]:
                stack = ExitStack()
                stack.enter_context(self._simulation.after((move,)))
                self._made.append((move, stack))
            yield

    def _back_to(self, length: int) -> None:
        while len(self._made) > length:
            self._made.pop()[1].close()
