"""The forms that one object or list can be asked for in: JSON, metadata only, Table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from rebalancer.sandbox.api import events
from rebalancer.sandbox.api.errors import ApiError
from rebalancer.sandbox.api.objects import Object
from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.kubectl import tables
from rebalancer.sandbox.server.listing import Page
from rebalancer.sandbox.storage.history import Record

encode = msgspec.json.Encoder().encode
PLAIN, PARTIAL, TABLE = "json", "partial", "table"
_AS = {
    "": PLAIN,
    "Table": TABLE,
    "PartialObjectMetadata": PARTIAL,
    "PartialObjectMetadataList": PARTIAL,
}
_META = {"apiVersion": "meta.k8s.io/v1"}


def negotiate(accept: str) -> str:
    """The first form of an Accept header that is served; ApiError 406 where none is."""
    for media in (accept or "*/*").split(","):
        name, *rest = (part.strip() for part in media.split(";"))
        params = dict(part.split("=", 1) for part in rest if "=" in part)
        if name in ("application/json", "*/*", "application/*"):
            if "as" in params and (params.get("g"), params.get("v")) != ("meta.k8s.io", "v1"):
                continue
            if (form := _AS.get(params.get("as", ""))) is not None:
                return form
    message = "only the following media types are accepted: application/json"
    raise ApiError(406, "NotAcceptable", message, {})


class Form:
    """One way of writing objects of one resource. `include`: what a table's rows carry (`None`,
    `Metadata`, `Object`); `clock` gives the now that ages are counted to."""

    def __init__(self, kind: str, resource: Resource, clock: Callable[[], float], include: str = "") -> None:
        self.kind = kind
        self.resource = resource
        self._clock = clock
        self._include = include or "Metadata"
        self._defined = False

    def one(self, record: Record) -> bytes:
        if self.kind == TABLE:
            version = record.obj["metadata"].get("resourceVersion", "")
            return self._table([record], {"resourceVersion": version})
        if self.kind == PARTIAL:
            return encode(_partial(record.obj))
        if self.resource.group == "events.k8s.io":
            return encode(events.to_new(record.obj))
        return record.full(self.resource)

    def obj(self, obj: Object) -> bytes:
        """An object that is not stored (a dry run's)."""
        return self.one(Record("", obj, 0))

    def page(self, page: Page) -> bytes:
        if self.kind == TABLE:
            return self._table(page.records, page.metadata)
        if self.kind == PARTIAL:
            items: list[bytes] = [encode(_partial(record.obj)) for record in page.records]
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        else:
            kind, version = f"{self.resource.kind}List", self.resource.api_version
            if self.resource.group == "events.k8s.io":
                items = [encode(events.to_new(record.obj)) for record in page.records]
            else:
                items = [record.item() for record in page.records]
        head = f'{{"kind":"{kind}","apiVersion":"{version}","metadata":'.encode()
        return b"".join((head, encode(page.metadata), b',"items":[', b",".join(items), b"]}\n"))

    def event(self, kind: str, record: Record) -> bytes:
        """One line of a watch."""
        if self.kind == TABLE:
            version = record.obj["metadata"].get("resourceVersion", "")
            body = self._table([record], {"resourceVersion": version}, defined=self._defined)
            self._defined = True
        else:
            body = self.one(record)
        return b"".join((b'{"type":"', kind.encode(), b'","object":', body.rstrip(), b"}\n"))

    def bookmark(self, rv: int, *, end_of_initial: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(rv)}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        zero: Object = {**kind, "metadata": metadata}
        if self.kind == PARTIAL:
            zero |= {"kind": "PartialObjectMetadata", **_META}
        elif self.kind == TABLE:
            zero |= {"kind": "Table", **_META, "columnDefinitions": None, "rows": []}
        else:
            zero |= self.resource.zero
        return encode({"type": "BOOKMARK", "object": zero}) + b"\n"

    def _table(self, records: Iterable[Record], metadata: dict[str, Any], *, defined: bool = False) -> bytes:
        now = self._clock()
        layout = tables.layout(self.resource)
        rows: list[dict[str, Any]] = []
        for record in records:
            row: dict[str, Any] = {"cells": layout.cells(record.obj, now)}
            if self._include == "Object":
                row["object"] = record.obj
            elif self._include == "Metadata":
                row["object"] = _partial(record.obj)
            rows.append(row)
        table: Object = {"kind": "Table", **_META, "metadata": metadata}
        table |= {"columnDefinitions": None if defined else layout.definitions(), "rows": rows}
        return encode(table)


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", **_META, "metadata": obj["metadata"]}


def error_event(error: ApiError) -> bytes:
    return encode({"type": "ERROR", "object": error.status()}) + b"\n"
