"""Where the cluster comes from: files, or the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rebalancer.model.snapshot import Snapshot

if TYPE_CHECKING:
    from rebalancer.kube.read import Keep


class Source(Struct, frozen=True, kw_only=True):
    """Which cluster is looked at.

    `snapshots`: files, directories or "-"; empty = the live cluster, found as kubectl finds it. `now`
    (seconds since the epoch) sets the clock; None = the snapshot's own, or the present.
    """

    snapshots: tuple[str, ...] = ()
    now: float | None = None
    kubeconfig: str = ""
    context: str = ""
    impersonate: str = ""


class Loaded(Struct, frozen=True, eq=False):
    """A snapshot, and the name of the cluster it is of ("" where a file does not tell)."""

    snapshot: Snapshot
    cluster: str = ""


def load_snapshot(source: Source) -> Loaded:
    """The cluster now, or as the files have it. Raises UserError (ManifestError, KubeError)."""
    if source.snapshots:
        return Loaded(_from_files(source.snapshots, source.now))
    return read_live(source)


def _from_files(paths: Sequence[str], now: float | None) -> Snapshot:
    from rebalancer.manifests import read_snapshot

    return read_snapshot(paths, now=now)


def read_live(source: Source, keep: Keep | None = None) -> Loaded:
    """The live cluster; `keep` is given its objects as they come. Raises KubeError."""
    from rebalancer.kube.config import ClusterOptions
    from rebalancer.kube.connection import Connection
    from rebalancer.kube.read import read_snapshot

    clock = source.now
    connection = Connection(
        ClusterOptions(kubeconfig=source.kubeconfig, context=source.context, impersonate=source.impersonate)
    )
    try:
        snapshot = read_snapshot(
            connection,
            now=time.time if clock is None else (lambda: clock),
            wait=threading.Event().wait,
            keep=keep,
        )
        return Loaded(snapshot, connection.context)
    finally:
        connection.close()
