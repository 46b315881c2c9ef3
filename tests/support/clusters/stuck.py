"""Clusters in which no single eviction helps, and several at once do."""

from __future__ import annotations

from tests.support.build import node, nodes, workload

FULL = (node("a-0").zone("a").pods(8), node("b-0").zone("b").pods(8))
LEFT = workload("left").spread("zone", 1).placed({"a-0": 5, "b-0": 3})
RIGHT = workload("right").spread("zone", 1).placed({"a-0": 3, "b-0": 5})
SWAP = (*FULL, LEFT, RIGHT)
"""Two full zones, each with a pod too many of the other's workload."""

SEVEN = (
    *nodes(a=2, b=2, c=1),
    workload("web").spread("zone", 1).spread("hostname", 1).placed({"a-0": 1, "a-1": 1, "b-0": 4, "c-0": 1}),
)
"""Seven replicas in zones 2/4/1; the one empty node lies in the fullest zone."""
