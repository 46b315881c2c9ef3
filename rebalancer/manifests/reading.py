"""API objects → Snapshot, with warnings about what was skipped, and the time from which ages are computed."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from rebalancer.bulk_work import bulk_work
from rebalancer.errors import UserError
from rebalancer.manifests.documents import (
    CAPTURED_AT,
    CAPTURED_KINDS,
    CLUSTER_SCOPED,
    KUBECTL,
    REFUSED_KINDS,
    SERVER_VERSION,
    Document,
    Item,
    ManifestError,
    Time,
    absences,
    documents,
    head_of,
    is_read,
    newest,
    texts,
)
from rebalancer.model.decode import MALFORMED, Decoder
from rebalancer.model.node import HOSTNAME, ZONE, Node, ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.reason import listing, plural
from rebalancer.model.snapshot import KINDS, KindRead, Object, Snapshot, build_snapshot, unclear

Paths = Iterable[str | os.PathLike[str]]
_Key = tuple[str, str, str]
"""(kind, namespace, name)."""
_ONE_BY_ONE = (
    "name the files of one cluster only, and look at each cluster by itself, or at all with `report --fleet`"
)
_PUT_TOGETHER = "was it put together by hand, or from several clusters? Then look at each cluster by itself"
_LISTED = 5
"""How many examples of one problem are named; of the others only the number is given."""


def read_snapshot(paths: Paths, *, now: float | None = None, stdin: BinaryIO | None = None) -> Snapshot:
    """The cluster in these files, directories or `-` (standard input).

    Ages are computed from `now` (seconds since the epoch), else from the time at which the cluster was read
    according to the file, else from the newest timestamp in it. Objects that cannot be read are skipped; the
    snapshot's warnings name them, and the kinds that are missing. Raises ManifestError if a file cannot be
    read, or if there is no node or no pod.
    """
    reading = _Reading()
    with bulk_work():
        for text in texts(paths, stdin):
            reading.names.append(text.name)
            for document in documents(text):
                reading.add(document)
        return reading.snapshot(now)


def read_objects(paths: Paths, stdin: BinaryIO | None = None) -> Iterator[dict[str, Any]]:
    """Every API object in these files, of any kind, as it is written there. Items of typed lists get their
    kind.

    Anything without a kind or a name is left out. Raises ManifestError.
    """
    for text in texts(paths, stdin):
        for document in documents(text):
            for item in document.items:
                value = msgspec.json.decode(item.raw)
                if not isinstance(value, dict):
                    continue
                if item.kind:
                    value = {"apiVersion": item.api_version, "kind": item.kind, **value}
                metadata = value.get("metadata")
                if value.get("kind") and isinstance(metadata, dict) and metadata.get("name"):
                    yield value


class _Reading:
    """Collects the objects of the files."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._decoder = Decoder()
        self._objects: dict[_Key, Object] = {}
        self._kinds: set[str] = set()
        self._refused: set[str] = set()
        self._unused: Counter[str] = Counter()
        self._malformed: list[str] = []
        self._lost: Counter[str] = Counter()
        self._strangers: Counter[str] = Counter()
        self._repeated = 0
        # A cluster has a million objects: what is said of each of them here is in objects that it has anyway.
        self._uids: dict[str, _Key] = {}
        self._further: dict[_Key, str] = {}
        self._lasting: dict[_Key, tuple[str, str]] = {}
        self._newest: datetime | None = None
        self._captured: datetime | None = None
        self._version = ""

    def add(self, document: Document) -> None:
        """Adds the objects of a document."""
        self._annotations(document)
        listed = document.list_kind.removesuffix("List")
        if listed and is_read(listed, ""):
            self._kinds.add(listed)
        for item in document.items:
            self._item(document, item)

    def _item(self, document: Document, item: Item) -> None:
        try:
            head = head_of(item.raw)
        except MALFORMED as e:
            self._unreadable(document, item, e)
            return
        kind, api_version = head.kind or item.kind, head.api_version or item.api_version
        meta = head.metadata
        if not kind or meta is None or kind == "Status":
            self._stranger(document, item, kind)
            return
        if (time := newest(head)) is not None and (self._newest is None or time > self._newest):
            self._newest = time
        if not is_read(kind, api_version):
            self._unused[kind] += 1
            return
        self._kinds.add(kind)
        name, namespace, raw = meta.name, meta.namespace, item.raw
        if not name:
            self._lose(kind, f"in {document.name}: metadata.name is missing")
            return
        if not namespace and kind not in CLUSTER_SCOPED:
            namespace, raw = "default", _in_namespace(raw, "default")
        try:
            value = self._decoder.decode(kind, raw)
        except MALFORMED as e:
            self._one_cluster(document, (kind, namespace, name), meta.uid)
            self._lose(kind, f"{_qualified(namespace, name)}: {field_error(e)}")
            return
        now = _meta(value)
        this = (kind, now.namespace, now.name)
        self._one_cluster(document, this, now.uid)
        known = self._objects.get(this)
        if known is not None:
            self._repeated += 1
            if _older(now.resource_version, _meta(known).resource_version):
                return
        self._objects[this] = value

    def _one_cluster(self, document: Document, this: _Key, uid: str) -> None:
        """Raises ManifestError where a uid tells that the documents are of several clusters, or made up."""
        if not uid:
            return
        first = self.names[0]
        if document.name != first and this not in self._objects:
            self._further.setdefault(this, document.name)
        other = self._uids.setdefault(uid, this)
        kind = this[0]
        what = f"{kind} {_qualified(*this[1:])}"
        if other != this:
            there = self._further.get(other, first)
            where, before = _both(there, document.name), f"{other[0]} {_qualified(*other[1:])}"
            raise ManifestError(
                f"{where}: {before} and {what} have the same uid {uid}, which no cluster has",
                _ONE_BY_ONE if there != document.name else _PUT_TOGETHER,
            )
        if kind in ("Node", "Namespace") or this == ("Service", "default", "kubernetes"):
            before, there = self._lasting.setdefault(this, (uid, document.name))
            if before != uid:
                where = _both(there, document.name)
                raise ManifestError(
                    f"{where}: {what} has the uids {before} and {uid}: they are of several clusters",
                    _ONE_BY_ONE,
                )

    def _annotations(self, document: Document) -> None:
        says = document.annotations
        if captured := says.get(CAPTURED_AT):
            try:
                time = msgspec.convert(captured, Time)
            except msgspec.ValidationError:
                time = None
            if time is None:
                self._malformed.append(
                    f"annotation {CAPTURED_AT} of the List in {document.name}: {captured!r}"
                )
            elif self._captured is None or time > self._captured:
                self._captured = time
        if (asked := says.get(CAPTURED_KINDS)) is not None:
            read = {k for k in asked.split(",") if is_read(k, "")}
            self._kinds |= read
            refused = says.get(REFUSED_KINDS)
            self._refused |= (
                KINDS - read if refused is None else {k for k in refused.split(",") if k in KINDS}
            )
        self._version = says.get(SERVER_VERSION, self._version)

    def _unreadable(self, document: Document, item: Item, error: Exception) -> None:
        """Warns of an object whose head is malformed, if its kind is one that is read."""
        try:
            value = msgspec.json.decode(item.raw)
        except MALFORMED:
            value = None
        if not isinstance(value, dict):
            self._stranger(document, item, "")
            return
        kind, api_version = str(value.get("kind") or item.kind), str(value.get("apiVersion") or "")
        if kind in ("", "Status"):
            self._stranger(document, item, kind)
            return
        if not is_read(kind, api_version):
            self._unused[kind] += 1
            return
        self._kinds.add(kind)
        meta = value.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        named = _qualified(str(meta.get("namespace") or ""), str(meta.get("name") or "(no name)"))
        self._lose(kind, f"{named}: {field_error(error)}")

    def _lose(self, kind: str, what: str) -> None:
        """An object of a kind that is read is left out."""
        self._lost[kind] += 1
        self._malformed.append(f"{kind} {what}")

    def _stranger(self, document: Document, item: Item, kind: str) -> None:
        """Warns of a document that is not an API object. If it holds an error of kubectl, that is quoted."""
        if kind == "Status":
            says = msgspec.json.decode(item.raw).get("message", "a failure")
            raise ManifestError(
                f"{document.name}: it holds the API server's answer {says!r}", f"run: {KUBECTL}"
            )
        self._strangers[document.name] += 1

    def snapshot(self, now: float | None) -> Snapshot:
        """The snapshot of all objects. Raises ManifestError."""
        source = ", ".join(self.names)
        for kind in ("Node", "Pod"):
            if kind in self._kinds:
                continue
            found = ", ".join(sorted(self._kinds)) or "no Kubernetes object that is read"
            raise ManifestError(f"{source}: no {kind} in it ({found})", f"run: {KUBECTL}")
        self._uids.clear()
        objects = list(self._objects.values())
        nodes = [o for o in objects if isinstance(o, Node)]
        if not nodes:
            trouble = f": {self._malformed[0]}" if self._malformed else ""
            raise ManifestError(f"{source}: no readable Node in it{trouble}", f"run: {KUBECTL}")
        warnings = [*self._troubles(objects), *absences(self._kinds, nodes)]
        clock = now
        if clock is None:
            time = self._captured or self._newest
            if time is None:
                warnings.append("no timestamp in the snapshot: every age is unknown; --now sets the clock")
            clock = time.timestamp() if time else 0.0
        reads = tuple(self._reads())
        return build_snapshot(
            objects,
            now=clock,
            source=source,
            server_version=self._version,
            kinds=self._kinds,
            refused=(self._refused - self._kinds) | unclear(reads),
            warnings=warnings,
            reads=reads,
        )

    def _reads(self) -> Iterator[KindRead]:
        found = Counter(kind for kind, _, _ in self._objects)
        for kind in sorted(self._kinds):
            yield KindRead(kind=kind, objects=found[kind], unreadable=self._lost[kind])

    def _troubles(self, objects: list[Object]) -> Iterator[str]:
        malformed = sorted(self._malformed)
        yield from (f"skipped a malformed object: {m}" for m in malformed[:_LISTED])
        if len(malformed) > _LISTED:
            yield f"skipped {len(malformed) - _LISTED} more malformed objects"
        for name, count in sorted(self._strangers.items()):
            things = "a document that is" if count == 1 else f"{count} documents that are"
            yield f"{name}: skipped {things} no Kubernetes object (no kind or metadata)"
        if self._repeated:
            yield f"{plural(self._repeated, 'object')} seen more than once: the newest resourceVersion counts"
        nodes = {o.name for o in objects if isinstance(o, Node)}
        lost = sorted({o.node_name for o in objects if isinstance(o, Pod) and o.node_name} - nodes)
        if lost:
            yield (
                f"pods run on nodes that are not in the snapshot: {listing(lost, _LISTED)}; "
                "was it taken in pieces, or filtered?"
            )


def _meta(o: Object) -> Pod | ObjectMeta:
    return o if isinstance(o, Pod | ObjectMeta) else o.metadata


def _older(version: str, than: str) -> bool:
    """Whether a resourceVersion is lower than another; False if one of them is not a number."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _qualified(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _both(first: str, second: str) -> str:
    return first if first == second else f"{first} and {second}"


def _in_namespace(raw: bytes | Raw, namespace: str) -> bytes:
    """The object in a namespace. The API server does the same with a hand-written object that has none."""
    value = msgspec.json.decode(raw)
    value["metadata"]["namespace"] = namespace
    return msgspec.json.encode(value)


def field_error(error: Exception) -> str:
    """The decoder's message with the field first: "spec.replicas: expected `int`, got `str`"."""
    what, _, path = str(error).partition(" - at `$")
    what = what[:1].lower() + what[1:]
    field = path.rstrip("`").lstrip(".")
    return f"{field}: {what}" if field else what


# Nodes to judge manifests by: from a file, or counted by zone (`a=3,b=3`).

_COUNTED = re.compile(r"[^=,\s]+=\d+(,[^=,\s]+=\d+)*")
_MOST = 15_000
_FORMS = "give a file with what `kubectl get nodes -o yaml` prints, or nodes by zone: a=3,b=3,c=3"


class GivenNodes(Struct, frozen=True, eq=False):
    """`counted`: only zones are known of them, and that they are many enough; they have room for anything."""

    nodes: tuple[Node, ...]
    counted: bool


def given_nodes(value: str, resources: Iterable[str] = ()) -> GivenNodes:
    """The nodes that a person means. `resources`: what counted nodes shall have plenty of.

    Raises UserError.
    """
    if not value.strip():
        raise UserError("no nodes are named", _FORMS)
    if _COUNTED.fullmatch(value):
        return GivenNodes(_decoded(_counted(value, resources), value), True)
    found = [o for o in read_objects([value]) if o["kind"] == "Node"]
    if not found:
        raise UserError(f"no node in {value}", _FORMS)
    return GivenNodes(_decoded(found, value), False)


def _counted(value: str, resources: Iterable[str]) -> list[dict[str, Any]]:
    number: dict[str, int] = {}
    for part in value.split(","):
        zone, _, count = part.partition("=")
        number[zone] = number.get(zone, 0) + int(count)
    if not 0 < sum(number.values()) <= _MOST:
        raise UserError(
            f"{value} stands for {sum(number.values()):,} nodes", f"1 to {_MOST:,} can be judged by"
        )
    plenty = dict.fromkeys(("cpu", "memory", "ephemeral-storage", *resources), "1000000000")
    status = {
        "allocatable": {**plenty, "pods": "1000000"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    names = [(zone, f"{zone}-{i}") for zone, count in number.items() for i in range(count)]
    return [
        {"kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone, HOSTNAME: name}}, "status": status}
        for zone, name in names
    ]


def _decoded(found: list[dict[str, Any]], source: str) -> tuple[Node, ...]:
    decoder = Decoder()
    made = {}
    for o in found:
        try:
            node = decoder.decode("Node", msgspec.json.encode(o))
        except MALFORMED as e:
            name = o["metadata"]["name"]
            raise UserError(f"{source}: Node {name}: {field_error(e)}", _FORMS) from e
        assert isinstance(node, Node)
        made[node.name] = node
    return tuple(made.values())
