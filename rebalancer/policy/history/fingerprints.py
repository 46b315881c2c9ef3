"""Short digests by which the ledger recognises a state of the cluster, and a constraint.

If everything that a move depends on is as it was when the move did not help, it will not help this time.

Another version of the program may read more or less of a template, and then has another digest of the same.
So a digest says by which recipe it was made, and only those of one recipe tell whether anything has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from rebalancer import __version__
from rebalancer.bulk_work import remembered
from rebalancer.model.node import HOSTNAME, Node, NodeSpec, lasting_spec
from rebalancer.model.pod import PodTemplate
from rebalancer.model.workload import HASHES, Workload
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import tolerated

_LENGTH = 16


@cache
def recipe(of: type) -> str:
    """A name for what digests of such values are made of: this version of the program, and all fields."""
    made_of = (__version__, msgspec.json.schema(of))
    return sha256(msgspec.json.encode(made_of, order="sorted")).hexdigest()[: _LENGTH // 2]


def recipe_of(digest: str) -> str:
    """By which recipe it was made; "" where it does not say so."""
    return digest.rpartition(":")[0]


def alike(one: str, now: str, last: str) -> bool:
    """Whether what a digest is of may be so still: it is the one of `now`. Where another recipe made it,
    nobody knows, unless the owner had changed by the `last` one of that recipe. "" is of nothing."""
    if not (one and now):
        return False
    if recipe_of(one) == recipe_of(now):
        return one == now
    return one.rpartition(".")[0] == last.rpartition(".")[0]


class Fingerprints:
    """Digests of what moves rested on, in a cluster with these nodes."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {n.name: n for n in nodes}

    def of(self, owner: Workload, nodes: Iterable[str]) -> str:
        """The digest of a move of this owner that rested on these nodes: those left and predicted.

        It holds the owner's template, the domains that are open to it, and of these nodes their domains. A
        node that joins, goes or changes elsewhere, in the same domains or without any, leaves it as it is,
        and so does an autoscaler that changes the number of replicas. What is of the owner stands before the
        dot, as other moves of it rest on other nodes.
        """
        template, keys, there = self._of_owner(owner)
        rested = [
            (name, tuple(there[name].labels[k] for k in keys) if name in there else None)
            for name in sorted(set(nodes))
        ]
        own, beside = (sha256(p).hexdigest()[:_LENGTH] for p in (template, msgspec.json.encode(rested)))
        return f"{recipe(PodTemplate)}:{own}.{beside}"

    def again(self, digest: str, owner: Workload, nodes: Iterable[str]) -> str:
        """The digest now. Or what it will be once nodes that are shut for a while are open again, if that is
        this one: a cordon changes nothing for good."""
        nodes = tuple(nodes)
        now = self.of(owner, nodes)
        return digest if digest not in ("", now) and self._opened.of(owner, nodes) == digest else now

    @cached_property
    def _opened(self) -> Fingerprints:
        every = self._nodes.values()
        return Fingerprints(replace(n, spec=lasting_spec(n)) if n.spec != NodeSpec() else n for n in every)

    @remembered(by=lambda owner: owner.key)
    def _of_owner(self, owner: Workload) -> tuple[bytes, list[str], dict[str, Node]]:
        """The template and the open domains as bytes, the keys, and the nodes open to the owner."""
        template = owner.template
        if template is not None and owner.counted_as != owner.key:
            # As who owns it has it, which is not read.
            own = {k: v for k, v in template.labels.items() if k not in HASHES}
            template = replace(template, labels=own)
        keys = sorted({c.topology_key for c in template.spread} if template is not None else ())
        there = {
            name: n
            for name, n in self._nodes.items()
            if all(k in n.labels for k in keys) and (template is None or _admits(template, n))
        }
        # Each node is a domain of its own: what of them matters are those that the move rested on.
        domains = {k: sorted({n.labels[k] for n in there.values()}) for k in keys if k != HOSTNAME}
        return msgspec.json.encode((template, domains), order="sorted"), keys, there


def _admits(template: PodTemplate, node: Node) -> bool:
    """Whether selector, required affinity and tolerations let a pod of the template onto the node."""
    return (
        not node.spec.unschedulable
        and selects(template, node)
        and all(
            t.effect == "PreferNoSchedule" or tolerated(t, template.tolerations) for t in node.spec.taints
        )
    )


def selects(template: PodTemplate, node: Node) -> bool:
    """Whether selector and required affinity let a pod of the template onto the node."""
    affinity = template.affinity.node_affinity if template.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return all(node.labels.get(k) == v for k, v in template.node_selector.items()) and (
        required is None or required.matches(node.name, node.labels)
    )


def constraint_id(constraint: Constraint) -> str:
    """A name for a constraint that stays the same across restarts. Equal constraints have equal names.

    In another version they may have others. Then a violation begins anew, and so does the count of how often
    it came back; what was a loop by the old names stays one (`waits.returns`).
    """
    return sha256(msgspec.json.encode(constraint, order="sorted")).hexdigest()[:_LENGTH]
