"""Which nodes would not start or keep a pod that the scheduler places there: it does not ask."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import Node, Taint, Toleration, deleted_after
from rebalancer.model.pod import EVICTED_FOR, REJECTED_FOR, Pod, PodTemplate
from rebalancer.policy.owners import ARRIVAL, REVISION
from rebalancer.spread.arrays import Bools, Ints, Rows, among

_SYSTEM, _ARCHITECTURE = "kubernetes.io/os", "kubernetes.io/arch"
_PLATFORM = (_SYSTEM, _ARCHITECTURE, "node.kubernetes.io/windows-build")
"""Labels that each kubelet gives its node: together they decide which images run there."""


def _expelling(node: Node) -> tuple[Taint, ...]:
    return tuple(t for t in node.spec.taints if t.effect == "NoExecute")


Platform = tuple[str | None, ...]


def _platform(node: Node) -> Platform:
    return (node.labels.get(_SYSTEM, "linux"), *map(node.labels.get, _PLATFORM[1:]))


def _minor(node: Node) -> int:
    """Of its kubelet's version 1.x; where it does not say, none is older."""
    info = node.status.node_info
    found = re.match(r"v?1\.(\d+)", info.kubelet_version) if info is not None else None
    return int(found[1]) if found else _NEWEST


def _of_one_pod(node: Node) -> bool:
    """Whether AWS Fargate has made it, as it does for each pod that its own scheduler takes."""
    return node.labels.get("eks.amazonaws.com/compute-type") == "fargate"


def _handlers(node: Node) -> frozenset[str]:
    return frozenset(h.name for h in node.status.runtime_handlers)


def _with_users(node: Node) -> frozenset[str]:
    listed = node.status.runtime_handlers
    return frozenset(h.name for h in listed if h.features is not None and h.features.user_namespaces)


def _with_read_only(node: Node) -> frozenset[str]:
    listed = node.status.runtime_handlers
    return frozenset(
        h.name for h in listed if h.features is not None and h.features.recursive_read_only_mounts
    )


def _strict(node: Node) -> bool:
    features = node.status.features
    return features is not None and bool(features.supplemental_groups_policy)


def _hangs(pod: Pod) -> float | None:
    """Since when its kubelet is to make its sandbox, or should have ended it; None if it has."""
    if pod.deleted is not None:
        return None if pod.finalizers else pod.deleted
    return pod.unbegun


def _kin(pod: Pod) -> object:
    """What pods that run the same have in common: their owner, and its revision."""
    template = pod.template
    return template.namespace, template.controller or pod.name, template.labels.get(REVISION)


class Unfit(Struct, frozen=True, eq=False):
    """Nodes, bool[N], on which a pod would not run or stay; in words, how one of them is. `remedy`: "" = that
    which goes with the reason's code."""

    words: str
    nodes: Bools
    remedy: str = ""


_LEFT_AGAIN = "which it would have to leave again, because of a taint"
_UNSEEN = "which is {}: no Ready pod runs its images on that operating system and architecture"
_HEARD = (
    "the messages of the pods that Failed there say more; the no holds for a day, or until a pod of the "
    "owner is Ready there"
)
_UPGRADE = "upgrade the kubelet, or keep these pods off such nodes by a node selector in their template"
_SELECT = (
    "select kubernetes.io/os or kubernetes.io/arch in the template, or have a pod with these images become "
    "Ready on such a node"
)


_IDLE = f"which has not done for {ARRIVAL / 60:g} min what it was last asked to: to start or end pods"
_PRESSED = "whose kubelet has evicted several pods lately, as it ran short of something"
_RELIEVE = "the messages of the pods that Failed there say what is short; the no holds for an hour"
_LOOK = "see kubectl describe of the pods on that node; the no holds until a later pod starts there"
_AGENT = "where a node-critical DaemonSet's pod is not Ready, and elsewhere it is"
_CRASHES = "where pods of its owner crash, and elsewhere they are Ready"
_READY = "mend that pod, or the node"

_NO_ROWS: Rows = np.array([], np.int64)
_NEWEST = 1 << 10
_SINCE: tuple[tuple[int, str, Callable[[PodTemplate], bool]], ...] = (
    (29, "containers that are sidecars", lambda t: any(c.sidecar for c in t.init_containers)),
    (33, "user namespaces", lambda t: t.own_users),
    (34, "resources of the pod as a whole", lambda t: bool(t.pod_level or t.pod_level_limits)),
    (35, "volumes that are images", lambda t: any(v.kind == "image" for v in t.volumes)),
)
"""The minor version from which on kubelets do by default what some pods ask for (pkg/features:
SidecarContainers, UserNamespacesSupport, PodLevelResources, ImageVolume)."""


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
        for row, reason in self._refused.get((template.namespace, template.controller), {}).items():
            yield Unfit(
                f"which has refused pods of its owner: {reason}",
                among(self._table.size, np.array([row])),
                _HEARD,
            )
        taken = np.array(self._table.answers(_of_one_pod), np.bool_)
        yield Unfit("which Fargate has made for one pod alone", taken, "drop the toleration that admits it")
        yield Unfit(_PRESSED, self._pressed, _RELIEVE)
        yield Unfit(_IDLE, self._idle, _LOOK)
        yield Unfit(_AGENT, among(self._table.size, self._broken[None]), _READY)
        crashes = self._broken.get((template.namespace, template.controller))
        if crashes is not None:
            yield Unfit(_CRASHES, among(self._table.size, crashes), _READY)
        tolerations = "drop the toleration that admits such nodes, or its tolerationSeconds"
        yield Unfit(_LEFT_AGAIN, self._left_again(template.tolerations), tolerations)
        inline = (v.driver for v in template.volumes if v.kind == "csi")
        for driver in dict.fromkeys((*self._storage.attachments(template), *inline)):
            yield Unfit(f"which has no CSI driver {driver}", self._without(driver))
        if template.handler:
            lacks = f"whose runtime has no handler {template.handler}, which its RuntimeClass names"
            yield Unfit(lacks, self._not_running(template.handler))
        if template.own_users:
            yield Unfit("whose runtime has no user namespaces", self._unable(_with_users, template.handler))
        if template.read_only_throughout:
            without = self._unable(_with_read_only, template.handler)
            yield Unfit("whose runtime has no recursive read-only mounts", without)
        if template.strict_groups:
            strict = np.array(self._table.answers(_strict), np.bool_)
            yield Unfit("whose runtime has no supplementalGroupsPolicy", ~strict)
        if any(len(self._table.domains(key).names) > 1 for key in _PLATFORM):
            images = {c.image for c in (*template.containers, *template.init_containers)}
            for platform, nodes in self._foreign(images).items():
                yield Unfit(_UNSEEN.format("/".join(filter(None, platform))), nodes, _SELECT)
        for since, what, asks in _SINCE:
            if (self._minors < since).any() and asks(template):
                oldest = min(since, self._oldest_with(asks))
                yield Unfit(f"whose kubelet is too old for {what}", self._minors < oldest, _UPGRADE)
        if template.os:
            systems = self._table.domains(_SYSTEM)
            same = systems.names.index(template.os) if template.os in systems.names else -1
            other = np.array(systems.present & (systems.ids != same))
            yield Unfit(f"which is not of its operating system, {template.os}", other, _SELECT)

    @remembered(by=frozenset)
    def _foreign(self, images: Collection[str]) -> Mapping[Platform, Bools]:
        """bool[N] of each platform on which one of the images was not seen to run: its nodes. What a NodePool
        may add is of an unknown one."""
        platforms = self._table.answers(_platform)
        strange = (
            p for p in dict.fromkeys(platforms) if any(p not in self._run_on.get(i, ()) for i in images)
        )
        return {p: np.array([p == other for other in platforms], np.bool_) for p in strange}

    @cached_property
    def _run_on(self) -> Mapping[str, Collection[Platform]]:
        """The platforms on which a Ready pod runs each image; those on which a pod has it, if none is
        Ready."""
        of = dict(zip(self._table.names, self._table.answers(_platform), strict=True))
        ready, every = defaultdict[str, set[Platform]](set), defaultdict[str, set[Platform]](set)
        for group in self._snapshot.live:
            there = {(of[p.node_name], p.ready) for p in group.pods if p.node_name in of}
            for c in (*group.template.containers, *group.template.init_containers):
                ready[c.image].update(a for a, is_ready in there if is_ready)
                every[c.image].update(a for a, _ in there)
        return {image: ready[image] or where for image, where in every.items()}

    @cached_property
    def _refused(self) -> Mapping[object, Mapping[int, str]]:
        """By owner, the nodes whose kubelets have not admitted a pod of it lately, and why. A younger pod
        that is Ready there shows that it is over."""
        index, since = self._table.index, self._snapshot.now - REJECTED_FOR
        last: dict[object, dict[int, Pod]] = defaultdict(dict)
        for p in self._snapshot.over:
            if p.rejected and p.node_name in index and (p.created or 0.0) > since and p.template.controller:
                of_owner = last[p.template.namespace, p.template.controller]
                before = of_owner.get(index[p.node_name], p)
                of_owner[index[p.node_name]] = max(before, p, key=lambda p: p.created or 0.0)
        for group in self._snapshot.live if last else ():
            of_owner = last.get((group.template.namespace, group.template.controller), {})
            for p in group.pods if of_owner else ():
                no = of_owner.get(index.get(p.node_name, -1))
                if no is not None and p.ready and (p.created or 0.0) > (no.created or 0.0):
                    del of_owner[index[p.node_name]]
        return {owner: {row: p.rejected for row, p in nodes.items()} for owner, nodes in last.items()}

    @cached_property
    def _pressed(self) -> Bools:
        """bool[N]: nodes whose kubelets have evicted several pods lately. The node's condition is gone some
        minutes after each, and then pods come again."""
        index, since = self._table.index, self._snapshot.now - EVICTED_FOR
        lately = Counter(p.node_name for p in self._snapshot.over if (p.evicted or 0.0) > since)
        rows = [index[name] for name, number in lately.items() if number > 1 and name in index]
        return among(self._table.size, np.array(rows, np.int64))

    @cached_property
    def _idle(self) -> Bools:
        """bool[N]: nodes that have not done for long the last that they were asked to: start a pod, or end
        one. A pod may be to blame itself, so one speaks against its node only if it mounts no claim, and as
        many of its owner's are Ready elsewhere as hang; or two do, whose owners' pods hang nowhere else."""
        index, long_ago = self._table.index, self._snapshot.now - ARRIVAL
        hanging = [(p, at) for p in self._snapshot.pods if (at := _hangs(p)) is not None and at <= long_ago]
        hanging = [(p, at) for p, at in hanging if p.node_name in index and not p.template.claims]
        if not hanging:
            return self._table.none
        nodes, owners = defaultdict[object, set[str]](set), Counter(_kin(p) for p, _ in hanging)
        begun = dict.fromkeys((p.node_name for p, _ in hanging), 0.0)
        for p, _ in hanging:
            nodes[_kin(p)].add(p.node_name)
        ready = Counter[object]()
        for p in self._snapshot.pods:
            # Without the node's network nothing but the pods on it starts.
            if p.node_name in begun and p.phase in ("Running", "Succeeded") and not p.template.host_network:
                begun[p.node_name] = max(begun[p.node_name], p.started or p.created or 0.0)
            elif p.ready and not p.terminating and p.node_name not in begun:
                ready[_kin(p)] += 1
        against = Counter[int]()
        for p, at in hanging:
            if at > begun[p.node_name]:
                kin = _kin(p)
                proof = 2 if ready[kin] >= owners[kin] else int(len(nodes[kin]) == 1)
                against[index[p.node_name]] += proof
        return among(self._table.size, np.array([row for row, n in against.items() if n > 1], np.int64))

    @cached_property
    def _broken(self) -> Mapping[object, Rows]:
        """By owner, the nodes where its pods crash, and none is Ready: no more than those where one is. None:
        those where, in the same way, a node-critical DaemonSet's pod is not Ready, be it crashing or not."""
        index, now = self._table.index, self._snapshot.now
        long_ago = now - ARRIVAL
        bad, agents = defaultdict[object, set[str]](set), set[object]()
        for group in self._snapshot.live:
            owner = group.template.namespace, group.template.controller
            agent = owner[1] is not None and owner[1][1] == "DaemonSet"
            agent = agent and group.template.priority_class == "system-node-critical"
            for p in group.pods if owner[1] else ():
                if not p.ready and (agent or p.crashed is not None) and (p.started or now) <= long_ago:
                    bad[owner].add(p.node_name)
                    agents.update((owner,) if agent else ())
        ready: dict[object, set[str]] = {owner: set() for owner in bad}
        for group in self._snapshot.live if bad else ():
            there = ready.get((group.template.namespace, group.template.controller), set())
            there.update(p.node_name for p in group.pods if p.ready)
        found: dict[object, Rows] = {}
        for key, on in bad.items():
            rows = [index[n] for n in on - ready[key] if n in index]
            if len(rows) <= len(ready[key]):
                found[key] = np.array(rows, np.int64)
        found[None] = np.concatenate([_NO_ROWS, *(rows for key, rows in found.items() if key in agents)])
        return found

    @cached_property
    def _minors(self) -> Ints:
        """int64[N]: the minor versions of the kubelets."""
        return np.array(self._table.answers(_minor), np.int64)

    @remembered()
    def _oldest_with(self, asks: Callable[[PodTemplate], bool]) -> int:
        """The oldest kubelet that was seen to do what some pods ask for: a feature gate may be on before."""
        index = self._table.index
        pods = (p for group in self._snapshot.live if asks(group.template) for p in group.pods if p.ready)
        minors = (int(self._minors[index[p.node_name]]) for p in pods if p.node_name in index)
        return min(minors, default=_NEWEST)

    @remembered(by=str)
    def _not_running(self, handler: str) -> Bools:
        """bool[N]: nodes that list runtime handlers, and not this one."""
        listed = self._table.answers(_handlers)
        return np.array([bool(names) and handler not in names for names in listed], np.bool_)

    @remembered(by=lambda able, handler: (able, handler))
    def _unable(self, able: Callable[[Node], frozenset[str]], handler: str) -> Bools:
        """bool[N]: nodes that do not say that this runtime handler is able: nor do their kubelets know."""
        return np.array([handler not in names for names in self._table.answers(able)], np.bool_)

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
