"""Reads YAML of unknown origin. Text that is nested without end is refused before a loader sees it, because
loaders recurse: the one in C ends the process, the one in Python ends in RecursionError. PyYAML raises many
kinds of errors for values that it cannot make; small files are read with one, which has the place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.reader import ReaderError

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
