"""Manifests in which `matchLabelKeys` is missing, and the same manifests with it."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from msgspec import Struct

from rebalancer.manifests.files import Text
from rebalancer.manifests.insertions import Insertion, inserted, insertion
from rebalancer.manifests.located import Located, Unreadable, located
from rebalancer.prevention.rollouts.rule import HASH, additions

_LIST = "spec.template.spec.topologySpreadConstraints"


class Fixed(Struct, frozen=True):
    """A file as it should be.

    `workloads`: Kind/namespace/name of those that were mended. `problems`: what has to be done by hand, and
    why.
    """

    file: str
    before: str
    after: str
    workloads: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def diff(self) -> str:
        """As `diff -u` writes it."""
        names = self.file, self.file
        lines = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        made = difflib.unified_diff(*lines, *names)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in made)


def fixed(text: Text) -> Fixed:
    """One file. It is changed only if it then says what it said before, and the keys."""
    before = bytes(text.data).decode(errors="replace")
    lines = before.splitlines(keepends=True)
    places: list[Insertion] = []
    names: list[str] = []
    wanted: list[Any] = []
    problems: list[str] = []
    for item in located(text):
        if isinstance(item, Unreadable):
            return Fixed(text.name, before, before, (), (item.error.message,))
        spec = item.value.get("spec")
        found = list(additions(item.kind, spec)) if isinstance(spec, Mapping) else []
        wanted.append(_mended(item, [(a.index, a.keys) for a in found]))
        for addition in found:
            node = item.node_at(f"{_LIST}[{addition.index}]")
            place = (
                insertion(node, "matchLabelKeys", HASH, lines) if isinstance(node, yaml.MappingNode) else None
            )
            if place is None:
                problems.append(f"{_name(item)}: {_LIST}[{addition.index}] has to be changed by hand")
            else:
                places.append(place)
        if found:
            names.append(_name(item))
    if problems or not places:
        return Fixed(text.name, before, before, (), tuple(problems))
    after = inserted(lines, places)
    if [_value(i) for i in located(Text(text.name, after.encode()))] != wanted:
        why = f"{text.name}: cannot be changed without changing more; do it by hand: {', '.join(names)}"
        return Fixed(text.name, before, before, (), (why,))
    return Fixed(text.name, before, after, tuple(names))


def _value(item: Located | Unreadable) -> object:
    return item.value if isinstance(item, Located) else item


def _mended(item: Located, keys: Iterable[tuple[int, tuple[str, ...]]]) -> Any:
    """The object as it should be."""
    value = copy.deepcopy(item.value)
    for index, names in keys:
        value["spec"]["template"]["spec"]["topologySpreadConstraints"][index]["matchLabelKeys"] = list(names)
    return value


def _name(item: Located) -> str:
    metadata = item.value["metadata"]
    return f"{item.kind}/{metadata.get('namespace') or 'default'}/{metadata['name']}"
