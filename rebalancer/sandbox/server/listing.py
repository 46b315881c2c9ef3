"""Lists: options, pages with continue tokens, and which version of the collection a list shows."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from rebalancer.sandbox.api.errors import Cause, bad_request, expired, invalid, too_large_version
from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.api.selectors import FieldTest, LabelSelector, matches, parse_fields, parse_labels
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Record

_TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True)
class Options:
    """ListOptions of a query string. `version` None: not given. `timeout` in seconds, 0: none."""

    labels: LabelSelector
    fields: tuple[FieldTest, ...]
    limit: int
    token: str
    version: int | None
    match: str
    watch: bool
    timeout: int
    bookmarks: bool
    initial_events: bool | None

    def selects(self, record: Record) -> bool:
        obj = record.obj
        return matches(self.labels, obj["metadata"].get("labels")) and all(test(obj) for test in self.fields)

    @property
    def selective(self) -> bool:
        return bool(self.labels or self.fields)


def _flag(text: str | None) -> bool:
    return (text or "").lower() in ("1", "true", "t")


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def parse(query: Mapping[str, str], resource: Resource) -> Options:
    """ApiError 400 or 422 for options that do not parse or do not go together."""
    version = query.get("resourceVersion") or ""
    if version and not version.isdigit():
        why = [
            Cause(
                "FieldValueInvalid",
                f'Invalid value: "{version}": invalid resource version',
                "resourceVersion",
            )
        ]
        raise invalid("ListOptions", "meta.k8s.io", "", why)
    initial = query.get("sendInitialEvents")
    options = Options(
        labels=parse_labels(query.get("labelSelector") or ""),
        fields=parse_fields(query.get("fieldSelector") or "", resource),
        limit=max(_number(query, "limit"), 0),
        token=query.get("continue") or "",
        version=int(version) if version else None,
        match=query.get("resourceVersionMatch") or "",
        watch=_flag(query.get("watch")),
        timeout=_number(query, "timeoutSeconds"),
        bookmarks=_flag(query.get("allowWatchBookmarks")),
        initial_events=_flag(initial) if initial is not None else None,
    )
    if problems := _problems(options):
        raise invalid("ListOptions", "meta.k8s.io", "", problems)
    return options


def _problems(options: Options) -> list[Cause]:
    """ValidateListOptions of apimachinery."""
    found: list[tuple[str, str]] = []
    match, field = options.match, "resourceVersionMatch"
    if options.watch:
        if options.initial_events is not None:
            if match != "NotOlderThan":
                found.append(
                    (field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
                )
        elif match:
            found.append(
                (field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
            )
    else:
        if match:
            if options.version is None:
                found.append((field, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
            if options.token:
                found.append((field, "resourceVersionMatch is forbidden for continue"))
            if match == "Exact" and options.version == 0:
                found.append((field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
        if options.initial_events is not None:
            found.append(("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    causes = [Cause("FieldValueForbidden", f"Forbidden: {why}", where) for where, why in found]
    if match not in ("", "Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        causes.append(Cause("FieldValueNotSupported", why, field))
    return causes


class Page(NamedTuple):
    """Records in key order and the list's own metadata."""

    records: list[Record]
    metadata: dict[str, Any]


def _token(version: int, start: str) -> str:
    data = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _read_token(text: str) -> tuple[int, str]:
    bad = "invalid continue token: continue key is not valid: "
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise bad_request(f"{bad}illegal base64 data at input byte {len(text)}") from None
    try:
        data = json.loads(raw)
        return int(data["rv"]), str(data["start"]).removesuffix("\0").lstrip("/")
    except (ValueError, KeyError, TypeError):
        first = f"\\x{raw[0]:02x}" if raw and raw[0] >= 0x80 else chr(raw[0]) if raw else ""
        raise bad_request(f"{bad}invalid character '{first}' looking for beginning of value") from None


def too_new(store: Store, options: Options) -> bool:
    """Whether a list must wait for a version that has not happened yet."""
    return not options.token and (options.version or 0) > store.revision


def page(store: Store, resource: Resource, namespace: str | None, options: Options) -> Page:
    """ApiError 410 for a version that is forgotten, 504 for one that has not happened."""
    with store.lock:
        collection = store.collection(resource)
        now = store.revision
        limit, version, after, slash = options.limit, now, "", "/"
        if options.version is None and not options.token:
            collection.progress = now
        if options.token:
            version, start = _read_token(options.token)
            after, slash = f"{namespace}/{start}" if namespace else start, ""
            if version < 0:
                version = now  # the inconsistent way on that a 410 offered
            elif version < collection.floor:
                raise expired(_TOO_OLD_TOKEN, _token(-1, f"{start}\0"))
        elif options.version is not None and options.version > now:
            raise too_large_version(options.version, now)
        elif options.version == 0:
            limit = 0  # served from the watch cache, which takes no limit
        elif options.match == "Exact" or (options.version and limit and not options.match):
            version = options.version or now
            if version < collection.floor:
                raise expired(_TOO_OLD_LIST)
        found = (
            collection.scan(namespace, after)
            if version >= now
            else collection.scan_at(version, namespace, after)
        )
        if options.selective:
            found = (record for record in found if options.selects(record))
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if not limit:
            return Page(list(found), metadata)
        records = list(islice(found, limit))
        rest = sum(1 for _ in found)
    return (
        Page(records, metadata)
        if not rest
        else _more(records, metadata, rest, version, slash, namespace, options)
    )


def _more(
    records: list[Record],
    metadata: dict[str, Any],
    rest: int,
    version: int,
    slash: str,
    namespace: str | None,
    options: Options,
) -> Page:
    last = records[-1].key
    if namespace:
        last = last.split("/", 1)[1]
    metadata["continue"] = _token(version, f"{slash}{last}\0")
    if not options.selective:  # as the server: the rest is counted by key, not by selector
        metadata["remainingItemCount"] = rest
    return Page(records, metadata)
