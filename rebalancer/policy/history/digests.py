"""Short digests by which the ledger recognises a state of the cluster, and a constraint.

If everything that a move depends on is as it was when the move did not help, it will not help this time.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from rebalancer.model.node import Node
from rebalancer.model.pod import PodTemplate
from rebalancer.model.workload import Workload
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import tolerated

_LENGTH = 16


def cluster_digest(nodes: Iterable[Node], owner: Workload) -> str:
    """A digest of what an owner's moves depend on: its pod template, its replicas, and the nodes open to it.

    Those are the nodes that its template admits and that have the keys of its constraints, by name and
    domain. What joins, leaves or changes elsewhere leaves the digest as it is.
    """
    template = owner.template
    keys = sorted({c.topology_key for c in template.spread} if template is not None else ())
    seen = sorted(
        (n.name, tuple(n.labels[k] for k in keys))
        for n in nodes
        if all(k in n.labels for k in keys) and (template is None or _admits(template, n))
    )
    wanted = msgspec.json.encode((template, owner.replicas, seen), order="sorted")
    return sha256(wanted).hexdigest()[:_LENGTH]


def _admits(template: PodTemplate, node: Node) -> bool:
    """Whether selector, required affinity and tolerations let a pod of the template onto the node."""
    affinity = template.affinity.node_affinity if template.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return (
        not node.spec.unschedulable
        and all(node.labels.get(k) == v for k, v in template.node_selector.items())
        and (required is None or required.matches(node.name, node.labels))
        and all(
            t.effect == "PreferNoSchedule" or tolerated(t, template.tolerations) for t in node.spec.taints
        )
    )


def constraint_id(constraint: Constraint) -> str:
    """A name for a constraint that stays the same across restarts. Equal constraints have equal names."""
    return sha256(msgspec.json.encode(constraint, order="sorted")).hexdigest()[:_LENGTH]
