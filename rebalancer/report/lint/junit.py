"""Findings as JUnit XML, which CI systems show as tests: a case for each, failed unless it is a note."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from rebalancer.report.lint.diagnostic import Linted
from rebalancer.report.wording.text import clean

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
