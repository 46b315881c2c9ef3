"""What `-o` takes; apart, because the command line offers the names before anything else is loaded."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """An output format."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"
    HTML = "html"


_SUFFIXES = {
    ".json": Format.JSON,
    ".yaml": Format.YAML,
    ".yml": Format.YAML,
    ".md": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
}


def format_of(file_name: str) -> Format | None:
    """The format that a file's name asks for, if any."""
    return next((f for suffix, f in _SUFFIXES.items() if file_name.lower().endswith(suffix)), None)
