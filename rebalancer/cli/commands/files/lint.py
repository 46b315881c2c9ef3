"""`rebalancer lint`: findings in manifests, for CI, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode

if TYPE_CHECKING:
    from rebalancer.report.lint.diagnostic import Linted

EXAMPLES = """\b
Examples:
  rebalancer lint deploy/
  helm template chart/ -f prod.yaml | rebalancer lint -
  kustomize build overlays/prod | rebalancer lint -
  # Warnings fail too, and replicated workloads without any constraint are warned of
  rebalancer lint --strict --severity no-spread=warning deploy/
  # On three zones of four nodes each: would every pod find a node, and find one again?
  rebalancer lint --nodes a=4,b=4,c=4 deploy/
  # In CI
  rebalancer lint -o github deploy/
  rebalancer lint -o sarif deploy/ > lint.sarif
"""


class LintFormat(StrEnum):
    """An output format."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"
    GITLAB = "gitlab"


def lint(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|DIR|-...", help="YAML or JSON; - is standard input.")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings as well.")] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="CODE", help="Leave out findings of this code (repeatable)."),
    ] = None,
    severity: Annotated[
        list[str] | None,
        typer.Option(
            "--severity",
            metavar="CODE=LEVEL",
            help="Give findings of a code the level error, warning, info or off (repeatable). "
            "no-spread is off by default.",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="FILE|ZONE=N,...",
            help="Judge also whether all pods find a node, and would again, on these nodes: what kubectl get "
            "nodes -o yaml prints, or their number by zone.",
        ),
    ] = None,
    output: Annotated[LintFormat, typer.Option("--output", "-o", help="Output format.")] = LintFormat.TEXT,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Check spread constraints and disruption budgets in manifests, without a cluster.

    The files are judged together: a budget in one file covers a workload in another. Helm charts and
    kustomizations are not rendered: hand over what helm or kustomize prints. The exit code is 3 if there is
    an error, or with --strict a warning. A comment `# rebalancer: ignore CODE` leaves a finding out.
    """
    from rebalancer.model.finding import Severity
    from rebalancer.report.wording.text import clean
    from rebalancer.runtime.commands.lint.lint import lint as check

    levels = _levels(ignore or (), severity or ())
    linted = _levelled(check(files, nodes=nodes), levels)
    for note in linted.notes:
        typer.echo(clean(f"note: {note}"), err=True)
    typer.echo(_written(linted, output), nl=False)
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    if any(d.severity in failing for d in linted.diagnostics):
        raise typer.Exit(ExitCode.VIOLATIONS)


def _levels(ignore: Iterable[str], severity: Iterable[str]) -> dict[str, str]:
    """Code → level, or "off"."""
    from rebalancer.findings import FindingCode
    from rebalancer.model.finding import Severity
    from rebalancer.runtime.commands.lint.checks import LintCode

    known = sorted({c.value for codes in (FindingCode, LintCode) for c in codes})
    legal = ("off", *(s.value for s in Severity))
    levels = {LintCode.NO_SPREAD.value: "off", **dict.fromkeys(ignore, "off")}
    for said in severity:
        code, _, level = said.partition("=")
        if level not in legal:
            raise typer.BadParameter(
                f"{said!r} is not CODE=LEVEL with one of {', '.join(legal)}", param_hint="--severity"
            )
        levels[code] = level
    if unknown := [c for c in levels if c not in known]:
        raise typer.BadParameter(f"no finding is called {unknown[0]}; there are: {', '.join(known)}")
    return levels


def _levelled(linted: Linted, levels: dict[str, str]) -> Linted:
    from msgspec.structs import replace

    from rebalancer.model.finding import Severity

    kept = []
    for d in linted.diagnostics:
        level = levels.get(d.code, d.severity.value)
        if level != "off":
            kept.append(replace(d, severity=Severity(level)))
    return replace(linted, diagnostics=tuple(kept))


def _written(linted: Linted, output: LintFormat) -> str:
    from rebalancer.report.lint import github, gitlab, junit, sarif, text

    writers = {
        LintFormat.TEXT: text.to_text,
        LintFormat.JSON: text.to_json,
        LintFormat.GITHUB: github.to_github,
        LintFormat.SARIF: sarif.to_sarif,
        LintFormat.JUNIT: junit.to_junit,
        LintFormat.GITLAB: gitlab.to_gitlab,
    }
    return writers[output](linted)
