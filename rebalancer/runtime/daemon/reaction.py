"""When something has happened to the nodes that makes a cycle worth while before the interval is over."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.model.node import Node
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.observer import Observer

_Facts = dict[str, tuple[object, ...]]


class Pace(Struct, frozen=True):
    """Seconds. `react`: between two cycles that events start; 0 = none are. `settle`: for how long nodes have
    to be as they are before a cycle starts, as more of them mostly follow."""

    react: float = 10.0
    settle: float = 10.0


class Reaction(Observer):
    """Notices that nodes came, went, became Ready or not, or changed in labels, taints or cordon.

    A cycle is due once no node has changed for `settle`. Where nodes never stop changing, it is due `react`
    later all the same; so no number of events starts more than one cycle every `react`.
    """

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._nodes: tuple[Node, ...] | None = None
        self._facts: _Facts = {}
        self._first: float | None = None
        self._last = 0.0
        self._fired: float | None = None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """What the first cycle has read is no event, and what changes from then on is one."""
        if self._nodes is None:
            self._take(snapshot.nodes, 0.0)

    def due(self, nodes: tuple[Node, ...], now: float) -> bool:
        """Whether a cycle is due; told once.

        `nodes`: the same tuple as long as none changes. `now`: seconds of a monotonic clock.
        """
        self._take(nodes, now)
        if self._first is None or not self.pace.react:
            return False
        quiet = now - self._last >= self.pace.settle
        overdue = now - self._first >= self.pace.settle + self.pace.react
        rested = self._fired is None or now - self._fired >= self.pace.react
        if not (rested and (quiet or overdue)):
            return False
        self._first, self._fired = None, now
        return True

    def _take(self, nodes: tuple[Node, ...], now: float) -> None:
        if nodes is self._nodes:
            return
        first, self._nodes = self._nodes is None, nodes
        facts: _Facts = {
            n.name: (n.ready, n.spec.unschedulable, n.labels, sorted(map(str, n.spec.taints))) for n in nodes
        }
        if facts != self._facts and not first:
            self._first = now if self._first is None else self._first
            self._last = now
        self._facts = facts
