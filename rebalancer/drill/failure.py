"""What fails: a node, or all nodes with one value of a label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from rebalancer.model.node import Taint
from rebalancer.spread.arrays import Bools
from rebalancer.spread.nodes import NodeTable

HOSTNAME = "kubernetes.io/hostname"
NODE = "node"
"""The key of a failure of one node, by its name."""
SILENT = (
    Taint("node.kubernetes.io/unreachable", "NoSchedule"),
    Taint("node.kubernetes.io/unreachable", "NoExecute"),
)
"""What the node controller puts on a node that no longer answers."""

Manner = Literal["silent", "removed"]
"""`silent`: the nodes no longer answer. They keep their place in the API, and their pods stay Terminating.
`removed`: the nodes are deleted, and their pods with them."""


class Failure(Struct, frozen=True):
    """All nodes with one value of a label; `key` NODE: the node of that name."""

    key: str
    value: str

    def down(self, table: NodeTable) -> Bools:
        """bool[N]: the nodes that fail."""
        found = table.none.copy()
        if self.key == NODE:
            found[table.index[self.value]] = True
            return found
        domains = table.domains(self.key)
        return np.asarray(domains.ids == domains.names.index(self.value))


def failures(table: NodeTable, keys: Iterable[str]) -> Iterator[Failure]:
    """Each node (NODE), each domain of a label, in natural order of names; of KEY=VALUE, or NODE=NAME, that
    one alone."""
    for asked in keys:
        key, _, value = asked.partition("=")
        if key == NODE:
            yield from (Failure(NODE, name) for name in table.names if value in ("", name))
        else:
            domains = table.domains(key)
            names = (domains.names[i] for i in np.argsort(domains.ranks).tolist())
            yield from (Failure(key, name) for name in names if value in ("", name))


def keys_to_try(table: NodeTable, spread: Iterable[str]) -> tuple[str, ...]:
    """Nodes, and the keys of constraints of which a domain has several nodes."""
    wide = (k for k in dict.fromkeys(spread) if k != HOSTNAME and 0 < len(table.domains(k)) < table.size)
    return (NODE, *sorted(wide))
