"""Pods by topology domain, kept up to date from the nodes that changed."""

from __future__ import annotations

from rebalancer.spread.arrays import Bools, Ints, Rows
from rebalancer.spread.nodes import Domains
from rebalancer.spread.tally import Measure, Tally


class DomainCounts:
    """A measure summed by domain over the nodes that take part.

    `counts`: int64[D], of the nodes that take part. `on_node`: int64[N], of every node.
    """

    def __init__(self, tally: Tally, measure: Measure, domains: Domains, nodes: Bools) -> None:
        """`nodes`: bool[N], the nodes whose pods are summed."""
        self.domains = domains
        self.nodes = nodes
        self._tally = tally
        self._measure = tally.number(measure)
        self.on_node: Ints = tally.numbered(self._measure).copy()
        self.counts = domains.sum(self.on_node, nodes)

    def update(self, rows: Rows) -> None:
        """Brings the counts up to date after pods changed on the nodes `rows`."""
        now = self._tally.numbered(self._measure)[rows]
        change = now - self.on_node[rows]
        for i in change.nonzero()[0].tolist():
            row = rows[i]
            self.on_node[row] = now[i]
            domain = self.domains.ids[row]
            if domain >= 0 and self.nodes[row]:
                self.counts[domain] += change[i]
