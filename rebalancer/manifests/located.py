"""API objects with the line numbers of their fields, for tools that point at them.

PyYAML's composer keeps the position of every node, and takes about ten times as long as the loader. That is
fine for manifests that people write, but not for clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from msgspec import Struct

from rebalancer.manifests.documents import Loader, refuse_bomb, yaml_errors
from rebalancer.manifests.files import ManifestError, Text
from rebalancer.yaml_reading import refuse_deep

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Located(Struct, frozen=True, eq=False):
    """One object. `file`: the name as it was given; `value`: the object as plain values."""

    file: str
    kind: str
    value: dict[str, Any]
    node: yaml.MappingNode

    @property
    def line(self) -> int:
        """Its first line, from 1."""
        return int(self.node.start_mark.line) + 1

    def line_of(self, field: str) -> int:
        """The line of a field such as spec.template.spec.topologySpreadConstraints[0]. If the field is
        absent, the line of its nearest parent that exists."""
        return self._find(field)[0]

    def has(self, field: str) -> bool:
        """Whether the object has the field."""
        return self._find(field)[1]

    def node_at(self, field: str) -> yaml.Node | None:
        """The node of a field; None if it is absent."""
        _, there, node = self._find(field)
        return node if there else None

    def duplicates(self) -> Iterator[tuple[int, str]]:
        """(line, key) of every key that a mapping has already; YAML readers take the last one."""
        yield from _duplicates(self.node)

    def _find(self, field: str) -> tuple[int, bool, yaml.Node]:
        node: yaml.Node = self.node
        line = self.line
        for name, index in _STEP.findall(field):
            if name and isinstance(node, yaml.MappingNode):
                found = next(((k, v) for k, v in node.value if k.value == name), None)
                if found is None:
                    return line, False, node
                line, node = found[0].start_mark.line + 1, found[1]
            elif index and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
                node = node.value[int(index)]
                line = node.start_mark.line + 1
            else:
                return line, False, node
        return line, True, node


def _duplicates(node: yaml.Node) -> Iterator[tuple[int, str]]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _duplicates(item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                yield int(key.start_mark.line) + 1, name
            seen.add(name)
            yield from _duplicates(value)


class Unreadable(Struct, frozen=True):
    """A file is not YAML, for example a template that has not been rendered."""

    error: ManifestError


def located(text: Text) -> Iterator[Located | Unreadable]:
    """The objects of a text, with the items of Lists one by one. What is not an object is left out."""
    try:
        yield from _objects(text)
    except ManifestError as e:
        yield Unreadable(e)


def _objects(text: Text) -> Iterator[Located]:
    with yaml_errors(text.name):
        refuse_deep(bytes(text.data), Loader)
        loader: Any = Loader(bytes(text.data))
        try:
            while loader.check_node():
                node = loader.get_node()
                value = loader.construct_document(node)
                refuse_bomb(text.name, value)
                yield from _of(text.name, node, value)
        finally:
            loader.dispose()


def _of(file: str, node: yaml.Node, value: Any) -> Iterator[Located]:
    if isinstance(node, yaml.SequenceNode):
        for inner, item in zip(node.value, value, strict=True):
            yield from _of(file, inner, item)
        return
    if not isinstance(node, yaml.MappingNode) or not isinstance(value, dict):
        return
    kind = value.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list):
        items = next(v for k, v in node.value if k.value == "items")
        typed = kind.removesuffix("List")
        for inner, item in zip(items.value, value["items"], strict=True):
            if isinstance(item, dict) and typed:
                item.setdefault("kind", typed)
            yield from _of(file, inner, item)
        return
    metadata = value.get("metadata")
    if isinstance(kind, str) and isinstance(metadata, dict) and metadata.get("name"):
        yield Located(file, kind, value, node)
