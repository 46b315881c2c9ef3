"""The reference of all settings: as commented YAML, and as JSON Schema for editors."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import yaml

from rebalancer.settings.groups.base import Explained
from rebalancer.settings.settings import Settings

_WIDTH = 96
_HEAD = """\
Every setting of rebalancer with its default. A setting that is left out keeps its default; a key that
is not listed here is an error. Each setting can also be given in the environment: policy.minPodAge is
REBALANCER_POLICY__MIN_POD_AGE. The environment has precedence over this file, and flags over both."""


def to_yaml(settings: Settings, *, comments: bool = False) -> str:
    """The settings as YAML, in the order of their classes; `comments` adds what each one means."""
    lines: list[str] = []
    if comments:
        lines += [f"# {line}" for line in _HEAD.splitlines()]
    _group(Settings, settings.plain(), 0, comments, lines)
    return "\n".join(lines) + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the configuration file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rebalancer configuration",
        **{k: v for k, v in Settings.model_json_schema(by_alias=True).items() if k != "title"},
    }


def _group(
    model: type[Explained], values: dict[str, Any], depth: int, comments: bool, lines: list[str]
) -> None:
    indent = "  " * depth
    meanings = model.meanings() if comments else {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = field.annotation if isinstance(field.annotation, type) else None
        if inner is not None and issubclass(inner, Explained):
            if comments:
                lines.append("")
                lines += _comment(inner.__doc__ or "", indent)
            lines.append(f"{indent}{key}:")
            _group(inner, values[key], depth + 1, comments, lines)
        else:
            if comments:
                lines += _comment(meanings[name], indent)
            lines.append(f"{indent}{key}: {_scalar(values[key])}")


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}" for line in textwrap.wrap(" ".join(text.split()), _WIDTH - len(indent))]


def _scalar(value: Any) -> str:
    """A value in one line: lists and mappings as JSON, all others in YAML's plain style."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if value == "":
        return '""'
    return yaml.safe_dump(value, width=10_000).removesuffix("...\n").strip()
