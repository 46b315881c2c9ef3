"""Which nodes would not start or keep a pod that the scheduler places there: it does not ask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import Node, Taint, Toleration, deleted_after
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools

_SYSTEM, _ARCHITECTURE = "kubernetes.io/os", "kubernetes.io/arch"


def _expelling(node: Node) -> tuple[Taint, ...]:
    return tuple(t for t in node.spec.taints if t.effect == "NoExecute")


def _handlers(node: Node) -> frozenset[str]:
    return frozenset(h.name for h in node.status.runtime_handlers)


def _with_users(node: Node) -> frozenset[str]:
    listed = node.status.runtime_handlers
    return frozenset(h.name for h in listed if h.features is not None and h.features.user_namespaces)


def _strict(node: Node) -> bool:
    features = node.status.features
    return features is not None and bool(features.supplemental_groups_policy)


class Unfit(Struct, frozen=True, eq=False):
    """Nodes, bool[N], on which a pod would not run or stay; in words, how one of them is. `remedy`: "" = that
    which goes with the reason's code."""

    words: str
    nodes: Bools
    remedy: str = ""


_LEFT_AGAIN = "which it would have to leave again, because of a taint"
_UNSEEN = "of an architecture on which no Ready pod runs its images"
_SELECT = (
    "select kubernetes.io/os or kubernetes.io/arch in the template, or have a pod with these images become "
    "Ready on such a node"
)


class Kubelets:
    """What the nodes of a cluster say of themselves, and what its pods show of them."""

    def __init__(self, state: ClusterState) -> None:
        self._snapshot, self._table, self._storage = state.snapshot, state.table, state.storage

    @remembered()
    def rejecting(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that do not start or keep the pod, which the scheduler does not ask."""
        rejecting = self._table.none
        for why in self.refusals(template):
            rejecting = rejecting | why.nodes
        return rejecting

    @remembered()
    def refusals(self, template: PodTemplate) -> Sequence[Unfit]:
        """The same nodes, by what it is that they lack. Rules: pkg/kubelet/lifecycle, ``PodOSNotSupported``,
        ``SupplementalGroupsPolicyNotSupported``; pkg/kubelet/userns; the container runtime's;
        `deleted_after`; KEP-5030."""
        return tuple(why for why in self._asked(template) if why.nodes.any())

    def _asked(self, template: PodTemplate) -> Iterator[Unfit]:
        tolerations = "drop the toleration that admits such nodes, or its tolerationSeconds"
        yield Unfit(_LEFT_AGAIN, self._left_again(template.tolerations), tolerations)
        inline = (v.driver for v in template.volumes if v.kind == "csi")
        for driver in dict.fromkeys((*self._storage.attachments(template), *inline)):
            yield Unfit(f"which has no CSI driver {driver}", self._without(driver))
        if template.handler:
            lacks = f"whose runtime has no handler {template.handler}, which its RuntimeClass names"
            yield Unfit(lacks, self._not_running(template.handler))
        if template.own_users:
            yield Unfit("whose runtime has no user namespaces", self._without_users(template.handler))
        if template.strict_groups:
            strict = np.array(self._table.answers(_strict), np.bool_)
            yield Unfit("whose runtime has no supplementalGroupsPolicy", ~strict)
        if len(self._table.domains(_ARCHITECTURE).names) > 1:
            images = {c.image for c in (*template.containers, *template.init_containers)}
            yield Unfit(_UNSEEN, self._foreign(images), _SELECT)
        if template.os:
            systems = self._table.domains(_SYSTEM)
            same = systems.names.index(template.os) if template.os in systems.names else -1
            other = np.array(systems.present & (systems.ids != same))
            yield Unfit(f"which is not of its operating system, {template.os}", other, _SELECT)

    @remembered(by=frozenset)
    def _foreign(self, images: Collection[str]) -> Bools:
        """bool[N]: nodes of an architecture on which one of the images was not seen to run, or of an unknown
        one, as those are that a NodePool may add."""
        architectures, seen = self._table.domains(_ARCHITECTURE), self._run_on
        every = range(len(architectures.names))
        fits = [all(a in seen.get(image, ()) for image in images) for a in every]
        return ~architectures.spread(np.array(fits, dtype=np.bool_))

    @cached_property
    def _run_on(self) -> Mapping[str, Collection[int]]:
        """The architectures, by number, on which a Ready pod runs each image; those on which a pod has it, if
        none is Ready."""
        ids, index = self._table.domains(_ARCHITECTURE).ids, self._table.index
        ready, every = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
        for group in self._snapshot.live:
            there = {(int(ids[index[p.node_name]]), p.ready) for p in group.pods if p.node_name in index}
            for c in (*group.template.containers, *group.template.init_containers):
                ready[c.image].update(a for a, is_ready in there if is_ready)
                every[c.image].update(a for a, _ in there)
        return {image: ready[image] or where for image, where in every.items()}

    @remembered(by=str)
    def _not_running(self, handler: str) -> Bools:
        """bool[N]: nodes that list runtime handlers, and not this one."""
        listed = self._table.answers(_handlers)
        return np.array([bool(names) and handler not in names for names in listed], np.bool_)

    @remembered(by=str)
    def _without_users(self, handler: str) -> Bools:
        """bool[N]: nodes that do not say that this runtime handler has user namespaces: nor do their kubelets
        know."""
        return np.array([handler not in able for able in self._table.answers(_with_users)], np.bool_)

    @remembered()
    def _left_again(self, tolerations: tuple[Toleration, ...]) -> Bools:
        """bool[N]: nodes that a pod with these tolerations has to leave, at once or after some time."""
        taints = self._table.answers(_expelling)
        return np.array([bool(t) and deleted_after(tolerations, t) is not None for t in taints], np.bool_)

    @remembered()
    def _without(self, driver: str) -> Bools:
        """bool[N]: nodes that say which drivers they have, and do not have this one."""
        lacks = (self._storage.has_driver(n, driver) is False for n in self._table.names)
        return np.fromiter(lacks, np.bool_, self._table.size)
