"""Joint moves after the single ones, as waves of their own.

Single moves come first: they need no trust in several evictions at once. Where they leave an excess, the best
set of a few evictions is looked for, and after it the single moves that it has made possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.planner.bounds import Effort
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.planner.cluster.leaving_nodes import autoscaled
from rebalancer.planner.cluster.pod_classes import Classes, PodClass
from rebalancer.planner.cluster.simulation import Landing, Simulation
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.joint.places import LARGEST
from rebalancer.planner.joint.search import Found, JointSearch
from rebalancer.planner.moves.judge import HardJudge
from rebalancer.planner.moves.move import Candidate, JudgedMove, Wave
from rebalancer.planner.moves.refusals import refused
from rebalancer.planner.options import Joint
from rebalancer.planner.plan import JointMove, Refusal
from rebalancer.planner.waves.limits import Limits, draining_budgets
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Rows

EFFORT = 5
"""Share of the effort of a component that the search for one joint move may take."""

Coupled = tuple[tuple[Group, ...], tuple[PodClass, ...]]
"""Groups that share pods which may move, and the classes of these."""


class JointPhase:
    """Plans one joint move at a time, from the simulation's present state on."""

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        groups: Groups,
        classes: Classes,
        judge: HardJudge,
        joint: Joint,
        effort: int,
    ) -> None:
        self._simulation = simulation
        self._evictable = evictable
        self._groups = groups
        self._classes = classes
        self._judge = judge
        one = 0 if autoscaled(simulation.snapshot.nodes) else 1
        self._most_waiting = {"never": 0, "exchange": one, "all": LARGEST}[joint]
        self._effort = effort
        self.refused: tuple[Refusal, ...] = ()
        """After `wave` has found none: pods of a set that would be good, and may not go together."""

    def wave(self, violated: Sequence[Coupled], number: int, *, sure: bool) -> Wave:
        """The best joint move, as moves of one wave; none if there is none. `number`: its own in the plan;
        `sure`: no earlier move may have landed elsewhere."""
        stuck = [v for v in violated if self._excess(v[0])]
        own = [c for _, classes in stuck for c in classes]
        if not own:
            return ()
        known = set(map(id, own))
        others = [c for c in self._classes.all if id(c) not in known and c.owner is not None]
        limits = partial(Limits, self._evictable, draining_budgets(self._simulation, self._evictable.budgets))
        search = JointSearch(
            self._simulation,
            self._groups.all,
            tuple(self._judge.waiting.templates),
            limits,
            partial(limits, shares=False),
            self._most_waiting,
            Effort(EFFORT * self._effort, self._simulation.spent),
            self._classes.replacement,
        )
        found = search.best(own, others, self._judge.foreseeable)
        if found is None:
            self.refused = self._held_back(search.held_back(), limits())
            return ()
        return self._moves(found, violated, number, sure=sure)

    def _held_back(self, found: Found | None, limits: Limits) -> tuple[Refusal, ...]:
        """The pods of a set that the share of their owner forbids."""
        if found is None:
            return ()
        pods = [pod for _, pod in found.chosen]
        owner = self._evictable.shares.top(pods[0])
        assert owner is not None
        together, gain, most = len(pods), found.ends.least, limits.of_owner(pods[0])
        message = (
            f"with {together - 1} others of {owner.kind} {owner.name} it would lower the excess by {gain}, "
            f"but no more than {most} of its {owner.replicas} pods may be away together"
        )
        share = -(-100 * together // max(1, owner.replicas))
        remedy = (
            f"evictions.inFlightPerOwner: {share}%, if so many may be away; a Deployment's maxUnavailable "
            "bounds it, too"
        )
        return tuple(
            refused(pod, ReasonCode.JOINT_MOVE, message, remedy=remedy, together=together, most=most)
            for pod in pods
        )

    def _excess(self, groups: Iterable[Group]) -> int:
        return sum(g.excess(g.counts(self._simulation.state)) for g in groups)

    def _moves(self, found: Found, violated: Sequence[Coupled], number: int, *, sure: bool) -> Wave:
        components: dict[int, Component] = {}
        for place, _ in found.chosen:
            c = place.members
            if id(c) not in components:
                groups, classes = next((v for v in violated if any(c is o for o in v[1])), ((), ()))
                alone = tuple(self._groups.all[i] for i in sorted({*c.counted, *c.carried}))
                made = Component(groups or alone, classes or (c,), self._simulation)
                components.update((id(o), made) for o in made.classes)
        landed = self._landed(found)
        certain = sure and found.ends.least == found.ends.most
        pods = tuple(pod.key for _, pod in found.chosen)
        joint = JointMove(number, pods, found.ends.waiting, found.ends.least)
        return [
            JudgedMove(
                Candidate(
                    components[id(p.members)], components[id(p.members)].classes.index(p.members), p.node, pod
                ),
                replacement,
                self._landing(nodes),
                nodes,
                certain=certain,
                helps=True,
                fixes=self._fixes(p.members, p.node),
                landed=node,
                joint=joint,
            )
            for (p, pod), replacement, nodes, node in zip(
                found.chosen, found.replacements, found.ends.nodes, landed, strict=True
            )
        ]

    def _fixes(self, members: PodClass, node: int) -> tuple[Group, ...]:
        """The violated groups that count the pod."""
        every = (self._groups.all[i] for i in members.counted)
        return tuple(g for g in every if g.domain_of[node] >= 0 and self._excess([g]))

    def _landing(self, nodes: Rows) -> Landing:
        mask = self._simulation.state.table.none.copy()
        mask[nodes] = True
        shared = self._simulation.shared.of(mask)
        return Landing(shared, shared, self._simulation.state.table.none)

    def _landed(self, found: Found) -> list[int]:
        """Where the scheduler's scores put the replacements, with all victims gone."""
        simulation, state = self._simulation, self._simulation.state
        landed: dict[int, int] = {}
        with state.removed([key_of(pod) for _, pod in found.chosen]):
            while len(landed) < len(found.chosen):
                # Every order ends with all of them placed, this one as well.
                i, open_ = next(
                    (i, open_)
                    for i, new in enumerate(found.replacements)
                    if i not in landed and (open_ := self._open(new)).any()
                )
                new = found.replacements[i]
                totals = simulation.framework(new).score(new, open_).totals
                landed[i] = int(np.flatnonzero(open_ & (totals == totals[open_].max()))[0])
                state.add(("predicted", i), new, landed[i])
            for i in landed:
                state.remove(("predicted", i))
        return [landed[i] for i in range(len(landed))]

    def _open(self, new: PodTemplate) -> np.ndarray:
        return self._simulation.framework(new).feasible(new)
