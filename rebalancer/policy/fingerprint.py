"""What of a cluster decides whether a move helps: if it is as it was, the same move ends the same way."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from rebalancer.model.node import Node
from rebalancer.model.workload import Workload
from rebalancer.spread.constraint import Constraint

_LENGTH = 16


def fingerprint(nodes: Iterable[Node], owner: Workload) -> str:
    """A short digest of the nodes as the owner's constraints see them, its template and its replicas.

    Of a node: its name, its domains under the owner's keys, cordon, and the taints that repel.
    """
    template = owner.template
    keys = sorted({c.topology_key for c in template.spread} if template is not None else ())
    seen = sorted(
        (
            n.name,
            tuple(n.labels.get(k, "") for k in keys),
            n.spec.unschedulable,
            tuple(sorted(str(t) for t in n.spec.taints if t.effect != "PreferNoSchedule")),
        )
        for n in nodes
    )
    wanted = msgspec.json.encode((template, owner.replicas, seen), order="sorted")
    return sha256(wanted).hexdigest()[:_LENGTH]


def constraint_id(constraint: Constraint) -> str:
    """A short name that a constraint keeps across restarts: of its meaning, as it is compared by value."""
    return sha256(msgspec.json.encode(constraint, order="sorted")).hexdigest()[:_LENGTH]
