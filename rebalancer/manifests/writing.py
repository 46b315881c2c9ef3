"""Writes a cluster into one file, from which `read_snapshot` reads the same snapshot; also
without its names."""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from rebalancer.admission import INJECTING, PROXIES
from rebalancer.engine.plugins.image_locality import normalized
from rebalancer.errors import UserError
from rebalancer.manifests.documents import CAPTURED_AT, CAPTURED_KINDS, REFUSED_KINDS, SERVER_VERSION, is_read
from rebalancer.manifests.redacted_fields import KINDS, Naming
from rebalancer.model.node import (
    CANDIDATE_TAINT,
    INITIALIZED,
    LEAVING_TAINTS,
    OUTDATED_TAINTS,
    STARTING_PREFIXES,
    STARTING_TAINTS,
)
from rebalancer.model.pod import DELETION_COST, REGISTRAR, cost_writer, without_own_cost
from rebalancer.model.workload import HASHES, REVISION
from rebalancer.output_file import output_file
from rebalancer.policy import owners
from rebalancer.policy.queues import QUEUES

Json = dict[str, Any]
REDACTED = "rebalancer/redacted"
"""Annotation of a List: the names in it are pseudonyms."""
_DUMPED = "kubectl.kubernetes.io/last-applied-configuration"
_BLOCK = 1 << 20
"""Bytes that are compressed at a time."""
_LEVEL = 3
"""Of gzip: twice as fast as its usual 6, for a file that is a fifth larger."""

_encode = msgspec.json.encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_annotations = msgspec.json.Decoder(dict[str, str]).decode


class Reading(Struct, frozen=True, kw_only=True):
    """What a file says of how the cluster was read.

    `captured_at` in seconds of the epoch, 0 if it is not known. `kinds` were read, and `refused` may not be
    read. All other kinds are unknown.
    """

    captured_at: float
    kinds: Iterable[str]
    refused: Iterable[str]
    server_version: str
    redacted: bool = False


def plain(objects: Iterable[Json]) -> Iterator[Json]:
    """The objects of the kinds that are read, without managed fields and last-applied-configuration.

    Without managed fields nobody could tell that a deletion cost is this tool's, so that is left out as well.
    Everything else stays as the API server sent it, environment variables included.
    """
    for obj in objects:
        if not is_read(str(obj.get("kind")), str(obj.get("apiVersion") or "")):
            continue
        metadata = without_own_cost(obj["metadata"])
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and _DUMPED in annotations:
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != _DUMPED}
        yield {**obj, "metadata": metadata}


def stripped(raw: bytes | Raw, kind: str, api_version: str) -> bytes:
    """The same for an item of a typed list, which has neither kind nor apiVersion. Its other fields are not
    decoded.
    """
    fields = _fields(raw)
    metadata = _fields(fields.get("metadata", b"{}"))
    managed = metadata.pop("managedFields", b"null")
    annotated = bytes(metadata.get("annotations", b""))
    dropped = {_DUMPED} if _DUMPED.encode() in annotated else set()
    if DELETION_COST.encode() in annotated and cost_writer(managed) is not None:
        dropped.add(DELETION_COST)
    if dropped:
        kept = {k: v for k, v in _annotations(metadata["annotations"]).items() if k not in dropped}
        metadata["annotations"] = Raw(_encode(kept))
    named = {"apiVersion": Raw(_encode(api_version)), "kind": Raw(_encode(kind))}
    return _encode({**named, **fields, **named, "metadata": metadata})


def write_snapshot(
    path: str, objects: Iterable[Json], reading: Reading, *, stdout: Callable[[], BinaryIO]
) -> int:
    """Writes a List of these objects, as `snapshot_file` does. Returns the number of objects."""
    with snapshot_file(path, stdout=stdout) as file:
        for obj in objects:
            file.add(_encode(obj))
        file.end(reading)
        return file.count


@contextmanager
def snapshot_file(path: str, *, stdout: Callable[[], BinaryIO]) -> Iterator[SnapshotFile]:
    """A List to be written, object by object; `end` completes it.

    The file is compressed if the path ends with .gz; "-" is `stdout()`. The same content gives the same
    bytes. The file appears only when it is complete, and only its owner may read it. Raises UserError if it
    cannot be written.
    """
    with output_file(path, stdout, private=True, compress=False) as raw:
        yield SnapshotFile(raw, path)


class SnapshotFile:
    """What has been written so far; `count` objects of it."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._packed = path.lower().endswith(".gz")
        self._parts: list[bytes] = [b'{"apiVersion":"v1","kind":"List","items":[']
        self._size = 0
        self._mark = (0, 0)
        self.count = 0

    def add(self, obj: bytes) -> None:
        """An object as JSON, with kind and apiVersion."""
        self._parts += (b",\n" if self.count else b"\n", obj)
        self.count += 1
        self._size += len(obj)
        if self._size >= _BLOCK:
            self._flush()

    def mark(self) -> None:
        """What follows may have to be taken back."""
        self._flush()
        self._mark = (self._file.tell() if self._file.seekable() else -1, self.count)

    def take_back(self, what: str) -> None:
        """Forgets what came since `mark`, a list of `what`. Raises UserError where it has gone into a
        pipe."""
        at, count = self._mark
        if count == self.count:
            return
        if at < 0:
            raise UserError(
                f"{self._path}: the list of {what} broke off, and what was written cannot be taken back",
                "write to a file, or try again",
            )
        self._parts, self._size, self.count = [], 0, count
        self._file.flush()
        self._file.seek(at)
        self._file.truncate()

    def end(self, reading: Reading) -> None:
        """Completes it with what is said of the reading."""
        says = {
            CAPTURED_KINDS: ",".join(sorted(reading.kinds)),
            REFUSED_KINDS: ",".join(sorted(reading.refused)),
        }
        if reading.captured_at > 0:
            time = datetime.fromtimestamp(reading.captured_at, UTC).isoformat().replace("+00:00", "Z")
            says[CAPTURED_AT] = time
        if reading.server_version:
            says[SERVER_VERSION] = reading.server_version
        if reading.redacted:
            says[REDACTED] = "true"
        # Last, as which kinds may be read is known at the end only.
        self._parts.append(b'\n],"metadata":' + _encode({"annotations": says}) + b"}\n")
        self._flush()

    def _flush(self) -> None:
        if not self._parts:
            return
        block = b"".join(self._parts)
        # A gzip file may have any number of members, so that one can be taken back. No time in their headers:
        # the same cluster gives the same file.
        self._file.write(gzip.compress(block, _LEVEL, mtime=0) if self._packed else block)
        self._parts, self._size = [], 0


# Redacts objects: leaves out what no plan depends on, and replaces the names in the rest by pseudonyms.
#
# `redacted_fields` lists the fields that are kept. Every other field is left out: environment variables,
# commands, other annotations, managed fields. The plan for the redacted cluster is the plan for the real
# one with the pseudonyms in place of the names.
#
# Kept as they are: well-known label keys, taint keys, names and resources (`KNOWN_KEYS`), names of CSI
# drivers, provisioners and schedulers, the kinds of owners (not the groups of unknown ones), quantities,
# times and host ports.

# Keys and names of Kubernetes and of widely used projects. They do not reveal whose cluster it is.


def _under(domain: str, *names: str) -> set[str]:
    return {f"{domain}/{name}" for name in names}


KNOWN_KEYS = frozenset(
    {"app", "k8s-app", "job-name", "controller-uid", "metadata.name"}
    | {*HASHES, "pod-template-generation", REVISION}
    | {
        *LEAVING_TAINTS,
        *OUTDATED_TAINTS,
        *STARTING_TAINTS,
        CANDIDATE_TAINT,
        *owners.LABELS,
        *QUEUES,
        *INJECTING,
    }
    | _under("kubernetes.io", "arch", "os", "hostname", "metadata.name")
    | _under("beta.kubernetes.io", "arch", "os", "instance-type")
    | _under("topology.kubernetes.io", "zone", "region")
    | _under("failure-domain.beta.kubernetes.io", "zone", "region")
    | _under("node.kubernetes.io", "instance-type", "windows-build", "exclude-from-external-load-balancers")
    | _under("node.kubernetes.io", "not-ready", "unreachable", "unschedulable", "out-of-service")
    | _under("node.kubernetes.io", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable")
    | _under("node.cloudprovider.kubernetes.io", "uninitialized", "shutdown")
    | _under("node-role.kubernetes.io", "control-plane", "master", "worker")
    | _under("app.kubernetes.io", "name", "instance", "version", "component", "part-of", "managed-by")
    | _under("apps.kubernetes.io", "pod-index")
    | _under("statefulset.kubernetes.io", "pod-name")
    | _under("batch.kubernetes.io", "job-name", "controller-uid", "job-completion-index")
    | _under("topology.ebs.csi.aws.com", "zone")
    | _under("topology.gke.io", "zone")
    | _under("topology.disk.csi.azure.com", "zone")
    | _under("karpenter.sh", "capacity-type", "initialized", "nodepool", "provisioner-name")
    | _under("eks.amazonaws.com", "nodegroup")
    | _under("cloud.google.com", "gke-nodepool")
    | _under("kubernetes.azure.com", "agentpool")
)
PLAIN_VALUES = frozenset(
    {"kubernetes.io/os", "kubernetes.io/arch", INITIALIZED, *INJECTING} - {"istio.io/rev"}
)
"""Keys whose values do not reveal whose cluster it is."""
KNOWN_NAMES = (
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "system-cluster-critical",
    "system-node-critical",
    *PROXIES,
    REGISTRAR,
)
"""Namespaces, priority classes and (parts of names of) containers of many clusters that rules name."""
_KNOWN_VENDORS = frozenset(
    {"nvidia.com", "amd.com", "intel.com", "gpu.intel.com", "habana.ai", "google.com", "aws.amazon.com"}
    | {"vpc.amazonaws.com", "xilinx.com", "rdma", "devices.kubevirt.io", "smarter-devices"}
)


def known_beginning(key: str) -> tuple[str, str]:
    """A key's beginning that rules go by ("" if it has none), and the rest, which may be anybody's."""
    found = next((p for p in STARTING_PREFIXES if key.startswith(p)), "")
    return found, key.removeprefix(found)


def known_resource(name: str) -> bool:
    """Whether the name of a resource belongs to Kubernetes or to a well-known vendor."""
    domain, slash, last = name.removeprefix("requests.").rpartition("/")
    if domain == "count":  # of a quota: count/pods, count/deployments.apps
        return "." not in last or last.endswith((".apps", ".batch", ".policy", ".k8s.io"))
    return not slash or domain in _KNOWN_VENDORS or domain.endswith("kubernetes.io")


# Pseudonyms for names that keep what a plan depends on: equality, order, and how names are composed.
#
# A name is split into words, numbers and separators (`-`, `.`, `/`). Separators stay. A word becomes
# another word that has the same place in the alphabetical order of all words. A number keeps its length,
# and each digit becomes its rank among the digits that follow the same beginning, like prefix-preserving
# anonymisation of addresses. So ordinals from 0 upwards stay as they are, node-2 stays before node-10, and
# the pseudonym of `web-7c9-x2k` still begins with that of its ReplicaSet. Two orders are kept: as plain
# text, and with numbers compared as numbers.

_PARTS = re.compile(r"[0-9]+|[-./]+|[^-./0-9]+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(text: str) -> Iterator[str]:
    """The words of a name, without numbers and separators."""
    return (p for p in _PARTS.findall(text) if not p[0].isascii() or not (p[0].isdecimal() or p[0] in "-./"))


class Pseudonyms:
    """The pseudonym of every name in `names`.

    Words that occur in `kept` stay as they are in all names. `joined`: names that consist of two other names
    and a hyphen; their pseudonym is composed of the pseudonyms of the two.
    """

    def __init__(
        self,
        names: Iterable[str],
        kept: Iterable[str] = (),
        joined: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self._joined = dict(joined or {})
        known = {*names, *(part for parts in self._joined.values() for part in parts)}
        anchors = {w for text in kept for w in words(text)}
        self._words = _renamed({w for n in known for w in words(n)}, anchors)
        self._digits: dict[str, set[str]] = {}
        for name in known:
            for at, ch in _digits(name):
                self._digits.setdefault(name[:at], set()).add(ch)
        self._memo: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """The pseudonym of one of `names`. Raises KeyError for any other name."""
        found = self._memo.get(name)
        if found is None:
            found = self._memo[name] = self._of(name)
        return found

    def _of(self, name: str) -> str:
        if name in self._joined:
            first, second = self._joined[name]
            return f"{self(first)}-{self(second)}"
        parts, at = [], 0
        for part in _PARTS.findall(name):
            if part[0] in "-./":
                parts.append(part)
            elif part.isascii() and part.isdecimal():
                parts.append("".join(self._digit(name[: at + i], d) for i, d in enumerate(part)))
            else:
                parts.append(self._words[part])
            at += len(part)
        return "".join(parts)

    def _digit(self, before: str, digit: str) -> str:
        """The rank of a digit among the digits that follow `before`. Only a leading 0 becomes a leading 0."""
        known = sorted(self._digits[before])
        rank = known.index(digit)
        if not (before and before[-1].isascii() and before[-1].isdecimal()):
            rank = 0 if digit == "0" else rank + ("0" not in known)
        return str(rank)


def _digits(name: str) -> Iterator[tuple[int, str]]:
    return ((i, ch) for i, ch in enumerate(name) if ch.isascii() and ch.isdecimal())


def _renamed(found: set[str], anchors: set[str]) -> dict[str, str]:
    """The pseudonym of each word, in the order of the words. Anchors stay; the others get names between
    them."""
    renamed: dict[str, str] = {}
    gap: list[str] = []
    below = ""
    for word in sorted(found | anchors):
        if word not in anchors:
            gap.append(word)
            continue
        renamed |= _between(gap, below, word)
        renamed[word] = below = word
        gap = []
    return renamed | _between(gap, below, "")


def _between(gap: list[str], below: str, above: str) -> dict[str, str]:
    """Pseudonyms in ascending order, above one word and (unless it is "") below another."""
    lead = _lead(below, above)
    width, count = 1, len(_LETTERS)
    while count < len(gap):
        width, count = width + 1, count * len(_LETTERS)
    return {word: lead + _letters(i, width) for i, word in enumerate(gap)}


def _letters(number: int, width: int) -> str:
    text = ""
    for _ in range(width):
        number, digit = divmod(number, len(_LETTERS))
        text = _LETTERS[digit] + text
    return text


def _lead(below: str, above: str) -> str:
    """A prefix such that every word with it sorts between two words, as far as letters allow."""
    same = 0
    while same < min(len(below), len(above)) and below[same] == above[same]:
        same += 1
    low = below[same] if same < len(below) else ""
    high = above[same] if same < len(above) else chr(ord("z") + 1)
    middle = [c for c in _LETTERS if low < c < high]
    if middle:
        return below[:same] + middle[len(middle) // 2]
    return below + "a"


_ZONES = "__"
"""Separator between the zones of a volume that has several."""


def redact(objects: Callable[[], Iterable[Json]]) -> Iterator[Json]:
    """The redacted objects of a cluster, only of kinds that are read. `objects` is called twice."""
    names = learn(objects())
    for obj in objects():
        redacted = of_object(obj, names)
        if redacted is not None:
            yield redacted


def learn(objects: Iterable[Json]) -> Naming:
    """The pseudonyms for all these objects."""
    seen = _Collecting()
    for obj in objects:
        if of_object(obj, seen.unchanged) is not None:
            seen.put_together(obj)
    return seen.pseudonyms()


def of_object(obj: Json, naming: Naming) -> Json | None:
    """One object with its names replaced; None if its kind is not read."""
    kind, api_version = str(obj.get("kind") or ""), str(obj.get("apiVersion") or "")
    if not is_read(kind, api_version):
        return None
    if "managedFields" in obj["metadata"]:
        obj = {**obj, "metadata": without_own_cost(obj["metadata"])}
    found: Json = {"apiVersion": api_version, "kind": kind, **(KINDS[kind](obj, naming) or {})}
    return found


def _mapping(value: Any) -> Json:
    """The value, or nothing where an object is malformed."""
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _Collecting:
    """Returns every name unchanged, and collects it."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._uids: set[str] = set()
        self._wanted: set[str] = set()
        self._keys: set[str] = set()
        self._joined: dict[str, tuple[str, str]] = {}
        self._sets: list[tuple[str, str]] = []
        self.unchanged = Naming(
            self._name, self._uid, self._key, self._value, self._resource, self._image, lambda image: image
        )

    def _name(self, text: str) -> str:
        self._names.add(text)
        return text

    def _uid(self, text: str) -> str:
        self._uids.add(text)
        return text

    def _key(self, text: str) -> str:
        if text in KNOWN_KEYS:
            self._keys.add(text)
        else:
            self._names.add(known_beginning(text)[1])
        return text

    def _value(self, key: str, text: str) -> str:
        if key not in PLAIN_VALUES:
            self._names.update(text.split(_ZONES))
        return text

    def _resource(self, text: str) -> str:
        (self._keys if known_resource(text) else self._names).add(text)
        return text

    def _image(self, text: str) -> str:
        self._wanted.add(normalized(text))
        return text

    def put_together(self, obj: Json) -> None:
        """Collects names that controllers compose of two others: those of claims and of pods with an
        ordinal."""
        name, spec = str(obj["metadata"]["name"]), _mapping(obj.get("spec"))
        if obj["kind"] == "Pod":
            for volume in map(_mapping, _listed(spec.get("volumes"))):
                if volume.get("ephemeral") is not None:
                    self._joined[f"{name}-{volume.get('name')}"] = name, str(volume.get("name"))
        elif obj["kind"] == "StatefulSet":
            first, replicas = _mapping(spec.get("ordinals")).get("start"), spec.get("replicas")
            last = (first if isinstance(first, int) else 0) + (replicas if isinstance(replicas, int) else 1)
            self._names.update(f"{name}-{i}" for i in range(last))
            for claim in map(_mapping, _listed(spec.get("volumeClaimTemplates"))):
                self._sets.append((str(_mapping(claim.get("metadata")).get("name")), name))

    def pseudonyms(self) -> Naming:
        """What replaces each of the names."""
        numbered: dict[str, list[str]] = defaultdict(list)
        for name in self._names:
            stem, _, number = name.rpartition("-")
            if stem and number.isdecimal():
                numbered[stem].append(number)
        for claim, owner in self._sets:
            for number in numbered.get(f"{claim}-{owner}", ()):
                self._joined[f"{claim}-{owner}-{number}"] = claim, f"{owner}-{number}"
        pseudonyms = Pseudonyms(
            self._names | set(KNOWN_NAMES) | set(self._joined), (*self._keys, *KNOWN_NAMES), self._joined
        )
        return _pseudonymous(pseudonyms, self._uids, self._wanted)


def _pseudonymous(name: Callable[[str], str], uids: Iterable[str], images: Iterable[str]) -> Naming:
    """Replaces every name by its pseudonym; the order of uids is kept, and so is what is well known."""
    of_uid = {uid: f"00000000-0000-4000-8000-{i:012x}" for i, uid in enumerate(sorted(uids), 1)}
    of_image = {image: f"image-{i}:v" for i, image in enumerate(sorted(images), 1)}

    def key(text: str) -> str:
        beginning, rest = known_beginning(text)
        return text if text in KNOWN_KEYS else beginning + name(rest)

    def value(key: str, text: str) -> str:
        """Each of several zones in one value gets its pseudonym."""
        return text if key in PLAIN_VALUES else _ZONES.join(map(name, text.split(_ZONES)))

    return Naming(
        name,
        of_uid.__getitem__,
        key,
        value,
        lambda text: text if known_resource(text) else name(text),
        lambda text: of_image[normalized(text)],
        lambda text: of_image.get(normalized(text)),
    )
