"""A cluster, live or from files, as a snapshot together with the objects it was read from."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from rebalancer.model.snapshot import Snapshot
from rebalancer.runtime.source import Source, read_live


class Captured(Struct, frozen=True, eq=False):
    """`objects` gives the API objects anew each time it is called."""

    snapshot: Snapshot
    objects: Callable[[], Iterator[dict[str, Any]]]


def capture(source: Source) -> Captured:
    """Reads the cluster that `source` means. Raises UserError (ManifestError, KubeError)."""
    if source.snapshots:
        return _files(source)
    from rebalancer.kube.capture import Capture

    kept = Capture()
    loaded = read_live(source, kept)
    return Captured(loaded.snapshot, kept.objects)


def _files(source: Source) -> Captured:
    from rebalancer.manifests import read_objects, read_snapshot

    # Standard input can be read once only.
    piped = sys.stdin.buffer.read() if "-" in source.snapshots else b""
    snapshot = read_snapshot(source.snapshots, now=source.now, stdin=io.BytesIO(piped))
    return Captured(snapshot, lambda: read_objects(source.snapshots, io.BytesIO(piped)))
