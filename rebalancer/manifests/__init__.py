"""Reads a cluster from files: the output of `kubectl get … -A -o json` or `-o yaml`, in any packing.

files      paths → texts: a file, a directory, standard input; gzip
documents  a text (JSON or YAML, Lists, several documents) → API objects, still as bytes
head       kind, name and times of an object, read before it is decoded
kinds      which kinds are read, and what cannot be known without each
reading    objects → Snapshot, with warnings and the clock
"""

from rebalancer.manifests.documents import Item
from rebalancer.manifests.files import ManifestError
from rebalancer.manifests.kinds import CAPTURED_AT, CAPTURED_KINDS, KUBECTL, SERVER_VERSION
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
