"""A move on its way through the planner: first a candidate, then judged, predicted, and put into a wave.

What the plan shows of it is `plan.Move`; what becomes of it when it is carried out, the runtime's `Outcome`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.cluster.simulation import Landing
from rebalancer.planner.plan import JointMove
from rebalancer.spread.arrays import Bools, Ints, Rows


class Candidate(Struct, frozen=True, eq=False):
    """A pod that could be evicted: of the component's class number `pod_class`, on node number `node`."""

    component: Component
    pod_class: int
    node: int
    pod: Pod

    @property
    def members(self) -> PodClass:
        """The class of pods that the pod belongs to."""
        return self.component.classes[self.pod_class]

    def moved(self, placed: Ints, landed: int) -> Ints:
        """The placement, int64[Q, N], after the pod's replacement has landed on node `landed`."""
        return self.component.moved(placed, self.pod_class, self.node, landed)

    @property
    def place(self) -> tuple[int, int]:
        """The class, numbered over all components, and the node: pods of one place are judged alike."""
        return self.members.index, self.node


class JudgedMove(Struct, frozen=True, eq=False):
    """A move that does no harm on any of `destinations` (nodes by number).

    `landing`: where the filter lets the replacement go. `helps`: a constraint that the pod carries, and that
    counts it, keeps the replacement out of the domain it left. `fixes`: the violated groups that it serves.
    `certain`, from the judge: `destinations` are all nodes that the filter leaves, not the best-scored ones
    only; from a search and its wave on: the plan ends as it says wherever this replacement and those of
    earlier moves land. `landed`: the node on which the plan counts with the replacement, -1 as long as none
    is predicted. `open`: the nodes that are surely open, for each way in which earlier replacements of the
    component may have landed that was followed; of these, they may have closed `closed`. `serves`: bool[N],
    where a move for soft constraints does what it is for. `joint`: the joint move that it is a part of.
    """

    candidate: Candidate
    replacement: PodTemplate
    landing: Landing
    destinations: Rows
    certain: bool
    helps: bool
    fixes: tuple[Group, ...]
    landed: int = -1
    open: tuple[Rows, ...] = ()
    closed: int = 0
    serves: Bools | None = None
    joint: JointMove | None = None

    @property
    def pod(self) -> Pod:
        """The pod that is evicted."""
        return self.candidate.pod

    @property
    def component(self) -> Component:
        """The component that the move belongs to."""
        return self.candidate.component

    @property
    def late(self) -> bool:
        """Whether the replacement is made only once the pod is gone."""
        return self.candidate.members.stateful


Wave = Sequence[JudgedMove]
"""Moves that may be in flight together."""


def in_order(waves: Sequence[Wave]) -> list[JudgedMove]:
    """The moves of all waves, one after the other."""
    return [move for wave in waves for move in wave]
