"""Nodes that came, went, became Ready or not, or changed in labels, taints, or whether they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rebalancer.model.node import Node
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.observer import Observer
from rebalancer.planner.cluster.leaving_nodes import is_leaving
from rebalancer.runtime.daemon.events.happening import Happening

_Facts = dict[str, tuple[object, ...]]
_CHANGED = Happening("nodes", "nodes have changed", steady=True)
_OVERDUE = 2
"""Where nodes never stop changing, they are told of after so many times `settle` all the same."""


class NodeEvents(Observer):
    """Told once no node has changed for `settle` seconds, as more of them mostly follow.

    `nodes` gives the same tuple as long as none changes.
    """

    def __init__(self, nodes: Callable[[], tuple[Node, ...]], settle: float = 10.0) -> None:
        self.settle = settle
        self._now = nodes
        self._nodes: tuple[Node, ...] | None = None
        self._facts: _Facts = {}
        self._first: float | None = None
        self._last = 0.0

    def settling(self) -> bool:
        """Whether nodes have changed of which is not told yet."""
        return self._first is not None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """What the first cycle has read is no event, and what changes from then on is one."""
        if self._nodes is None:
            self._take(snapshot.nodes, 0.0)

    def news(self, now: float) -> Iterator[Happening]:
        """At most one."""
        self._take(self._now(), now)
        if self._first is None:
            return
        quiet = now - self._last >= self.settle
        if quiet or now - self._first >= _OVERDUE * self.settle:
            self._first = None
            yield _CHANGED

    def _take(self, nodes: tuple[Node, ...], now: float) -> None:
        if nodes is self._nodes:
            return
        first, self._nodes = self._nodes is None, nodes
        facts: _Facts = {
            n.name: (n.ready, is_leaving(n), n.labels, sorted(map(str, n.spec.taints))) for n in nodes
        }
        if facts != self._facts and not first:
            self._first = now if self._first is None else self._first
            self._last = now
        self._facts = facts
