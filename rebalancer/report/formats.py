"""The values of `-o`. They have a file of their own, because --help must not load the rest of the report."""

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
    CSV = "csv"
    OPENREPORTS = "openreports"


class Color(StrEnum):
    """When tables are coloured; auto: on a terminal, unless NO_COLOR is set."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


_SUFFIXES = {
    ".json": Format.JSON,
    ".yaml": Format.YAML,
    ".yml": Format.YAML,
    ".md": Format.MARKDOWN,
    ".csv": Format.CSV,
    ".html": Format.HTML,
    ".htm": Format.HTML,
}


def format_of(file_name: str) -> Format | None:
    """The format for a file by the ending of its name; None if the ending is of no format."""
    return next(
        (f for suffix, f in _SUFFIXES.items() if file_name.lower().removesuffix(".gz").endswith(suffix)), None
    )
