"""Findings for a terminal, and as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import msgspec
from msgspec import Struct

from rebalancer import __version__
from rebalancer.model.reason import Severity, clean, plural
from rebalancer.report.output import harmless

# A finding in a manifest, and where it is.


class Diagnostic(Struct, frozen=True, rename="camel"):
    """A finding and where it is. Lines count from 1."""

    file: str
    line: int
    severity: Severity
    code: str
    object: str
    message: str
    remedy: str = ""
    field: str = ""

    @property
    def sentence(self) -> str:
        """The object and the message in one line."""
        words = " ".join(self.message.split())
        return f"{self.object}: {words}" if self.object else words

    @property
    def told(self) -> str:
        """The same and, on lines of its own, the remedy, where there is one."""
        return f"{self.sentence}\n{self.remedy}" if self.remedy else self.sentence


class Linted(Struct, frozen=True):
    """What was found in how many workloads and files; diagnostics by file and line.

    `ignored`: how many a comment or an option left out. `notes`: what was not looked at, and why.
    """

    diagnostics: tuple[Diagnostic, ...]
    workloads: int
    files: int
    ignored: int = 0
    notes: tuple[str, ...] = ()


def to_text(linted: Linted) -> str:
    """Each with its remedy, errors first, then how many."""
    found = sorted(linted.diagnostics, key=lambda d: list(_LEVELS).index(d.severity.value))
    lines = [*(line for d in found for line in _told(d)), _summary(linted)]
    return "\n".join(map(clean, lines)) + "\n"


def to_json(linted: Linted) -> str:
    """A document of `rebalancer/v1`."""
    document = {
        "apiVersion": "rebalancer/v1",
        "kind": "Lint",
        "findings": linted.diagnostics,
        "workloads": linted.workloads,
        "files": linted.files,
        "ignored": linted.ignored,
        "notes": linted.notes,
    }
    return harmless(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def _told(d: Diagnostic) -> list[str]:
    whose = f" {d.object}" if d.object else ""
    head = f"{d.file}:{d.line}: {d.severity.value} {d.code}{whose}: {' '.join(d.message.split())}"
    return [head, *(f"    {line}" for line in d.remedy.split("\n") if line)]


def _summary(linted: Linted) -> str:
    counts = Counter(d.severity.value for d in linted.diagnostics)
    told = [plural(counts[s], s) for s in ("error", "warning") if counts[s]]
    told += [plural(counts["info"], "note")] if counts["info"] else []
    where = f"{plural(linted.workloads, 'workload')} in {plural(linted.files, 'file')}"
    ignored = f", {linted.ignored:,} ignored" if linted.ignored else ""
    return f"{', '.join(told) or 'nothing found'}: {where}{ignored}"


# Findings as workflow commands of GitHub Actions: annotations in a pull request.


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


# Findings as SARIF 2.1.0, which code scanning of GitHub, Azure DevOps and others shows.

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def to_sarif(linted: Linted) -> str:
    """A log with one run."""
    codes = sorted({d.code for d in linted.diagnostics})
    driver = {
        "name": "rebalancer",
        "version": __version__,
        "rules": [{"id": c, "name": c, "shortDescription": {"text": c.replace("-", " ")}} for c in codes],
    }
    run = {
        "tool": {"driver": driver},
        "results": [_result(d, codes.index(d.code)) for d in linted.diagnostics],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": note}} for note in linted.notes
                ],
            }
        ],
    }
    return harmless(json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)) + "\n"


def _result(d: Diagnostic, rule: int) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": quote(d.file)}, "region": {"startLine": d.line}}
    return {
        "ruleId": d.code,
        "ruleIndex": rule,
        "level": _LEVELS[d.severity.value],
        "message": {"text": d.told},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"finding/v1": fingerprint(d)},
    }


def fingerprint(d: Diagnostic) -> str:
    """A digest that the same finding keeps after lines have moved."""
    return hashlib.sha256("\0".join((d.file, d.code, d.object, d.field)).encode()).hexdigest()[:32]


# Findings as GitLab reads them: a Code Quality report.

_SEVERITIES = {"error": "major", "warning": "minor", "info": "info"}


def to_gitlab(linted: Linted) -> str:
    """A list of issues; two of one field of an object differ by their number."""
    seen: dict[str, int] = {}
    issues = []
    for d in linted.diagnostics:
        mark = fingerprint(d)
        again = seen[mark] = seen.get(mark, 0) + 1
        issues.append(
            {
                "description": d.sentence,
                "check_name": d.code,
                "fingerprint": mark if again == 1 else f"{mark}-{again}",
                "severity": _SEVERITIES[d.severity.value],
                "location": {"path": d.file, "lines": {"begin": d.line}},
            }
        )
    return harmless(json.dumps(issues, indent=2)) + "\n"


# Findings as JUnit XML, which CI systems show as tests: a case for each, failed unless it is a note.

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_junit(linted: Linted) -> str:
    """One suite; without a finding, one case that passes."""
    failing = sum(d.severity.value != "info" for d in linted.diagnostics)
    cases = max(len(linted.diagnostics), 1)
    counts = {"tests": str(cases), "failures": str(failing), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "rebalancer lint", **counts})
    for d in linted.diagnostics:
        name = f"{d.code} {d.object}".strip()
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"name": _text(name), "classname": _text(d.file), "file": _text(d.file), "line": str(d.line)},
        )
        if d.severity.value == "info":
            ElementTree.SubElement(case, "system-out").text = _text(d.message)
            continue
        failure = ElementTree.SubElement(
            case, "failure", {"type": d.severity.value, "message": _text(d.sentence)}
        )
        failure.text = "\n".join(map(_text, f"{d.file}:{d.line}: {d.message}\n{d.remedy}".split("\n")))
    if not linted.diagnostics:
        ElementTree.SubElement(suite, "testcase", {"name": "no finding", "classname": "rebalancer lint"})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _text(words: str) -> str:
    return _NO_XML.sub("", clean(words))


WRITERS = {
    "text": to_text,
    "json": to_json,
    "github": to_github,
    "sarif": to_sarif,
    "junit": to_junit,
    "gitlab": to_gitlab,
}
"""All formats."""
