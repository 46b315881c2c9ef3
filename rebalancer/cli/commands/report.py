"""`rebalancer report`: what is out of balance, and the fewest evictions that repair it. Changes nothing."""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rebalancer import __version__
from rebalancer.cli import options
from rebalancer.cli.console import ExitCode, program_name, progress
from rebalancer.cli.options import USUAL, Reach, reaches_a_cluster
from rebalancer.report.formats import Color, Format, format_of

if TYPE_CHECKING:
    from rebalancer.runtime.commands.source import Source
    from rebalancer.settings import Settings


_TABLES = (Format.TABLE, Format.WIDE)
REPORT_EXAMPLES = """\b
Examples:
  rebalancer report
  rebalancer report deploy/web -n shop
  rebalancer report -l app=web --watch 30s
  rebalancer report cluster.json -o wide
  kubectl get nodes,pods,rs,deploy,sts,pdb,pv,pvc -A -o json | rebalancer report --snapshot -
  rebalancer report -n shop --exit-code -o json --output-file report.json
  rebalancer report --drill -o html --output-file report.html
  rebalancer report --contexts prod-eu,prod-us
"""


@reaches_a_cluster
def report(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND/NAME|FILE|DIR|-]",
            help="A workload (deploy/web), of which alone is shown; else as --snapshot.",
            show_default=False,
        ),
    ] = None,
    snapshot: options.Snapshots = None,
    selector: Annotated[
        str,
        typer.Option(
            "--selector", "-l", metavar="LABELS", help="Show these pods' workloads alone, as in kubectl."
        ),
    ] = "",
    watch: Annotated[
        str,
        typer.Option(
            "--watch", metavar="DURATION", help="Show it again and again, 30s say, until interrupted."
        ),
    ] = "",
    output: Annotated[
        Format | None,
        typer.Option("--output", "-o", help="Default: by the ending of --output-file, else table."),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output-file", metavar="FILE", help="Write to a file instead of standard output."),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="The verdict, zones and namespaces alone (tables).")
    ] = False,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, help="Show N rows of each list (tables).")
    ] = 50,
    color: Annotated[
        Color, typer.Option("--color", help="Colour tables; auto: on a terminal without NO_COLOR.")
    ] = Color.AUTO,
    drill: Annotated[
        bool,
        typer.Option(
            "--drill", help="Add what the failure of each node and each domain would leave Pending."
        ),
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if a constraint in scope is violated.")
    ] = False,
    now: options.Now = None,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    config: options.ConfigFile = None,
    contexts: Annotated[
        str,
        typer.Option(
            "--contexts",
            metavar="A,B,…",
            help="One report of several clusters, by their contexts.",
            rich_help_panel="Cluster",
        ),
    ] = "",
    fleet: Annotated[
        Path | None,
        typer.Option(
            "--fleet",
            metavar="DIR",
            help="One report of several clusters: each file and folder in DIR is one, a snapshot or a report "
            "(-o json) of it.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", min=1, help="With --fleet: so many clusters are planned side by side."),
    ] = 1,
    reach: Reach = USUAL,
) -> None:
    """Show what is out of balance and the fewest evictions that repair it.

    Nothing is changed.
    """
    # Imported here, so that --help and --version do not load the engine.
    from rebalancer.cli.commands.explain import seconds_of
    from rebalancer.output_file import output_file as written
    from rebalancer.report.exports import render, write
    from rebalancer.report.words import Command, Showing
    from rebalancer.runtime.commands.explain import is_workload
    from rebalancer.runtime.commands.reports import report_of

    settings = options.settings_of(config, namespace, all_namespaces)
    whose = [f for f in files or () if is_workload(f) and not Path(f).exists()]
    paths = [f for f in (*(files or ()), *(snapshot or ())) if f not in whose]
    if len(whose) > 1 or (whose and selector) or ((whose or selector) and (contexts or fleet)):
        raise typer.BadParameter("one workload, or --selector, of one cluster")
    if watch and (paths or output_file or contexts or fleet or (output or Format.TABLE) not in _TABLES):
        raise typer.BadParameter("--watch shows tables of a live cluster, and writes no file")
    every = seconds_of(watch) if watch else 0.0
    source = options.source_of(reach, paths, now=now, namespaces=settings.scope.read_namespaces)
    form = output or (format_of(output_file.name) if output_file is not None else None) or Format.TABLE
    to_file = output_file is not None and str(output_file) != "-"
    if contexts or fleet is not None:
        to = output_file if to_file else None
        _report_fleet(settings, source, contexts, fleet, form, to, exit_code, jobs)
        return
    command = Command(
        program_name(sys.argv[0]),
        options.given(
            config=config,
            reach=reach,
            namespaces=namespace,
            every=all_namespaces,
        ),
    )
    showing = Showing(color=color, command=command, summary=summary, top=top)
    made = partial(
        report_of,
        settings,
        source,
        namespace or (),
        drill=drill,
        whose="".join(whose),
        selector=selector,
        shows=progress,
    )
    document = made()
    if to_file:
        with written(str(output_file)) as file:
            write(document, form, file, showing=showing)
    elif form is Format.JSON:
        write(document, form, sys.stdout.buffer)
    else:
        sys.stdout.write(render(document, form, stream=sys.stdout, showing=showing))
    while watch:
        time.sleep(every)
        document = made()
        shown = render(document, form, stream=sys.stdout, showing=showing)
        # What was there before goes, on a terminal; a log has one after the other.
        sys.stdout.write(f"\x1b[H\x1b[2J\x1b[3J{shown}" if sys.stdout.isatty() else f"\n{shown}")
        sys.stdout.flush()
    if exit_code and document.summary.violated:
        raise typer.Exit(ExitCode.VIOLATIONS)


def _report_fleet(
    settings: Settings,
    source: Source,
    contexts: str,
    folder: Path | None,
    form: Format,
    file: Path | None,
    exit_code: bool,
    jobs: int,
) -> None:
    """One report of several clusters; exits with 1 if one of them could not be read."""
    from rebalancer.output_file import output_file as written
    from rebalancer.report.exports import render
    from rebalancer.runtime.commands.reports import fleet_report, report_of, sources_in, sources_of

    if source.snapshots or source.context or (contexts and folder is not None):
        raise typer.BadParameter("--contexts, --fleet, --context and files exclude each other")
    sources = sources_in(folder, source) if folder is not None else sources_of(contexts, source)
    generated_at = source.clock()
    document = fleet_report(
        sources, partial(report_of, settings, shows=progress), generated_at=generated_at, jobs=jobs
    )
    shown = render(document, form, stream=sys.stdout if file is None else None)
    if file is not None:
        with written(str(file)) as out:
            out.write(shown.encode())
    else:
        sys.stdout.write(shown)
    if document.summary.unreadable:
        raise typer.Exit(ExitCode.ERROR)
    if exit_code and document.summary.violated:
        raise typer.Exit(ExitCode.VIOLATIONS)


# `rebalancer version`: which version this is, and which schedulers it knows.


def versions() -> dict[str, Any]:
    """Of this tool, of the schedulers whose rules it knows, of Python, and of the packages that it uses."""
    from importlib import metadata

    from rebalancer.engine.version import FIRST, LAST

    try:
        needed = [
            re.split(r"[^\w.-]", r)[0] for r in metadata.requires("kube-rebalancer") or () if "extra" not in r
        ]
    except metadata.PackageNotFoundError:  # in the image, which holds nothing else
        needed = [d.name for d in metadata.distributions()]
    packages = {}
    for name in sorted(needed, key=str.lower):
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return {
        "version": __version__,
        "kubeScheduler": {k: ".".join(map(str, v)) for k, v in (("from", FIRST), ("to", LAST))},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": packages,
    }


def version(
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Output format.")
    ] = "text",
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show the version."""
    if output == "json":
        typer.echo(json.dumps(versions(), indent=2))
    else:
        typer.echo(f"rebalancer {__version__}")
