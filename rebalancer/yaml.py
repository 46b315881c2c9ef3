"""Reads YAML of unknown origin. Writes plain values line by line, ten times as fast as PyYAML's writer, so
that a report of 54 MB takes 1.6 s and not 17 s.

Only values that JSON knows are written (null, booleans, numbers, strings, lists, mappings), so that readers
of YAML 1.1 and 1.2 get the same values back. A string of several lines is written as a literal block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.reader import ReaderError

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./()=,;-]*(?: [A-Za-z0-9_./()=,;-]+)*")
"""Strings that need no quotes, except `_WORDS`."""
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_BLOCK = re.compile(r"[^\s\x00-\x1f](?:.*\S)?(?:\n+ *[^\s\x00-\x1f](?:.*\S)?)+")
"""Strings that a literal block keeps as they are: the first line is not indented, no line ends in white
space."""
_SPECIAL = re.compile(r"[^ !#-\[\]-~]")
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def to_yaml(value: Any) -> str:
    """The value as a YAML document. Raises TypeError for a value that JSON does not know."""
    return "\n".join(_Writer().lines(value)) + "\n"


class _Writer:
    """Writes one document. It remembers strings, because a large document repeats the same nodes and
    reasons."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def lines(self, value: Any, indent: str = "") -> Iterator[str]:
        """The lines of a value that begins a line. An element may hold several lines."""
        if isinstance(value, dict) and value:
            for key, member in value.items():
                yield from self._member(f"{indent}{self._text(key)}:", member, indent)
        elif isinstance(value, list | tuple) and value:
            if all(isinstance(item, str) and "\n" not in item for item in value):
                # Lists of nodes make up most of a large document, so they are written at once.
                yield "\n".join([f"{indent}- {self._text(item)}" for item in value])
                return
            for item in value:
                yield from self._item(item, indent)
        else:
            yield indent + self._scalar(value)

    def _member(self, start: str, value: Any, indent: str) -> Iterator[str]:
        if isinstance(value, dict) and value:
            yield start
            yield from self.lines(value, f"{indent}  ")
        elif isinstance(value, list | tuple) and value:
            yield start
            yield from self.lines(value, indent)
        elif isinstance(value, str) and _as_block(value):
            yield f"{start} |-"
            yield from (f"{indent}  {line}" if line else "" for line in value.split("\n"))
        else:
            yield f"{start} {self._scalar(value)}"

    def _item(self, item: Any, indent: str) -> Iterator[str]:
        if isinstance(item, dict | list | tuple) and item:
            inner = self.lines(item, f"{indent}  ")
            yield f"{indent}- {next(inner)[len(indent) + 2 :]}"
            yield from inner
        elif isinstance(item, str) and _as_block(item):
            yield from self._member(f"{indent}-", item, indent)
        else:
            yield f"{indent}- {self._scalar(item)}"

    def _scalar(self, value: Any) -> str:
        if isinstance(value, str):
            return self._text(value)
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return _number(value)
        if isinstance(value, dict | list | tuple):
            return "{}" if isinstance(value, dict) else "[]"
        raise TypeError(f"{type(value).__name__} is nothing that YAML is written of here")

    def _text(self, text: str) -> str:
        found = self._known.get(text)
        if found is None:
            plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
            found = self._known[text] = text if plain else f'"{_SPECIAL.sub(_escaped, text)}"'
        return found


def _as_block(text: str) -> bool:
    return "\n" in text and _BLOCK.fullmatch(text) is not None and text.replace("\n", "").isprintable()


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "null"  # as in JSON
    mantissa, e, exponent = repr(value).partition("e")
    # YAML 1.1 takes 1e-07 for a string.
    return repr(value) if not e else f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():  # visible, and harmless on a terminal
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Reads YAML of unknown origin. Text that is nested without end is refused before a loader sees it, because
# loaders recurse: the one in C ends the process, the one in Python ends in RecursionError. PyYAML raises
# many kinds of errors for values that it cannot make; small files are read with one, which has the place.

_DEEPEST = 200
"""Lists and objects within each other. The deepest manifests, CustomResourceDefinitions, have about 60."""
_BEGINS, _ENDS = yaml.CollectionStartEvent, yaml.CollectionEndEvent


class PlainLoader(yaml.SafeLoader):
    """A loader whose every error is a yaml.MarkedYAMLError, but for what is no text at all."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value. PyYAML's own raises what `int`, `date` or a dict's lookup raise: 0x_, 2026-02-31, !!bool
        x."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as e:
            kind = node.tag.rpartition(":")[2]
            say = f"{node.value[:60]!r} is no {kind}" if isinstance(node, yaml.ScalarNode) else f"no {kind}"
            raise yaml.MarkedYAMLError(problem=say, problem_mark=node.start_mark) from e


def read_yaml(text: str | bytes, loader: type[PlainLoader] = PlainLoader) -> Any:
    """The only document of a text. Raises yaml.MarkedYAMLError, which says where, whatever is wrong."""
    try:
        refuse_deep(text, loader)
        return yaml.load(text, Loader=loader)
    except ReaderError as e:
        before = text[: e.position]
        lines = (before if isinstance(before, str) else before.decode(errors="replace")).split("\n")
        mark = yaml.Mark(e.name, e.position, len(lines) - 1, len(lines[-1]), None, 0)
        raise yaml.MarkedYAMLError(problem=str(e).splitlines()[0], problem_mark=mark) from e


def read_every_yaml(text: bytes, loader: Any) -> Iterator[Any]:
    """The documents of a text, one after the other. Raises yaml.YAMLError."""
    refuse_deep(text, loader)
    yield from yaml.load_all(text, Loader=loader)


def refuse_deep(text: str | bytes, loader: Any) -> None:
    """Raises yaml.MarkedYAMLError where lists or objects are nested too deeply to be read."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, _BEGINS):
            depth += 1
            if depth > _DEEPEST:
                at: Any = event.start_mark
                raise yaml.MarkedYAMLError(
                    problem="lists or objects in it are nested too deeply to be read", problem_mark=at
                )
        elif isinstance(event, _ENDS):
            depth -= 1
