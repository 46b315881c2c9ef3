"""`rebalancer report`: what is out of balance, and the fewest evictions that repair it. Changes nothing."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode, program_name
from rebalancer.cli.progress import progress
from rebalancer.report.formats import Color, Format, format_of

if TYPE_CHECKING:
    from rebalancer.model.reason import Reason
    from rebalancer.model.snapshot import Snapshot
    from rebalancer.runtime.commands.source import Source
    from rebalancer.settings import Settings

EXAMPLES = """\b
Examples:
  rebalancer report
  rebalancer report cluster.json -o wide
  kubectl get nodes,pods,rs,deploy,sts,pdb,pv,pvc -A -o json | rebalancer report --snapshot -
  rebalancer report -n shop --exit-code -o json --output-file report.json
"""


def report(
    files: options.Files = None,
    snapshot: options.Snapshots = None,
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
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if a constraint in scope is violated.")
    ] = False,
    now: options.Now = None,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    config: options.ConfigFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    groups: options.Groups = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show what is out of balance and the fewest evictions that repair it.

    Nothing is changed.
    """
    # Imported here, so that --help and --version do not load the engine.
    import msgspec

    from rebalancer.findings import plan_with_findings
    from rebalancer.output_file import output_file as written
    from rebalancer.report import build_report, render, write
    from rebalancer.report.next_steps import Command
    from rebalancer.report.showing import Showing
    from rebalancer.report.view import in_namespaces
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.runtime.cycle.snapshot_checks import check_namespaces
    from rebalancer.runtime.observers.neighbours import neighbours
    from rebalancer.settings import load_settings, plan_options

    settings = load_settings(config, flags=options.scope_of(namespace, all_namespaces))
    began = time.perf_counter()
    source = options.source_of(
        [*(files or ()), *(snapshot or ())], kubeconfig, context, impersonate, groups, now
    )
    with progress("reading the cluster"):
        loaded = load_snapshot(source)
    check_namespaces(loaded.snapshot, namespace or ())
    planning = plan_options(settings)
    if resting := _resting(settings, source, loaded.snapshot):
        policy = msgspec.structs.replace(planning.policy, resting=resting)
        planning = msgspec.structs.replace(planning, policy=policy)
    with progress(f"planning for {len(loaded.snapshot.pods):,} pods"):
        planned = plan_with_findings(loaded.snapshot, planning)
    document = build_report(
        planned,
        loaded.snapshot,
        generated_at=now if now is not None else time.time(),
        seconds=time.perf_counter() - began,
        cluster=loaded.cluster,
        around=neighbours(loaded.snapshot),
        namespaces=settings.scope.namespaces.include,
    )
    if only := settings.scope.namespaces.include:
        document = in_namespaces(document, only)
    command = Command(
        program_name(sys.argv[0]),
        options.given(
            config=config,
            kubeconfig=kubeconfig,
            context=context,
            impersonate=impersonate,
            groups=groups,
            namespaces=namespace,
            every=all_namespaces,
        ),
    )
    showing = Showing(color=color, command=command, summary=summary, top=top)
    if output_file is not None and str(output_file) != "-":
        with written(str(output_file)) as file:
            write(document, output or format_of(output_file.name) or Format.TABLE, file, showing=showing)
    elif output is Format.JSON:
        write(document, output, sys.stdout.buffer)
    else:
        shown = render(document, output or Format.TABLE, stream=sys.stdout, showing=showing)
        sys.stdout.write(shown)
    if exit_code and document.summary.violated:
        raise typer.Exit(ExitCode.VIOLATIONS)


def _resting(settings: Settings, source: Source, snapshot: Snapshot) -> dict[str, Reason]:
    """Which owners the ledger says are left alone. Files have none, and need no client."""
    if source.snapshots:
        return {}
    from rebalancer.runtime.commands.resting_owners import resting_owners

    return resting_owners(settings, source, snapshot)
