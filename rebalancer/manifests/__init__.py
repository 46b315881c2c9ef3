"""A cluster from files, and into a file: what `kubectl get … -A -o json` or `-o yaml` writes, in any packing.

documents   a text (JSON or YAML, Lists, several documents) → API objects, still as bytes
reading     objects → Snapshot, with warnings and the clock
writing     a cluster → one file, also without its names: redacted_fields says what is kept
located     objects with the line of each field, and what the API server would refuse in them
"""

from rebalancer.manifests.documents import (
    CAPTURED_AT,
    CAPTURED_KINDS,
    KUBECTL,
    SERVER_VERSION,
    Item,
    ManifestError,
)
from rebalancer.manifests.reading import read_objects, read_snapshot

__all__ = [
    "CAPTURED_AT",
    "CAPTURED_KINDS",
    "KUBECTL",
    "SERVER_VERSION",
    "Item",
    "ManifestError",
    "read_objects",
    "read_snapshot",
]
