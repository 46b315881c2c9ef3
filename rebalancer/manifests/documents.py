"""A text → API objects, each still JSON bytes.

JSON is never decoded as a whole: a List becomes a list of `msgspec.Raw`, which are views into the text.
Several JSON documents in a row (`kubectl get --watch -o json`) are split where the decoder reports the next
one. YAML is decoded and encoded as JSON again, so that one decoder reads both.
"""

from __future__ import annotations

import gzip
import io
import mmap
import os
import re
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, TypeAlias

import msgspec
import yaml
from msgspec import Meta, Raw, Struct

from rebalancer.errors import UserError
from rebalancer.model.decode import without_nulls
from rebalancer.model.node import Node
from rebalancer.model.snapshot import CONSEQUENCES, KINDS, missed
from rebalancer.yaml import read_every_yaml

# Paths → texts: a file, every manifest of a directory, or standard input; each may be gzipped.

Buffer: TypeAlias = bytes | bytearray | mmap.mmap
SUFFIXES = (".json", ".yaml", ".yml")
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\xef\xbb\xbf": "utf-8"}


class ManifestError(UserError):
    """A file cannot be read as a cluster. The message begins with the file and the position, if that is
    known."""


class Text(Struct, frozen=True, eq=False):
    """The uncompressed content of a file, in UTF-8. `name` is how errors name it ("stdin" for `-`). `mark`:
    the byte order mark that it begins with."""

    name: str
    data: Buffer
    mark: bytes = b""

    def encoded(self, content: str) -> bytes:
        """Another content, in the encoding of this one."""
        encoding = _BYTE_ORDER_MARKS.get(self.mark, "utf-8")
        return self.mark + content.encode(encoding)


def texts(paths: Iterable[str | os.PathLike[str]], stdin: BinaryIO | None = None) -> Iterator[Text]:
    """The texts of files and directories, each read when it is asked for.

    Directories are read recursively, in the order of names. `-` is `stdin` (default: that of the process).
    Raises ManifestError.
    """
    for path in paths:
        if not os.fspath(path):
            raise ManifestError("the name of a file is empty", "is a variable unset? . is this directory")
        if os.fspath(path) == "-":
            yield _stream("stdin", stdin if stdin is not None else sys.stdin.buffer)
            continue
        for file in _files(Path(path)):
            yield _read(file)


def _files(path: Path) -> list[Path]:
    """The path itself, or the manifests below it. Hidden entries are left out: in a mounted ConfigMap they
    are the same files a second time."""
    if not path.is_dir():
        return [path]
    if not (found := manifests_in(path)):
        raise ManifestError(
            f"{path}: no manifest in this directory",
            f"it is searched for {', '.join(SUFFIXES)} and their .gz",
        )
    return found


def manifests_in(path: Path) -> list[Path]:
    """The manifests below a directory, in the order of names; hidden entries are left out."""
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += (
            Path(folder, n)
            for n in sorted(names)
            if not n.startswith(".") and n.lower().removesuffix(".gz").endswith(SUFFIXES)
        )
    return found


def _read(file: Path) -> Text:
    try:
        with file.open("rb", buffering=0) as stream:
            if not file.is_file() or not os.fstat(stream.fileno()).st_size:  # a pipe: <(kubectl get …)
                return _stream(str(file), stream)
            # Memory-mapped, so that the gigabyte of a large cluster is not copied into this process.
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            return _utf8(str(file), _unpacked(str(file), stream) if data[:2] == _GZIP else data)
    except OSError as e:
        raise ManifestError(f"{file}: {(e.strerror or str(e)).lower()}") from e


def _stream(name: str, stream: IO[bytes] | io.RawIOBase) -> Text:
    """Reads standard input or a pipe as a whole, because it cannot seek."""
    data = stream.read()
    return _utf8(name, _unpacked(name, io.BytesIO(data)) if data.startswith(_GZIP) else data)


def _unpacked(name: str, stream: IO[bytes] | io.RawIOBase) -> bytearray:
    """The content of a gzip stream. It is recognised by its first bytes, not by the file's name."""
    data = bytearray()  # one growing buffer: joining chunks would hold a large cluster twice
    try:
        with gzip.GzipFile(fileobj=stream) as unpacked:
            while chunk := unpacked.read(_CHUNK):
                data += chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        what = str(e).rstrip(".").lower()
        raise ManifestError(f"{name}: bad gzip after {len(data)} bytes of content: {what}") from e
    return data


def _utf8(name: str, data: Buffer) -> Text:
    """The text as UTF-8 without byte order mark. PowerShell's `>` writes UTF-16."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data[:4].startswith(mark):
            try:
                return Text(name, bytes(data[len(mark) :]).decode(encoding).encode(), mark)
            except UnicodeDecodeError as e:
                raise ManifestError(f"{name}: byte {e.start + len(mark)} is no {encoding}") from e
    return Text(name, data)


_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_AT_BYTE = re.compile(r" \(byte (\d+)\)$")
_NOT_MANIFEST = "Kubernetes objects as JSON or YAML are expected: was `-o json` left out?"
_NO_RAW = Raw(b"")
_LARGE, _MOST_REPEATED = 10_000, 100
"""YAML with aliases is refused if it stands for more than so many lists and objects, and more than so many
times those it has."""


class Item(Struct, frozen=True, eq=False, gc=False):
    """One object of a text; `raw` is its JSON.

    `kind` and `api_version` are set for items of a typed list (PodList → Pod), which lack these fields
    themselves. For all other objects they are "".
    """

    raw: bytes | Raw
    kind: str = ""
    api_version: str = ""


class Document(Struct, frozen=True, eq=False):
    """One document: a single object or a List. `name` and `index` (from 1) say where it stands.

    `items` are handed out once, so that what was read can go. `list_kind` is "" for a single object.
    `annotations` are those of the List.
    """

    name: str
    index: int
    items: Iterator[Item]
    list_kind: str = ""
    annotations: dict[str, str] = {}


class _ListMeta(Struct):
    annotations: dict[str, str] | None = None


class _Wire(Struct, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    metadata: Raw = _NO_RAW
    items: list[Raw] | None = None


_decode_wire = msgspec.json.Decoder(_Wire).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


def documents(text: Text) -> Iterator[Document]:
    """The documents of a text. Raises ManifestError with file, line and column if it is neither JSON nor
    YAML."""
    start = text.data[:4096].lstrip()[:1]
    if start not in (b"{", b"["):
        yield from _yaml_documents(text)
        return
    try:
        yield from _json_documents(text)
    except ManifestError:
        if not text.name.lower().removesuffix(".gz").endswith((".yaml", ".yml")):
            raise
        yield from _yaml_documents(text)  # flow style


def _json_documents(text: Text) -> Iterator[Document]:
    whole = memoryview(text.data)
    start, index = 0, 1
    while start < len(whole):
        end, document = _next_json(text, whole, start, index)
        yield document
        start, index = end, index + 1


def _next_json(text: Text, whole: memoryview, start: int, index: int) -> tuple[int, Document]:
    """The document at `start`, and the position of the next one (or of the text's end)."""
    end = len(whole)
    while True:
        try:
            return end, _document(text.name, index, whole[start:end])
        except msgspec.DecodeError as e:
            if (trailing := _TRAILING.search(str(e))) is None:
                raise _malformed(text, start, str(e)) from e
            # The position is the next document's first byte, or (msgspec 0.19–0.22) the one after it.
            end = min(start + int(trailing.group(1)), end - 1)
        except UnicodeDecodeError as e:
            raise ManifestError(f"{text.name}: a string is not valid UTF-8: {e.reason}") from e
        except RecursionError as e:
            raise ManifestError(
                f"{text.name}: lists or objects in it are nested too deeply to be read"
            ) from e


def _document(name: str, index: int, data: memoryview | bytes) -> Document:
    """One JSON document. Raises msgspec.DecodeError."""
    try:
        wire = _decode_wire(data)
    except msgspec.ValidationError:
        # Neither a valid List nor a valid object. Its items, or the object itself, are judged one by one.
        raw = _decode_raw(data)
        if bytes(memoryview(raw)[:1]) == b"[":
            return Document(name, index, _each(msgspec.json.decode(raw, type=list[Raw])), "List")
        return Document(name, index, _each([raw]))
    kind = wire.kind or ""
    if wire.items is None or (kind and not kind.endswith("List")):
        if kind.endswith("List"):
            return Document(name, index, _each([]), kind, _annotations(wire.metadata))
        return Document(name, index, _each([_decode_raw(data)]))
    typed = kind.removesuffix("List")
    items = _each(wire.items, typed, wire.api_version or "") if typed else _each(wire.items)
    return Document(name, index, items, kind or "List", _annotations(wire.metadata))


def _each(raws: list[Raw], kind: str = "", api_version: str = "") -> Iterator[Item]:
    """The items in their order; the list is empty afterwards."""
    raws.reverse()
    while raws:
        yield Item(raws.pop(), kind, api_version)


def _annotations(metadata: Raw) -> dict[str, str]:
    try:
        return msgspec.json.decode(metadata, type=_ListMeta).annotations or {}
    except msgspec.DecodeError:
        return {}


def _malformed(text: Text, start: int, message: str) -> ManifestError:
    """The decoder's message, with line and column instead of its byte offset."""
    what = message.removeprefix("JSON is malformed: ")
    at = _AT_BYTE.search(what)
    offset = start + int(at.group(1)) if at else len(text.data)
    before = bytes(text.data[:offset])
    line, column = before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1
    what = _AT_BYTE.sub("", what)
    if what == "Input data was truncated":
        what = "it ends in the middle of a document; was it copied or written completely?"
    return ManifestError(f"{text.name}:{line}:{column}: not valid JSON: {what}")


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Decodes YAML as Kubernetes does: a date is a string."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _yaml_documents(text: Text) -> Iterator[Document]:
    with yaml_errors(text.name):
        for index, value in enumerate(read_every_yaml(bytes(text.data), Loader), 1):
            if value is None:
                continue
            if not isinstance(value, dict | list):
                raise ManifestError(f"{text.name}: no Kubernetes object in it", _NOT_MANIFEST)
            refuse_bomb(text.name, value)
            yield _document(text.name, index, msgspec.json.encode(value))


def refuse_bomb(name: str, value: Any) -> None:
    """Raises ManifestError for YAML whose aliases, written out, are many times what the file holds."""
    distinct: dict[int, int] = {}
    whole = _written_out(value, distinct)
    if whole > _LARGE and whole > _MOST_REPEATED * len(distinct):
        raise ManifestError(
            f"{name}: its aliases (*name) stand for {whole:,} values, and {len(distinct):,} are written down",
            "no manifest is like that; write out what is meant",
        )


def _written_out(value: Any, known: dict[int, int]) -> int:
    """How many lists and objects there are, an aliased one each time; each is walked once."""
    if not isinstance(value, dict | list):
        return 0
    if (found := known.get(id(value))) is None:
        inner = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_written_out(v, known) for v in inner)
    return found


@contextmanager
def yaml_errors(name: str) -> Iterator[None]:
    """Raises every error in YAML as ManifestError, with line and column if they are known."""
    try:
        yield
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        what = e.problem or e.context or "malformed"
        raise ManifestError(f"{name}{at}: not valid YAML: {what}", _NOT_MANIFEST) from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ManifestError(f"{name}: not valid YAML: {' '.join(str(e).split())}", _NOT_MANIFEST) from e
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as e:
        raise ManifestError(f"{name}: YAML that JSON cannot express: {e}") from e


# The head of an object: its kind, its name, and the times in it.

Time = Annotated[datetime, Meta(tz=True)] | None
"""A time with its zone. One without would mean different times on different machines."""


class HeadMeta(Struct, rename="camel", gc=False):
    """The name and the times in the metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: Time = None
    deletion_timestamp: Time = None
    deletion_grace_period_seconds: int | None = None


class _Condition(Struct, rename="camel", gc=False):
    last_transition_time: Time = None
    last_heartbeat_time: Time = None


class _Status(Struct, rename="camel", gc=False):
    start_time: Time = None
    conditions: list[_Condition] | None = None


class Head(Struct, rename="camel", gc=False):
    """Kind, name and times of an object."""

    kind: str | None = None
    api_version: str | None = None
    metadata: HeadMeta | None = None
    status: _Status | None = None


_decode = msgspec.json.Decoder(Head).decode


def head_of(raw: bytes | Raw) -> Head:
    """The head of an object's JSON. An explicit null means the same as an absent field.

    Raises msgspec.ValidationError that names the field, or ValueError if the text is not UTF-8.
    """
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        plain = msgspec.json.decode(raw)
        stripped = without_nulls(plain)
        if stripped == plain:
            raise
        return _decode(msgspec.json.encode(stripped))


def newest(head: Head) -> datetime | None:
    """The latest time in the object at which it was written or changed; None if there is none."""
    times = []
    if (meta := head.metadata) is not None:
        times.append(meta.creation_timestamp)
        if (deleted := meta.deletion_timestamp) is not None:
            # The API server sets it to the end of the grace period, which may be hours ahead.
            grace = meta.deletion_grace_period_seconds or 0
            with suppress(OverflowError):  # a grace period of a billion years
                times.append(deleted - timedelta(seconds=grace))
    if (status := head.status) is not None:
        times.append(status.start_time)
        for condition in status.conditions or ():
            times += (condition.last_transition_time, condition.last_heartbeat_time)
    latest: datetime | None = None
    for time in times:
        if time is not None and (latest is None or time > latest):
            latest = time
    return latest


# The kinds that are read from files, their API groups, and which of them are missing in a file.

CAPTURED_AT = "rebalancer/captured-at"
"""Annotation of a List: when the cluster was read (RFC 3339). A plan from that file computes ages from it."""
CAPTURED_KINDS = "rebalancer/kinds"
"""Annotation of a List: the kinds that were read, comma-separated. If one of them has no object in the file,
the cluster has none."""
REFUSED_KINDS = "rebalancer/refused-kinds"
"""Annotation of a List: the kinds that could not be listed, comma-separated; "" for none. Files of earlier
versions lack it; there it is every kind that is not in CAPTURED_KINDS."""
SERVER_VERSION = "rebalancer/server-version"
"""Annotation of a List: the API server's gitVersion."""

RESOURCES = (
    "nodes,pods,namespaces,services,replicationcontrollers,replicasets,deployments,statefulsets,"
    "controllerrevisions,daemonsets,jobs,poddisruptionbudgets,persistentvolumes,persistentvolumeclaims,"
    "storageclasses,csinodes,volumeattachments,csidrivers,csistoragecapacities,priorityclasses,"
    "horizontalpodautoscalers,resourcequotas,runtimeclasses"
)
KUBECTL = f"kubectl get {RESOURCES} -A -o json > cluster.json"
"""The command that writes a file with everything that is read, but for kinds that a cluster need not have."""

_GROUPS = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision"), "apps"),
    "Job": "batch",
    "PodDisruptionBudget": "policy",
    "PriorityClass": "scheduling.k8s.io",
    "HorizontalPodAutoscaler": "autoscaling",
    **dict.fromkeys(
        ("StorageClass", "CSINode", "VolumeAttachment", "CSIDriver", "CSIStorageCapacity"), "storage.k8s.io"
    ),
    **dict.fromkeys(("NodeClaim", "NodePool"), "karpenter.sh"),
    "DeviceClass": "resource.k8s.io",
    "RuntimeClass": "node.k8s.io",
    "VerticalPodAutoscaler": "autoscaling.k8s.io",
}
CLUSTER_SCOPED = frozenset(
    {
        "Node",
        "Namespace",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "VolumeAttachment",
        "CSIDriver",
        "PriorityClass",
        "NodeClaim",
        "NodePool",
        "DeviceClass",
        "RuntimeClass",
    }
)


def is_read(kind: str, api_version: str) -> bool:
    """Whether this is one of `KINDS`, and of its API group. Knative has a Service too, and Longhorn a Node.

    The group of an object without apiVersion (an item of a typed list) is not checked.
    """
    if kind not in KINDS:
        return False
    if not api_version:
        return True
    group = api_version.rpartition("/")[0]
    return group == _GROUPS.get(kind, "")


def absences(present: Collection[str], nodes: Iterable[Node] = ()) -> Iterator[str]:
    """A sentence for each group of kinds that are missing in the files, with the consequence."""
    nodes = tuple(nodes)
    for kinds, consequence in CONSEQUENCES:
        missing = [k for k in kinds if k not in present and missed(k, nodes)]
        if missing:
            named = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} or {missing[-1]}"
            yield f"no {named} in the snapshot: {consequence}"
