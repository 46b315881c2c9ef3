"""API objects with the lines on which their fields stand, for tools that point at them.

Composing YAML keeps the position of every node, and takes about ten times as long as reading: for manifests
that people write, not for clusters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import yaml
from msgspec import Struct

from rebalancer.manifests.documents import Loader, yaml_errors
from rebalancer.manifests.files import ManifestError, Text, texts

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Located(Struct, frozen=True, eq=False):
    """One object. `file` as it was named, `value` its JSON value."""

    file: str
    kind: str
    value: dict[str, Any]
    node: yaml.MappingNode

    @property
    def line(self) -> int:
        """Its first line, from 1."""
        return int(self.node.start_mark.line) + 1

    def line_of(self, field: str) -> int:
        """The line of a field such as spec.template.spec.topologySpreadConstraints[0]; of its nearest parent
        where it is absent."""
        return self._find(field)[0]

    def has(self, field: str) -> bool:
        """Whether the field is there."""
        return self._find(field)[1]

    def _find(self, field: str) -> tuple[int, bool]:
        node: yaml.Node = self.node
        line = self.line
        for name, index in _STEP.findall(field):
            if name and isinstance(node, yaml.MappingNode):
                found = next(((k, v) for k, v in node.value if k.value == name), None)
                if found is None:
                    return line, False
                line, node = found[0].start_mark.line + 1, found[1]
            elif index and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
                node = node.value[int(index)]
                line = node.start_mark.line + 1
            else:
                return line, False
        return line, True


class Unreadable(Struct, frozen=True):
    """A file that is no YAML, as templates are before they are rendered."""

    error: ManifestError


def located(
    paths: Iterable[str | os.PathLike[str]], stdin: BinaryIO | None = None
) -> Iterator[Located | Unreadable]:
    """The objects of files, directories or `-`, items of Lists one by one; what is no object is left out.

    Raises ManifestError for a file that cannot be read at all.
    """
    for text in texts(paths, stdin):
        try:
            yield from _objects(text)
        except ManifestError as e:
            yield Unreadable(e)


def _objects(text: Text) -> Iterator[Located]:
    with yaml_errors(text.name):
        loader: Any = Loader(bytes(text.data))
        try:
            while loader.check_node():
                node = loader.get_node()
                yield from _of(text.name, node, loader.construct_document(node))
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
