"""Which nodes would not start or keep a pod that the scheduler places there: it does not ask."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf

import numpy as np
from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.engine.plugins.image_locality import normalized
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import Node, Taint, Toleration, deleted_after
from rebalancer.model.pod import EVICTED_FOR, REGISTRAR, REJECTED_FOR, Pod, PodTemplate
from rebalancer.model.snapshot import alike
from rebalancer.model.workload import REVISION
from rebalancer.policy.owners import ARRIVAL
from rebalancer.spread.arrays import Bools, Ints, among

_SYSTEM, _ARCHITECTURE = "kubernetes.io/os", "kubernetes.io/arch"
_PLATFORM = (_SYSTEM, _ARCHITECTURE, "node.kubernetes.io/windows-build")
"""Labels that each kubelet gives its node: together they decide which images run there."""


def expelling(node: Node) -> tuple[Taint, ...]:
    """The taints for which pods may have to leave the node."""
    return tuple(t for t in node.spec.taints if t.effect == "NoExecute")


Platform = tuple[str | None, ...]


def _platform(node: Node) -> Platform:
    return (node.labels.get(_SYSTEM, "linux"), *map(node.labels.get, _PLATFORM[1:]))


def _minor(node: Node) -> int:
    """Of its kubelet's version 1.x; where it does not say, none is older."""
    info = node.status.node_info
    found = re.match(r"v?1\.(\d+)", info.kubelet_version) if info is not None else None
    return int(found[1]) if found else _NEWEST


def _system(node: Node) -> str:
    """The distribution with its first number, which decide whether it has AppArmor: SLES 16 has none. "" of a
    node that is yet to be added; one that does not say is like no other."""
    info = node.status.node_info
    found = re.match(r"\D*\d*", info.os_image) if info is not None else None
    return "" if info is None else (found[0] if found is not None else "") or node.name


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
    return pod.symptoms.unbegun


def _came(pod: Pod) -> float:
    """When it came to its node: the later of two, as it may have waited for one."""
    return max(pod.created or 0.0, pod.started or 0.0)


def _failed(pod: Pod) -> float:
    """Since when one that is not Ready shows what ails its node: it may have been well there for long."""
    return max(_came(pod), pod.symptoms.unready_since or 0.0)


def _kin(template: PodTemplate) -> object:
    """What pods that run the same have in common: their owner and its revision. A DaemonSet brings a new one
    to node after node."""
    owner = template.controller
    again = owner is None or owner[1] == "DaemonSet"
    return template.namespace, owner, None if again else template.labels.get(REVISION)


def _needed_by(template: PodTemplate) -> Iterator[Hashable]:
    """Whom its pod on a node concerns (`_concerns`), as it is a DaemonSet's: all, or those with volumes of
    CSI drivers."""
    if template.controller is not None and template.controller[1] == "DaemonSet":
        if template.priority_class == "system-node-critical" or template.priority >= _CRITICAL:
            yield None
        if any(REGISTRAR in c.name for c in template.containers):
            yield "plugins"


def _exact(template: PodTemplate) -> bool:
    """Whether its kubelet has to find certain cpus or devices for it."""
    if any("/" in r for r in template.requests):
        return True
    own = template.every_container
    whole = any((cpus := c.requests.get("cpu", 0)) and not cpus % 1000 for c in own)
    return whole and all(c.limits.get(r) == c.requests.get(r, 0) for c in own for r in ("cpu", "memory"))


class Unfit(Struct, frozen=True, eq=False):
    """Nodes, bool[N], on which a pod would not run or stay; in words, how one of them is. `remedy`: "" = that
    which goes with the reason's code."""

    words: str
    nodes: Bools
    remedy: str = ""


_LEFT_AGAIN = "which it would have to leave again, because of a taint"
_UNSEEN = "which is {}: no Ready pod runs its images on that operating system and architecture"
_ALLOTTED = "where claims of devices take room of the node, and how much is not known"
_UNARMED = "on whose operating system no pod with an AppArmor profile runs"
_ARM = "select nodes with AppArmor in the template, or have a pod with such a profile run on such a node"
_HEARD = (
    "the messages of the pods that Failed there say more; the no holds for a day, or until such a pod is "
    "Ready there"
)
_UPGRADE = "upgrade the kubelet, or keep these pods off such nodes by a node selector in their template"
_SELECT = (
    "select kubernetes.io/os or kubernetes.io/arch in the template, or have a pod with these images become "
    "Ready on such a node"
)


_IDLE = f"which has not done for {ARRIVAL / 60:g} min what it was last asked to: to start or end pods"
_PRESSED = "whose kubelet has evicted several pods lately, as it ran short of something"
_RELIEVE = "the messages of the pods that Failed there say what is short; the no holds for an hour"
_LOOK = "see kubectl describe of the pods on that node; the no holds until later pods start there"
_AGENT = "where a DaemonSet's pod that others need is not Ready, and elsewhere it is"
_CRASHES = "where pods of its owner crash, and elsewhere they are Ready"
_SICK = "where pods of several owners are not Ready, and elsewhere they are"
_UNATTACHED = f"where volumes of its CSI driver, or its claim, have not come or gone for {ARRIVAL / 60:g} min"
_UNPULLED = "which may have to pull {}, and a pod of its namespace cannot"
_READY = "mend that pod, or the node"

_CRITICAL = 2_000_000_000
"""The priority of system-cluster-critical: nobody's own class is as high."""
_ENOUGH = 3
"""So many owners say that it is the node; nobody's own fault shows that often."""
_MEANWHILE = 60.0
"""Who came so shortly before another, in seconds, came with it."""
_PASSING = 60.0
"""For so many seconds a pod that was Ready is often not: it says nothing of its node yet."""
_ANYWHERE = -1
"""The row of what is no node's matter."""
_UNALIGNED = frozenset({"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"})
"""Why kubelets refuse pods for which they do not find the very cpus or devices (pkg/kubelet/cm)."""
_NEWEST = 1 << 10
_SINCE: tuple[tuple[int, str, Callable[[PodTemplate], bool]], ...] = (
    (29, "containers that are sidecars", lambda t: any(c.sidecar for c in t.init_containers)),
    (33, "user namespaces", lambda t: t.own_users),
    (34, "resources of the pod as a whole", lambda t: bool(t.pod_level or t.pod_level_limits)),
    (35, "volumes that are images", lambda t: any(v.kind == "image" for v in t.volumes)),
)
"""The minor version from which on kubelets do by default what some pods ask for (pkg/features:
SidecarContainers, UserNamespacesSupport, PodLevelResources, ImageVolume)."""


class _Sign(Struct, frozen=True):
    """What went wrong on a node (row), at a time, for pods whom that concerns (`_concerns`): `tells` of it
    `_ENOUGH` together. It is undone by more than `weight` pods that came later and are Ready."""

    about: Hashable
    row: int
    at: float
    tells: int
    words: str
    remedy: str = _READY
    weight: int = 0


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

    @cached_property
    def _of_one_pod(self) -> Bools:
        return np.array(self._table.answers(_of_one_pod), np.bool_)

    @remembered()
    def refusals(self, template: PodTemplate) -> Sequence[Unfit]:
        """The same nodes, by what it is that they lack. Rules: pkg/kubelet/lifecycle, ``PodOSNotSupported``,
        ``SupplementalGroupsPolicyNotSupported``; pkg/kubelet/userns; the container runtime's;
        `deleted_after`; KEP-5030."""
        return tuple(why for why in self._asked(template) if why.nodes.any())

    def _asked(self, template: PodTemplate) -> Iterator[Unfit]:
        for about in self._concerns(template) if self._shown else ():
            yield from self._shown.get(about, ())
        fargate = "which Fargate has made for one pod alone"
        yield Unfit(fargate, self._of_one_pod, "drop the toleration that admits it")
        tolerations = "drop the toleration that admits such nodes, or its tolerationSeconds"
        yield Unfit(_LEFT_AGAIN, self._left_again(template.tolerations), tolerations)
        for driver in self._drivers(template):
            yield Unfit(f"which has no CSI driver {driver}", self._without(driver))
        if template.handler:
            lacks = f"whose runtime has no handler {template.handler}, which its RuntimeClass names"
            yield Unfit(lacks, self._not_running(template.handler))
        if template.own_users:
            yield Unfit("whose runtime has no user namespaces", self._unable(_with_users, template.handler))
        if template.read_only_throughout:
            without = self._unable(_with_read_only, template.handler)
            yield Unfit("whose runtime has no recursive read-only mounts", without)
        if self._allotted.any():
            yield Unfit(_ALLOTTED, self._allotted, "wait until the pods with such claims have gone")
        if template.app_armor:
            yield Unfit(_UNARMED, self._unarmed, _ARM)
        if template.strict_groups:
            strict = np.array(self._table.answers(_strict), np.bool_)
            yield Unfit("whose runtime has no supplementalGroupsPolicy", ~strict)
        if any(len(self._table.domains(key).names) > 1 for key in _PLATFORM):
            images = {c.image for c in template.every_container}
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
            for c in group.template.every_container:
                ready[c.image].update(a for a, is_ready in there if is_ready)
                every[c.image].update(a for a, _ in there)
        return {image: ready[image] or where for image, where in every.items()}

    @cached_property
    def _allotted(self) -> Bools:
        """bool[N]: nodes whose room is not known, as claims of their pods take some of it."""
        groups = (g for g in self._snapshot.live if g.template.by_claims)
        ending = (p for p in self._snapshot.over if p.template.by_claims and not p.finished)
        where = {p.node_name for p in (*(p for g in groups for p in g.pods), *ending)}
        return np.array([name in where for name in self._table.names], np.bool_)

    @cached_property
    def _unarmed(self) -> Bools:
        """bool[N]: nodes on whose system no pod was seen to run that has a profile of AppArmor."""
        systems = self._table.answers(_system)
        of = dict(zip(self._table.names, systems, strict=True))
        armed = (p for g in self._snapshot.live if g.template.app_armor for p in g.pods)
        seen = {of.get(p.node_name) for p in armed if p.phase == "Running"} | {""}
        return np.array([system not in seen for system in systems], np.bool_)

    def _drivers(self, template: PodTemplate) -> Collection[str]:
        """The CSI drivers of its volumes."""
        inline = (v.driver for v in template.volumes if v.kind == "csi")
        return dict.fromkeys((*self._storage.attachments(template), *inline))

    @remembered()
    def _concerns(self, template: PodTemplate) -> Sequence[Hashable]:
        """What a sign may be about that concerns such a pod, or that such a pod undoes: None is the node."""
        space, drivers = template.namespace, self._drivers(template)
        own = template.every_container
        pulls = {("pull" if c.pull == "Always" else "image", c.image) for c in own}
        return (
            *((("owner", space, template.controller),) if template.controller else ()),
            None,
            *(("plugins",) if drivers else ()),
            *(("driver", d) for d in drivers),
            *(("claim", space, c) for c in template.claims),
            *((what, space, image) for what, image in sorted(pulls)),
            *(("exact",) if _exact(template) else ()),
            *(f"OutOf{r}" for r in (*template.requests, "pods")),
        )

    @cached_property
    def _shown(self) -> Mapping[Hashable, Sequence[Unfit]]:
        """The nodes on which pods show that others would not start or stay, by what that is about."""
        signs = defaultdict[tuple[Hashable, int], list[_Sign]](list)
        for sign in (*self._of_unready(), *self._of_failed(), *self._of_volumes()):
            signs[sign.about, sign.row].append(sign)
        rows, later = defaultdict[tuple[Hashable, str, str], list[int]](list), self._undoing(signs)
        for (about, row), some in signs.items():
            some.sort(key=lambda s: -s.at)
            since, tells, weight = sorted(later[about, row]), 0, 0
            for sign in some:
                tells, weight = tells + sign.tells, weight + sign.weight
                if tells >= _ENOUGH and weight >= len(since) - bisect_right(since, sign.at):
                    most = max(some, key=lambda s: s.tells)
                    rows[about, most.words, most.remedy].append(row)
                    break
        found = defaultdict[Hashable, list[Unfit]](list)
        for (about, words, remedy), some_rows in rows.items():
            if some_rows == [_ANYWHERE] and isinstance(about, tuple):
                nodes, has = ~self._table.none, self._table.image(normalized(about[2]))[1]
                lacks = ~among(self._table.size, has)
                found["image", *about[1:]].append(Unfit(words, lacks, remedy))
            else:
                nodes = among(self._table.size, np.array(some_rows, np.int64))
            found[about].append(Unfit(words, nodes, remedy))
        return found

    def _undoing(self, signs: Collection[tuple[Hashable, int]]) -> Mapping[tuple[Hashable, int], list[float]]:
        """When pods came that are Ready, or have Succeeded, where there are signs that concern them. Without
        the node's network nothing but the pods on it starts; an image that is not pulled `Always` may have
        been there."""
        index, abouts = self._table.index, {about for about, _ in signs}
        nodes = {self._table.names[row] for _, row in signs if row != _ANYWHERE}
        found = {sign: list[float]() for sign in signs}
        ended = alike(p for p in self._snapshot.over if p.phase == "Succeeded") if signs else ()
        for group in (*self._snapshot.live, *ended) if signs else ():
            concerns = abouts.intersection(self._concerns(group.template))
            if group.template.host_network:
                concerns.discard(None)
            anywhere = [found[a, _ANYWHERE] for a in concerns if (a, _ANYWHERE) in found]
            for p in group.pods if concerns else ():
                if (p.node_name in nodes or anywhere) and (p.ready or p.finished):
                    here = (found.get((a, index.get(p.node_name, _ANYWHERE))) for a in concerns)
                    for times in (*anywhere, *(h for h in here if h is not None)):
                        times.append(_came(p))
        return found

    def _unready(self) -> Mapping[object, Mapping[str, list[Pod]]]:
        """The pods that have not begun, ended or become Ready for long, by what they run and by node. One
        that was Ready counts when it has not been for a while, and at once where it crashes."""
        index, latest = self._table.index, self._snapshot.latest
        found = defaultdict[object, dict[str, list[Pod]]](lambda: defaultdict(list))
        for p in (*(p for g in self._snapshot.live for p in g.pods if not p.ready), *self._snapshot.over):
            at = _hangs(p) if p.deleted is not None or p.finished else p.symptoms.unbegun or _came(p)
            if at is None or at > latest - ARRIVAL or p.symptoms.starting or p.node_name not in index:
                continue
            if p.symptoms.crashed is not None or _failed(p) <= latest - _PASSING:
                found[_kin(p.template)][p.node_name].append(p)
        return found

    def _of_unready(self) -> Iterator[_Sign]:
        """Of those. They may be to blame themselves, so they tell of their node only if as many that run the
        same are Ready elsewhere; or if they mount no claim, and such pods hang on no other node."""
        index, bad = self._table.index, self._unready()
        ready = defaultdict[object, Counter[str]](Counter)
        for group in self._snapshot.live if bad else ():
            if group.template.controller is not None and (kin := _kin(group.template)) in bad:
                ready[kin].update(p.node_name for p in group.pods if p.ready)
        for kin, nodes in bad.items():
            elsewhere = sum(n for on, n in ready[kin].items() if on not in nodes)
            proven = elsewhere >= sum(map(len, nodes.values()))
            for on, pods in nodes.items():
                since = [at for p in pods if (at := _hangs(p)) is not None]
                p, hangs, row = max(pods, key=_failed), max(since, default=None), index[on]
                t, at = p.template, _failed(p)
                if hangs is not None and not t.claims and (proven or len(nodes) == 1):
                    yield _Sign(None, row, hangs, _ENOUGH if proven else 2 * len(since), _IDLE, _LOOK)
                elif hangs is not None and proven:
                    for driver in self._drivers(t):
                        yield _Sign(("driver", driver), row, hangs, 1, _UNATTACHED, _LOOK)
                    for claim in t.claims:
                        yield _Sign(("claim", t.namespace, claim), row, hangs, _ENOUGH, _UNATTACHED, _LOOK)
                elif hangs is None and proven and not ready[kin][on]:
                    if None not in (needed := tuple(_needed_by(t))):
                        yield _Sign(None, row, at - _MEANWHILE, 1, _SICK, _LOOK, weight=len(pods))
                    for about in needed:
                        yield _Sign(about, row, at, _ENOUGH, _AGENT, weight=2)
                    if any(p.symptoms.crashed is not None for p in pods):
                        yield _Sign(("owner", t.namespace, t.controller), row, at, _ENOUGH, _CRASHES)
                    for image in sorted({p.symptoms.unpulled for p in pods if p.symptoms.unpulled}):
                        about, words = ("pull", t.namespace, image), _UNPULLED.format(image)
                        yield _Sign(about, _ANYWHERE, at, _ENOUGH, words, _LOOK)

    def _of_failed(self) -> Iterator[_Sign]:
        """Of pods that kubelets have evicted or not admitted lately. A node's condition is gone some minutes
        after an eviction, and then pods come again."""
        index, now = self._table.index, self._snapshot.now
        for p in self._snapshot.over:
            t, row, at = p.template, index.get(p.node_name), p.created or 0.0
            if row is not None and (p.symptoms.evicted or 0.0) > now - EVICTED_FOR:
                yield _Sign(None, row, inf, 2, _PRESSED, _RELIEVE)
            if row is not None and p.symptoms.rejected and at > now - REJECTED_FOR and t.controller:
                words = f"which has refused pods of its owner: {p.symptoms.rejected}"
                yield _Sign(("owner", t.namespace, t.controller), row, at, _ENOUGH, words, _HEARD)
                about = "exact" if p.symptoms.rejected in _UNALIGNED and _exact(t) else p.symptoms.rejected
                words = f"which has refused several pods that ask for such things: {p.symptoms.rejected}"
                yield _Sign(about, row, at, 1, words, _HEARD)

    def _of_volumes(self) -> Iterator[_Sign]:
        """Of volumes that have been on their way to a node, or from it, for long."""
        index, long_ago = self._table.index, self._snapshot.latest - ARRIVAL
        for a in self._snapshot.attachments:
            made, ends = a.metadata.creation_timestamp, a.metadata.deletion_timestamp
            row, since = index.get(a.spec.node_name), ends or (None if a.status.attached else made)
            if row is not None and since is not None and (at := since.timestamp()) <= long_ago:
                about = "driver" if ends is None else "from", a.spec.attacher
                yield _Sign(about, row, at, 1, _UNATTACHED, _LOOK)

    def keeps(self, template: PodTemplate, row: int) -> bool:
        """Whether volumes of the pod's drivers do not come off the node that it would leave."""
        signs = (u for d in self._drivers(template) for u in self._shown.get(("from", d), ()))
        return any(bool(u.nodes[row]) for u in signs)

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
        taints = self._table.answers(expelling)
        return np.array([bool(t) and deleted_after(tolerations, t) is not None for t in taints], np.bool_)

    @remembered()
    def _without(self, driver: str) -> Bools:
        """bool[N]: nodes that do not have it; none where no node says which it has."""
        said = bool(self._storage.csi_nodes)
        lacks = (said and not self._storage.has_driver(n, driver) for n in self._table.names)
        return np.fromiter(lacks, np.bool_, self._table.size)
