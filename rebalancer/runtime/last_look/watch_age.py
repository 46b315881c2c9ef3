"""Is the watch of nodes and pods known to be up to date?

A connection that is half open is silent for minutes before it is found out, and the cluster can be another
one by then. So the kinds on which the room question rests are followed closely while evictions are under way
(`kube.watch.reflector`), and nothing is evicted unless they are known to be a few seconds old at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from rebalancer.engine.version import ServerVersion
from rebalancer.kube.lists import HeadMeta
from rebalancer.kube.reading import Objects
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import Reason, ReasonCode

_KINDS = ("Node", "Pod")
_BESIDE = ("PodDisruptionBudget", "ResourceQuota", "VerticalPodAutoscaler")
"""Kinds by which a plan waits and goes on, or that size a replacement. What the first two say of one pod
is read just before it goes, or kept by the API server; the last a cluster need not have. So nothing waits for
them; but a dead connection is found out as soon."""
_WITHIN = 5.0
"""Seconds that the watch may be behind the API server; a close watch confirms it every two or so."""
_PATIENCE = 8.0
"""Seconds that are waited for it: a watch that was found dead is opened anew within them."""
_AHEAD = 30.0
"""Seconds after a look for which the watch goes on to be close: the next look is mostly not far."""


class WatchAge:
    """Made when a cycle begins. The first answer rests on what was confirmed after that, each further one on
    what was confirmed within seconds. `stopping`: whether a stop was asked for."""

    def __init__(self, watch: WatchCache, stopping: Callable[[], bool]) -> None:
        self._watch = watch
        self._stopping = stopping
        self._made = watch.monotonic()

    def begin(self) -> None:
        """Begins to follow closely: some time before the first question, which then need not wait."""
        self._watch.follow_closely((*_KINDS, *_BESIDE), _AHEAD)

    def why_not(self) -> Reason | None:
        """What is not known to be up to date; None if all is. Waits for some seconds at most."""
        self.begin()
        as_of = max(self._made, self._watch.monotonic() - _WITHIN)
        late = self._watch.wait_current(_KINDS, as_of, _PATIENCE, self._stopping)
        if not late:
            return None
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the watch is behind: {late}",
            {},
            "look at the network and the proxies between here and the API server",
        )


# Does the watch show what the API server has? Asked of the objects that the move rests on most.
#
# An API server's watch cache can hang (kubernetes #97294, etcd #15402). Then it accepts watches, brings
# nothing and ends them in time, which looks as if nothing happened; and so does a replica that lags behind
# the others. So the node on which the replacement is expected, the pods there and the victim are read by
# themselves, which is consistent. The watch may be believed if it has brought the newest of them as it is.
# This costs two small requests, however large the cluster.

"""Seconds that the watch may need to bring it, as in `watch_age`: mostly some milliseconds."""
_INDEXED = (1, 31)
"""From this release on a consistent list of one node's pods comes from an index (KEP-2340). Before it, the
API server reads every pod from etcd for it."""
_FEW = 5000
"""Pods of a cluster in which it may do so once per eviction."""


class SpotCheck:
    """For one plan. `server`: its version; `pods`: how many there are in the cluster; `stopping`: whether a
    stop was asked for."""

    def __init__(
        self, reads: Objects, watch: WatchCache, stopping: Callable[[], bool], *, server: str, pods: int
    ) -> None:
        self._reads = reads
        self._watch = watch
        self._stopping = stopping
        version = ServerVersion.parse(server)
        self._pods_too = (bool(version.text) and version.minor >= _INDEXED) or pods <= _FEW

    def node(self, name: str) -> HeadMeta | None:
        """A node; None if it is gone. Raises KubeError."""
        return self._reads.newest("Node", f"metadata.name={name}")

    def pod_on(self, node: str) -> HeadMeta | None:
        """The pod on a node that changed last; None if there is none, or it costs too much to ask."""
        return self._reads.newest("Pod", f"spec.nodeName={node}") if self._pods_too else None

    def watched(self, kind: str, namespace: str, name: str) -> str:
        """The version of an object that the watch has; "" if it has none."""
        return self._watch.version_of(kind, namespace, name)

    def behind(self, node: HeadMeta, pods: Collection[HeadMeta]) -> bool:
        """Whether the watch has not brought one of these objects, which were read by themselves."""
        read = [("Node", node), *(("Pod", p) for p in pods)]
        seen = (self._watch.has_come_to(k, o.namespace, o.name, o.resource_version) for k, o in read)
        return not all(seen)

    def why_not(self, node: HeadMeta, pods: Collection[HeadMeta]) -> Reason | None:
        """Why the watch cannot be believed; None if it has brought them. Waits for it for some seconds."""
        if self._watch.wait_for(lambda: not self.behind(node, pods), _PATIENCE, self._stopping):
            return None
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the watch is behind: it has not brought what the API server has of node {node.name} or of pods",
            {},
            "does the watch cache of an API server hang, or a replica of etcd lag?",
        )
