"""Does the watch show what the API server has? Asked of the objects that the move rests on most.

An API server's watch cache can hang (kubernetes #97294, etcd #15402). Then it accepts watches, brings nothing
and ends them in time, which looks as if nothing happened; and so does a replica that lags behind the others.
So the node on which the replacement is expected, the pods there and the victim are read by themselves, which
is consistent. The watch may be believed if it has brought the newest of them as it is. This costs two small
requests, however large the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from rebalancer.engine.version import ServerVersion
from rebalancer.kube.read.head import HeadMeta
from rebalancer.model.reason import Reason, ReasonCode

_PATIENCE = 8.0
"""Seconds that the watch may need to bring it, as in `watch_age`: mostly some milliseconds."""
_INDEXED = (1, 31)
"""From this release on a consistent list of one node's pods comes from an index (KEP-2340). Before it, the
API server reads every pod from etcd for it."""
_FEW = 5000
"""Pods of a cluster in which it may do so once per eviction."""


class Reads(Protocol):
    """`rebalancer.kube.read.objects.Objects`, as far as it is needed here. Raises KubeError."""

    def newest(self, kind: str, fields: str) -> HeadMeta | None:
        """Of the objects that a field selector selects the one that changed last."""
        ...


class Watch(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here."""

    def has_come_to(self, kind: str, namespace: str, name: str, version: str) -> bool:
        """Whether the watch has brought this version of an object, or a later one."""
        ...

    def wait_for(self, condition: Callable[[], bool], patience: float, stopping: Callable[[], bool]) -> bool:
        """Waits for the watches to bring something about; whether they have."""
        ...


class SpotCheck:
    """For one plan. `server`: its version; `pods`: how many there are in the cluster; `stopping`: whether a
    stop was asked for."""

    def __init__(
        self, reads: Reads, watch: Watch, stopping: Callable[[], bool], *, server: str, pods: int
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
