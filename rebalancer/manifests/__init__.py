"""A cluster read from files: what `kubectl get … -A -o json` or `-o yaml` prints, in any packing.

files      paths → texts: a file, a directory, standard input; gzip
documents  a text → API objects, still bytes: JSON or YAML, Lists, several documents
head       what every object tells of itself, before it is decoded
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
