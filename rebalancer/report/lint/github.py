"""Findings as workflow commands of GitHub Actions: annotations in a pull request."""

from __future__ import annotations

from rebalancer.report.lint.diagnostic import Diagnostic, Linted
from rebalancer.report.wording.text import clean


def to_github(linted: Linted) -> str:
    """A line for each."""
    return "".join(f"{_annotation(d)}\n" for d in linted.diagnostics)


def _annotation(d: Diagnostic) -> str:
    level = "notice" if d.severity.value == "info" else d.severity.value
    message = "%0A".join(clean(line).replace("%", "%25") for line in d.told.split("\n"))
    return f"::{level} file={_value(d.file)},line={d.line},title={_value(d.code)}::{message}"


def _value(words: str) -> str:
    """A property, with what would end it escaped."""
    return clean(words).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
