"""`rebalancer lint`: the findings of manifests, for CI, without a cluster."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode

if TYPE_CHECKING:
    from rebalancer.runtime.lint import Diagnostic, Linted

EXAMPLES = """\b
Examples:
  rebalancer lint deploy/
  helm template chart/ | rebalancer lint -
  kustomize build overlays/prod | rebalancer lint --strict -
  rebalancer lint -o github deploy/          # annotations in a pull request
"""


class LintFormat(StrEnum):
    """An output format."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def lint(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|DIR|-...", help="YAML or JSON; - is standard input.")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODE", help="Leave a finding out (repeatable).")
    ] = None,
    output: Annotated[LintFormat, typer.Option("--output", "-o", help="How to print.")] = LintFormat.TEXT,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Check spread constraints and disruption budgets in manifests, without a cluster.

    The files are taken together: a budget in one covers a workload in another. Exits with 3 if there is an
    error, or with --strict a warning.
    """
    from rebalancer.errors import UserError
    from rebalancer.planner.findings import FindingCode
    from rebalancer.planner.plan import Severity
    from rebalancer.runtime.lint import lint as check

    known = {c.value for c in FindingCode}
    if unknown := [c for c in ignore or () if c not in known]:
        raise UserError(f"--ignore {unknown[0]}: no such finding", f"there are: {', '.join(sorted(known))}")
    linted = check(files)
    found = [d for d in linted.diagnostics if d.code not in (ignore or ())]
    if output is LintFormat.JSON:
        typer.echo(_json(found))
    elif output is LintFormat.GITHUB:
        for d in found:
            typer.echo(_annotation(d))
    else:
        for d in found:
            typer.echo(_text(d))
        typer.echo(_summary(found, linted))
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    if any(d.severity in failing for d in found):
        raise typer.Exit(ExitCode.VIOLATIONS)


def _text(d: Diagnostic) -> str:
    from rebalancer.report.text import clean

    whose = f" {d.object}" if d.object else ""
    lines = [f"{d.file}:{d.line}: {d.severity.value} {d.code}{whose}: {' '.join(d.message.split())}"]
    lines += (f"    {line}" for line in d.remedy.split("\n") if line)
    return "\n".join(map(clean, lines))


def _summary(found: list[Diagnostic], linted: Linted) -> str:
    from rebalancer.report.text import plural

    counts = Counter(d.severity.value for d in found)
    told = [plural(counts[s], s) for s in ("error", "warning") if counts[s]]
    told += [plural(counts["info"], "note")] if counts["info"] else []
    where = f"{plural(linted.workloads, 'workload')} in {plural(linted.files, 'file')}"
    return f"{', '.join(told) or 'nothing found'}: {where}"


def _json(found: list[Diagnostic]) -> str:
    import msgspec

    from rebalancer.report.output import harmless

    document = {"apiVersion": "rebalancer/v1", "kind": "Lint", "findings": found}
    return harmless(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _annotation(d: Diagnostic) -> str:
    """A workflow command of GitHub Actions; its own escapes for what would end it."""
    from rebalancer.report.text import clean

    def value(words: str) -> str:
        return clean(words).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")

    level = "notice" if d.severity.value == "info" else d.severity.value
    message = "%0A".join(
        clean(line).replace("%", "%25") for line in f"{d.object}: {d.message}\n{d.remedy}".split("\n")
    )
    return f"::{level} file={value(d.file)},line={d.line},title={value(d.code)}::{message}"
