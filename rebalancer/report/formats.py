"""The values of `-o`. They have a file of their own, because --help must not load the rest of the report."""

from __future__ import annotations

from collections.abc import Mapping
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


# The version of all documents that scripts read.

API_VERSION = "rebalancer/v1"


# The scheduler's integers as Kubernetes quantities: 500m, 1Gi.

_BINARY = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def quantity(resource: str, amount: int) -> str:
    """Millicores of cpu, bytes, or a number: in the largest unit in which it is whole."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for size, unit in _BINARY:
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """The quantity of each resource."""
    return {resource: quantity(resource, amount) for resource, amount in amounts.items()}
