"""API objects with the line numbers of their fields, for tools that point at them.

PyYAML's composer keeps the position of every node, and takes about ten times as long as the loader. That is
fine for manifests that people write, but not for clusters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml
from msgspec import Struct

from rebalancer.manifests.documents import Loader, ManifestError, Text, refuse_bomb, yaml_errors
from rebalancer.yaml import refuse_deep

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


# Lists that get one more item in a YAML or JSON text, and nothing else of the text changes.
#
# The positions are those of PyYAML's nodes. Comments, quotes, order and indentation stay, as nothing is
# written that was not there but the item. Aliases and merge keys give nodes that stand elsewhere: a place is
# sought among those only that a node itself spans. Whoever uses it reads the result again and compares: what
# cannot be edited so (empty values) is found then.


class Insertion(Struct, frozen=True, order=True):
    """`text` goes in at a position of the file, both from 0."""

    line: int
    column: int
    text: str


def insertion(mapping: yaml.MappingNode, key: str, item: str, lines: Sequence[str]) -> Insertion | None:
    """What makes the list under `key` have one more item; None if there is no place for it.

    `lines`: of the whole text, with their ends.
    """
    there = next((v for k, v in mapping.value if k.value == key), None)
    if there is None:
        return _new(mapping, key, item, lines)
    if not isinstance(there, yaml.SequenceNode):
        return None
    if there.flow_style:
        return _before_end(there, _quoted(item, mapping), lines)
    if not there.value:
        return None
    last = there.value[-1]
    head = lines[last.start_mark.line][: last.start_mark.column]
    return _line_after(_last_line(last), f"{head}{item}", lines)


def inserted(lines: Sequence[str], insertions: Sequence[Insertion]) -> str:
    """The text with all of them. One that several nodes ask for, as aliases do, is made once."""
    made = list(lines)
    for i in sorted(set(insertions), reverse=True):
        if i.line == len(made):
            made.append(i.text)
        else:
            made[i.line] = made[i.line][: i.column] + i.text + made[i.line][i.column :]
    return "".join(made)


def _new(mapping: yaml.MappingNode, key: str, item: str, lines: Sequence[str]) -> Insertion | None:
    if not mapping.value:
        return None
    if mapping.flow_style:
        return _before_end(mapping, f"{_quoted(key, mapping)}: [{_quoted(item, mapping)}]", lines)
    indent = " " * mapping.start_mark.column
    return _line_after(_last_line(mapping), f"{indent}{key}: [{item}]", lines)


def _before_end(node: yaml.CollectionNode, text: str, lines: Sequence[str]) -> Insertion:
    """After the last item of a flow collection: on its line, or on one of its own if the bracket that ends
    the collection has one. A comma that follows already then ends the new item."""
    line, column = node.end_mark.line, node.end_mark.column - 1
    if not node.value:
        return Insertion(line, column, text)
    key, last = node.value[-1] if isinstance(node, yaml.MappingNode) else (node.value[-1], node.value[-1])
    if not _spans(node, last):
        return Insertion(line, column, f", {text}")
    at = last.end_mark
    if at.line == line:
        return Insertion(at.line, at.column, f", {text}")
    head = lines[key.start_mark.line][: key.start_mark.column]
    indent = head if head.isspace() else " " * key.start_mark.column
    return Insertion(at.line, at.column, f",{_ending(lines)}{indent}{text}")


def _line_after(line: int, text: str, lines: Sequence[str]) -> Insertion:
    """On a line of its own. The last line of a file may have no end."""
    ending = _ending(lines)
    if not lines[line].endswith("\n"):
        return Insertion(line, len(lines[line]), f"{ending}{text}")
    return Insertion(line + 1, 0, f"{text}{ending}")


def _last_line(node: yaml.Node) -> int:
    """The line on which a node ends; comments and empty lines after it do not belong to it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        pairs = node.value if isinstance(node, yaml.MappingNode) else [(item, item) for item in node.value]
        own = [
            _last_line(value) if _spans(node, value) else int(key.start_mark.line)
            for key, value in pairs
            if _spans(node, key)
        ]
        return max(own, default=int(node.start_mark.line))
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return int(node.end_mark.line) - 1
    return int(node.end_mark.line)


def _spans(node: yaml.Node, other: yaml.Node) -> bool:
    """Whether the other one stands within it; an alias has the node that stands where its anchor does."""
    return bool(node.start_mark.index <= other.start_mark.index < node.end_mark.index)


def _ending(lines: Sequence[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def _quoted(text: str, mapping: yaml.MappingNode) -> str:
    """As the keys beside it are written: JSON has quotes."""
    return json.dumps(text) if any(k.style == '"' for k, _ in mapping.value) else text


# What the API server refuses in spread constraints, selectors and budgets: every error of an object.
#
# Fields that do not exist and values of a wrong type are found elsewhere (`rebalancer.kube.resources`).

TEMPLATES = ("spec.template", "spec.jobTemplate.spec.template")
_SPREAD_ENUMS = {
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "nodeAffinityPolicy": ("Honor", "Ignore"),
    "nodeTaintsPolicy": ("Honor", "Ignore"),
}
_REQUIRED = ("maxSkew", "topologyKey", "whenUnsatisfiable")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PERCENTAGE = re.compile(r"[0-9]+%")
_SELECTING = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")


class Refused(NamedTuple):
    """`field`: where, as spec.template.spec.topologySpreadConstraints[0].maxSkew; `says`: what is wrong."""

    field: str
    says: str


def validate(kind: str, value: dict[str, Any]) -> Iterator[Refused]:
    """Everything that would be refused, in the order of the fields."""
    if kind == "PodDisruptionBudget":
        yield from _budget(_map(value.get("spec")))
        return
    where, template = pod_template(kind, value)
    if kind in _SELECTING:
        yield from _selects(_map(value.get("spec")), template)
    spec = _map(template.get("spec"))
    field = f"{where}.spec" if where else "spec"
    yield from _constraints(spec.get("topologySpreadConstraints"), f"{field}.topologySpreadConstraints")


def pod_template(kind: str, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(where it is, the template) of an object that makes pods, ("", the object) of a pod."""
    if kind == "Pod":
        return "", value
    for where in TEMPLATES:
        found: Any = value
        for step in where.split("."):
            found = _map(found).get(step)
        if isinstance(found, dict):
            return where, found
    return TEMPLATES[0], {}


def _constraints(written: Any, field: str) -> Iterator[Refused]:
    seen: dict[tuple[str, str], int] = {}
    for i, c in enumerate(written if isinstance(written, list) else ()):
        if not isinstance(c, dict):
            continue
        at = f"{field}[{i}]"
        yield from _constraint(c, at)
        pair = str(c.get("topologyKey")), str(c.get("whenUnsatisfiable"))
        if pair in seen:
            yield Refused(at, f"the same topologyKey and whenUnsatisfiable as in entry {seen[pair]}")
        seen.setdefault(pair, i)


def _constraint(c: dict[str, Any], at: str) -> Iterator[Refused]:
    for name in _REQUIRED:
        if c.get(name) in (None, ""):
            yield Refused(f"{at}.{name}", f"{name} is required")
    for name in ("maxSkew", "minDomains"):
        if isinstance(c.get(name), int) and c[name] < 1:
            yield Refused(f"{at}.{name}", f"{name} {c[name]} has to be at least 1")
    for name, legal in _SPREAD_ENUMS.items():
        if c.get(name) not in (None, "", *legal):
            yield Refused(f"{at}.{name}", f"{c[name]!r} is not one of {', '.join(legal)}")
    key = c.get("topologyKey")
    if isinstance(key, str) and key and not _KEY.fullmatch(key):
        yield Refused(f"{at}.topologyKey", f"{key!r} is no label key")
    selector = _map(c.get("labelSelector"))
    yield from _selector(selector, f"{at}.labelSelector")
    keys = c.get("matchLabelKeys")
    if keys and c.get("labelSelector") is None:
        yield Refused(f"{at}.matchLabelKeys", "it is allowed only with a labelSelector")
    # A list: what is no text need not be hashable.
    used = [*_map(selector.get("matchLabels")), *(e.get("key") for e in _expressions(selector))]
    for k in keys if isinstance(keys, list) else ():
        if k in used:
            yield Refused(f"{at}.matchLabelKeys", f"{k!r} is in the labelSelector already")


def _selector(selector: dict[str, Any], at: str) -> Iterator[Refused]:
    for i, e in enumerate(_expressions(selector)):
        field, operator, values = f"{at}.matchExpressions[{i}]", e.get("operator"), e.get("values")
        if operator not in _OPERATORS:
            yield Refused(f"{field}.operator", f"{operator!r} is not one of {', '.join(_OPERATORS)}")
        elif operator in ("In", "NotIn") and not values:
            yield Refused(f"{field}.values", f"{operator} needs values")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield Refused(f"{field}.values", f"{operator} takes no values")


def _selects(spec: dict[str, Any], template: dict[str, Any]) -> Iterator[Refused]:
    """A workload's selector has to match its own template."""
    selector = _map(spec.get("selector"))
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield Refused("spec.selector", "a selector is required")
        return
    yield from _selector(selector, "spec.selector")
    labels = _map(_map(template.get("metadata")).get("labels"))
    for key, wanted in _map(selector.get("matchLabels")).items():
        if labels.get(key) != wanted:
            yield Refused("spec.selector", f"{key}: {wanted} is not among the template's own labels")


def _budget(spec: dict[str, Any]) -> Iterator[Refused]:
    yield from _selector(_map(spec.get("selector")), "spec.selector")
    given = [n for n in ("minAvailable", "maxUnavailable") if spec.get(n) is not None]
    if len(given) == 2:
        yield Refused("spec.maxUnavailable", "minAvailable and maxUnavailable exclude each other")
    for name in given:
        value = spec[name]
        if isinstance(value, str) and not _PERCENTAGE.fullmatch(value):
            yield Refused(f"spec.{name}", f"{value!r} is neither a number nor a percentage such as 20%")
        elif isinstance(value, int) and value < 0:
            yield Refused(f"spec.{name}", f"{value} has to be at least 0")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "IfHealthyBudget", "AlwaysAllow"):
        says = f"{policy!r} is not one of IfHealthyBudget, AlwaysAllow"
        yield Refused("spec.unhealthyPodEvictionPolicy", says)


def _expressions(selector: dict[str, Any]) -> list[dict[str, Any]]:
    found = selector.get("matchExpressions")
    return [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
