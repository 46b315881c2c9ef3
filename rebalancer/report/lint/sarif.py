"""Findings as SARIF 2.1.0, which code scanning of GitHub, Azure DevOps and others shows."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from rebalancer import __version__
from rebalancer.report.lint.diagnostic import Diagnostic, Linted
from rebalancer.report.output import harmless

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
    """The same for the same finding after lines have moved."""
    return hashlib.sha256("\0".join((d.file, d.code, d.object, d.field)).encode()).hexdigest()[:32]
