"""Reads YAML of unknown origin. Text that is nested without end is refused before a loader sees it, because
loaders recurse: the one in C ends the process, the one in Python ends in RecursionError."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

_DEEPEST = 200
"""Lists and objects within each other. The deepest manifests, CustomResourceDefinitions, have about 60."""
_BEGINS, _ENDS = yaml.CollectionStartEvent, yaml.CollectionEndEvent


def read_yaml(text: str | bytes, loader: Any = yaml.SafeLoader) -> Any:
    """The only document of a text. Raises yaml.YAMLError."""
    refuse_deep(text, loader)
    return yaml.load(text, Loader=loader)


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
