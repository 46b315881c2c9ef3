"""A text → API objects, each still JSON bytes.

JSON is never decoded as a whole: a List becomes a list of `msgspec.Raw`, which are views into the text.
Several JSON documents in a row (`kubectl get --watch -o json`) are split where the decoder reports the next
one. YAML is decoded and encoded as JSON again, so that one decoder reads both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import yaml
from msgspec import Raw, Struct

from rebalancer.manifests.files import ManifestError, Text
from rebalancer.yaml_reading import read_every_yaml

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

    `list_kind` is "" for a single object. `annotations` are those of the List.
    """

    name: str
    index: int
    items: tuple[Item, ...]
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
            return Document(
                name, index, tuple(Item(r) for r in msgspec.json.decode(raw, type=list[Raw])), "List"
            )
        return Document(name, index, (Item(raw),))
    kind = wire.kind or ""
    if wire.items is None or (kind and not kind.endswith("List")):
        if kind.endswith("List"):
            return Document(name, index, (), kind, _annotations(wire.metadata))
        return Document(name, index, (Item(_decode_raw(data)),))
    if kind in ("", "List"):
        items = tuple(map(Item, wire.items))
    else:
        items = tuple(Item(r, kind.removesuffix("List"), wire.api_version or "") for r in wire.items)
    return Document(name, index, items, kind or "List", _annotations(wire.metadata))


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
