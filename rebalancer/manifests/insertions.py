"""Lists that get one more item in a YAML or JSON text, and nothing else of the text changes.

The positions are those of PyYAML's nodes. Comments, quotes, order and indentation stay, as nothing is written
that was not there but the item. Whoever uses it reads the result again and compares: what cannot be edited so
(merge keys, empty values) is found then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml
from msgspec import Struct


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
    first, last = mapping.value[0][0], mapping.value[-1][1]
    indent = " " * first.start_mark.column
    return _line_after(_last_line(last), f"{indent}{key}: [{item}]", lines)


def _before_end(node: yaml.CollectionNode, text: str, lines: Sequence[str]) -> Insertion:
    """After the last item of a flow collection: on its line, or on one of its own if the bracket that ends
    the collection has one. A comma that follows already then ends the new item."""
    line, column = node.end_mark.line, node.end_mark.column - 1
    if not node.value:
        return Insertion(line, column, text)
    key, last = node.value[-1] if isinstance(node, yaml.MappingNode) else (node.value[-1], node.value[-1])
    at = last.end_mark
    if at.line == line:
        return Insertion(at.line, at.column, f", {text}")
    indent = " " * key.start_mark.column
    return Insertion(at.line, at.column, f",{_ending(lines)}{indent}{text}")


def _line_after(line: int, text: str, lines: Sequence[str]) -> Insertion:
    """On a line of its own. The last line of a file may have no end."""
    ending = _ending(lines)
    if not lines[line].endswith("\n"):
        return Insertion(line, len(lines[line]), f"{ending}{text}")
    return Insertion(line + 1, 0, f"{text}{ending}")


def _last_line(node: yaml.Node) -> int:
    """The line on which a node ends; comments and empty lines after it do not belong to it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(node, yaml.MappingNode) else last)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return int(node.end_mark.line) - 1
    return int(node.end_mark.line)


def _ending(lines: Sequence[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def _quoted(text: str, mapping: yaml.MappingNode) -> str:
    """As the keys beside it are written: JSON has quotes."""
    return json.dumps(text) if any(k.style == '"' for k, _ in mapping.value) else text
