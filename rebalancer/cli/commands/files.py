"""`rebalancer config`: check, show, describe and translate settings."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec.structs import replace

from rebalancer.cli import options
from rebalancer.cli.console import ExitCode, progress
from rebalancer.cli.options import USUAL, Reach, reaches_a_cluster
from rebalancer.model.reason import Severity, clean, plural

if TYPE_CHECKING:
    from rebalancer.report.linted import Linted


# `rebalancer config from-descheduler`: translates a descheduler policy into settings of this tool.


def from_descheduler(
    policy: Annotated[
        Path, typer.Argument(metavar="POLICY.yaml", help="A DeschedulerPolicy, or the ConfigMap with it.")
    ],
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Translate a descheduler policy (v1alpha2) into settings.

    Prints a settings file. Comments at its top list what has no counterpart. It does not allow evictions:
    evictions.enabled stays false.
    """
    import yaml

    from rebalancer.settings import SettingsError, load_settings
    from rebalancer.settings.descheduler_policy import read_policy, translate

    made = translate(read_policy(policy))
    try:
        load_settings(env={}, flags=made.settings)
    except SettingsError as e:
        said = [f"{policy}: as {p.removeprefix('command line: ')}" for p in e.problems]
        raise SettingsError(said, "correct the policy, then translate it again") from e
    lines = [f"# Translated from {policy.name}. Nothing is evicted until evictions.enabled is true."]
    if made.notes:
        lines += ["#", "# Without counterpart:"]
        lines += [f"#   {note.path}: {note.text}" for note in made.notes]
    sys.stdout.write("\n".join(lines) + "\n")
    if made.settings:
        sys.stdout.write(yaml.safe_dump(made.settings, sort_keys=False, allow_unicode=True))


app = typer.Typer(
    help="Check, show, describe and translate settings.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command()(from_descheduler)


@app.command()
def validate(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The settings to check; default: --config.")
    ] = None,
    config: options.ConfigFile = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Check a settings file and the environment.

    Every mistake is shown with its place.
    """
    from rebalancer.settings import SettingsError, load_settings

    chosen = file or config
    try:
        load_settings(chosen)
    except SettingsError as e:
        for problem in e.problems:
            print(f"error: {problem}", file=sys.stderr)
        raise typer.Exit(ExitCode.ERROR) from e
    print(f"{chosen or 'environment'}: valid")


@app.command()
def show(
    config: options.ConfigFile = None,
    defaults: Annotated[
        bool,
        typer.Option("--defaults", help="Show the default and the meaning of every setting instead."),
    ] = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show the settings in effect as YAML."""
    from rebalancer.settings import Settings, load_settings
    from rebalancer.settings.loading import to_yaml

    sys.stdout.write(
        to_yaml(Settings.defaults(), comments=True) if defaults else to_yaml(load_settings(config))
    )


@app.command()
def schema(debug: options.Debug = False) -> None:  # noqa: ARG001
    """Show the JSON Schema of the settings file, for editors."""
    import json

    from rebalancer.settings.loading import schema as settings_schema

    print(json.dumps(settings_schema(), indent=2))


# `rebalancer lint`: findings in manifests, for CI, without a cluster.

LINT_EXAMPLES = """\b
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
    output: Annotated[
        Literal["text", "json", "github", "sarif", "junit", "gitlab"],
        typer.Option("--output", "-o", help="Output format."),
    ] = "text",
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Check spread constraints and disruption budgets in manifests, without a cluster.

    The files are judged together: a budget in one file covers a workload in another. Helm charts and
    kustomizations are not rendered: hand over what helm or kustomize prints. The exit code is 3 if there is
    an error, or with --strict a warning. A comment `# rebalancer: ignore CODE` leaves a finding out.
    """
    from rebalancer.report.linted import WRITERS
    from rebalancer.runtime.commands.lint import lint as check

    levels = _levels(ignore or (), severity or ())
    linted = _levelled(check(files, nodes=nodes), levels)
    for note in linted.notes:
        typer.echo(clean(f"note: {note}"), err=True)
    typer.echo(WRITERS[output](linted), nl=False)
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    if any(d.severity in failing for d in linted.diagnostics):
        raise typer.Exit(ExitCode.VIOLATIONS)


def _levels(ignore: Iterable[str], severity: Iterable[str]) -> dict[str, str]:
    """Code → level, or "off"."""
    from rebalancer.findings import FindingCode
    from rebalancer.runtime.commands.lint import LintCode

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

    said = ((d, levels.get(d.code, d.severity.value)) for d in linted.diagnostics)
    kept = tuple(replace(d, severity=Severity(level)) for d, level in said if level != "off")
    return replace(linted, diagnostics=kept)


# `rebalancer snapshot`: writes a cluster into one file, from which anybody can make the same plan.

SNAPSHOT_EXAMPLES = """\b
Examples:
  rebalancer snapshot -o cluster.json.gz
  rebalancer report --snapshot cluster.json.gz
\b
  # To show it to others: names become pseudonyms, and everything that no plan needs is left out
  rebalancer snapshot --redact -o cluster.json.gz
  # A file that exists already
  rebalancer snapshot --snapshot cluster.json.gz --redact -o redacted.json.gz
"""


@reaches_a_cluster
def snapshot(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE|-", help="Compressed if the name ends with .gz.")
    ],
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Replace names by pseudonyms, and leave out what no plan needs."),
    ] = False,
    snapshot: options.Snapshots = None,
    now: options.Now = None,
    reach: Reach = USUAL,
) -> None:
    """Write everything that a plan depends on into one file, with the time at which it was read.

    A report from the file gives the same plan as one from the cluster at that time.
    """
    from rebalancer.runtime.commands.source import write_captured

    source = options.source_of(reach, snapshot, now=now)
    with progress(f"writing the cluster to {output}"):
        written = write_captured(source, output, redact=redact, stdout=lambda: sys.stdout.buffer)
    for warning in written.warnings:
        typer.echo(clean(f"warning: {warning}"), err=True)
    typer.echo(
        clean(
            f"{output}: {plural(written.objects, 'object')}, {plural(written.nodes, 'node')}, "
            f"{plural(written.pods, 'pod')}" + (", redacted" if redact else "")
        ),
        err=True,
    )


# `rebalancer bug-report`: what somebody needs who is to find a mistake.


@reaches_a_cluster
def bug_report(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to; compressed if it ends with .gz.")
    ] = Path("rebalancer-bug-report.tar.gz"),
    snapshot: options.Snapshots = None,
    now: options.Now = None,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Write a redacted snapshot, its plan, settings without names and secrets, and versions into one file.

    Read it before you pass it on: its parts are plain JSON and YAML.
    """
    import json
    import tarfile
    import tempfile

    from rebalancer.cli.commands.report import versions
    from rebalancer.output_file import output_file
    from rebalancer.report.output import to_json
    from rebalancer.runtime.commands.reports import report_of
    from rebalancer.runtime.commands.source import Source, write_captured
    from rebalancer.settings import load_settings
    from rebalancer.settings.loading import without_names
    from rebalancer.yaml import to_yaml

    said = without_names(load_settings(config))
    with tempfile.TemporaryDirectory() as folder, progress("reading the cluster, and planning"):
        parts = Path(folder)
        (parts / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")
        (parts / "settings.yaml").write_text(to_yaml(said))
        cluster = parts / "cluster.json"
        source = options.source_of(reach, snapshot, now=now)
        write_captured(source, str(cluster), redact=True, stdout=lambda: sys.stdout.buffer)
        # From the redacted file, so that the plan holds no name that the file does not.
        document = report_of(
            load_settings(parts / "settings.yaml", env={}), Source(snapshots=(str(cluster),))
        )
        (parts / "plan.json").write_text(to_json(document))
        with output_file(str(output)) as file, tarfile.open(fileobj=file, mode="w") as archive:
            for part in sorted(parts.iterdir()):
                archive.add(part, part.name)
    typer.echo(f"{output}: names are replaced by pseudonyms; read it before you pass it on")
