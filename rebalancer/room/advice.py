"""The advice: which nodes to add, what they have to have free, and what that cures."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rebalancer.model.node import Taint
from rebalancer.model.pod import PodTemplate


class ForPods(Struct, frozen=True, eq=False):
    """Pods that the new nodes are for. `workload`: Kind/namespace/name of the topmost owner."""

    workload: str
    template: PodTemplate
    pods: int


class NewNodes(Struct, frozen=True, eq=False, kw_only=True):
    """Nodes of one kind. `domains`: their labels, by topology key; a value that begins with `kinds.NEW` is a
    domain that the cluster does not have. `like`: a node that has the shape; `taints`: its own. `free`: what
    each must have left for pods, beside its DaemonSets, in the scheduler's integers, with `PODS` for their
    number. `unlike`: which of the `domains` are not those of that node."""

    number: int
    domains: Mapping[str, str]
    like: str
    free: Mapping[str, int]
    unlike: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    pods: tuple[ForPods, ...] = ()


class Enlarged(Struct, frozen=True, eq=False):
    """What would do as well: any one of these `nodes` with so much `more`."""

    nodes: tuple[str, ...]
    more: Mapping[str, int]


class Room(Struct, frozen=True, eq=False, kw_only=True):
    """What room is missing, over all workloads together.

    `excess`: what the plan leaves. `nodes`: the fewest that leave the least; none where room would not help.
    `instead`: a larger node in place of a single new one. `least`: what no placement with any such nodes
    beats; `left`: what the plan with the advised ones leaves; `evictions`: of that plan. `mends`: indices
    into the plan's constraints, of those that then have less. `proved`: no fewer nodes do, and no more do
    better. `searched`: nothing was left out for the time it would take. `waiting`: Pending pods, which want
    room too and are not counted here.
    """

    excess: int = 0
    least: int = 0
    nodes: tuple[NewNodes, ...] = ()
    instead: Enlarged | None = None
    left: int = 0
    evictions: int = 0
    mends: tuple[int, ...] = ()
    proved: bool = True
    searched: bool = True
    waiting: int = 0

    @property
    def number(self) -> int:
        """How many nodes in all."""
        return sum(n.number for n in self.nodes)
