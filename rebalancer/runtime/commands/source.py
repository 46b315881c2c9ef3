"""Where the cluster comes from: files, or the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from rebalancer.model.snapshot import Snapshot
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.snapshot_checks import check_readable, warned

if TYPE_CHECKING:
    from rebalancer.kube.client.config import ClusterOptions
    from rebalancer.kube.client.connection import Connection
    from rebalancer.kube.read.snapshot import Keep
    from rebalancer.kube.resources import Resource


class Source(Struct, frozen=True, kw_only=True):
    """Which cluster is looked at.

    `snapshots`: files, directories or "-"; empty = the live cluster, found as kubectl finds it. `now`
    (seconds since the epoch) sets the clock; None = the snapshot's own, or the present. `namespaces`: the
    only ones that are read of a live cluster; empty = all.
    """

    snapshots: tuple[str, ...] = ()
    now: float | None = None
    kubeconfig: str = ""
    context: str = ""
    impersonate: str = ""
    groups: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def clock(self) -> float:
        """The time that is to be taken for now, of a live cluster."""
        return time.time() if self.now is None else self.now


class Loaded(Struct, frozen=True, eq=False):
    """A snapshot, and the name of the cluster it is of ("" where a file does not tell)."""

    snapshot: Snapshot
    cluster: str = ""


class _Counted:
    """Tells how many objects have come; a list that begins anew is counted anew."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._come: dict[str, int] = {}

    def begin(self, resource: Resource) -> None:
        self._come[resource.kind] = 0

    def add(self, resource: Resource, items: Sequence[Raw]) -> None:
        self._come[resource.kind] += len(items)
        self._tell(f"{sum(self._come.values()):,} objects, {resource.plural}")


def load_snapshot(source: Source, tell: Callable[[str], None] = lambda _: None) -> Loaded:
    """The cluster now, or as the files have it. `tell` is called as it is read, with how far that has come.

    Raises UserError (ManifestError, KubeError), also where too much of it could not be read.
    """
    if source.snapshots:
        loaded = Loaded(_from_files(source.snapshots, source.now))
    else:
        loaded = read_live(source, _Counted(tell))
    check_readable(loaded.snapshot)
    return loaded


def _from_files(paths: Sequence[str], now: float | None) -> Snapshot:
    from rebalancer.manifests import read_snapshot

    return read_snapshot(paths, now=now)


def read_live(source: Source, keep: Keep | None = None) -> Loaded:
    """The live cluster, perhaps some moments old, for those who evict nothing; `keep` is given its objects as
    they come. Raises KubeError."""
    from rebalancer.kube.read.snapshot import read_snapshot
    from rebalancer.kube.read.transfer import ReadOptions

    with connected(source) as connection:
        clock = SystemClock(server=connection.time)
        snapshot = read_snapshot(
            connection,
            now=clock.now if source.now is None else source.clock,
            wait=threading.Event().wait,
            options=ReadOptions(may_be_old=True, namespaces=source.namespaces),
            keep=keep,
        )
        doubt = clock.doubt() if source.now is None else ""
        return Loaded(warned(snapshot, doubt), connection.context)


def cluster_options(source: Source) -> ClusterOptions:
    """Which cluster to connect to, and as whom."""
    from rebalancer.kube.client.config import ClusterOptions

    return ClusterOptions(
        kubeconfig=source.kubeconfig,
        context=source.context,
        impersonate=source.impersonate,
        impersonate_groups=source.groups,
    )


@contextmanager
def connected(source: Source) -> Iterator[Connection]:
    """A connection to the live cluster. Raises ConfigurationError."""
    from rebalancer.kube.client.connection import Connection

    connection = Connection(cluster_options(source))
    try:
        yield connection
    finally:
        connection.close()
