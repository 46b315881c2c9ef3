"""`rebalancer report`: what is out of balance, and the fewest evictions that mend it. Changes nothing."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.progress import progress
from rebalancer.report.formats import Format, format_of

EXAMPLES = """\b
Examples:
  rebalancer report
  rebalancer report --snapshot cluster.json -o wide
  kubectl get nodes,pods,rs,deploy,sts,pdb,pv,pvc -A -o json | rebalancer report --snapshot -
  rebalancer report -n shop --exit-code -o json --output-file report.json
"""


def report(
    snapshot: options.Snapshots = None,
    output: Annotated[
        Format | None,
        typer.Option("--output", "-o", help="Default: table, or what --output-file's name ends with."),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output-file", metavar="FILE", help="Write there instead of standard output."),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if a constraint in scope is violated.")
    ] = False,
    now: options.Now = None,
    namespace: options.Namespaces = None,
    config: options.ConfigFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show what is out of balance and the fewest evictions that mend it.

    Nothing is changed.
    """
    # Imported here so that --help and --version do not wait for the engine.
    import msgspec

    from rebalancer.planner import plan
    from rebalancer.report import build_report, render
    from rebalancer.runtime.neighbours import neighbours
    from rebalancer.runtime.remembered import resting_owners
    from rebalancer.runtime.source import load_snapshot
    from rebalancer.settings import load_settings, plan_options

    settings = load_settings(config, flags=options.scope_of(namespace))
    began = time.perf_counter()
    source = options.source_of(snapshot, kubeconfig, context, impersonate, now)
    with progress("reading the cluster"):
        loaded = load_snapshot(source)
    planning = plan_options(settings)
    if resting := resting_owners(settings, source, loaded.snapshot):
        policy = msgspec.structs.replace(planning.policy, resting=resting)
        planning = msgspec.structs.replace(planning, policy=policy)
    with progress(f"planning for {len(loaded.snapshot.pods):,} pods"):
        planned = plan(loaded.snapshot, planning)
    document = build_report(
        planned,
        loaded.snapshot,
        generated_at=now if now is not None else time.time(),
        seconds=time.perf_counter() - began,
        cluster=loaded.cluster,
        around=neighbours(loaded.snapshot),
    )
    if output_file is None:
        sys.stdout.write(render(document, output or Format.TABLE, stream=sys.stdout))
    else:
        chosen = output or format_of(output_file.name) or Format.TABLE
        _write(output_file, render(document, chosen))
    if exit_code and document.summary.violated:
        raise typer.Exit(ExitCode.VIOLATIONS)


def _write(file: Path, content: str) -> None:
    from rebalancer.errors import UserError

    try:
        file.write_text(content, encoding="utf-8")
    except OSError as e:
        raise UserError(f"{file}: cannot be written: {(e.strerror or str(e)).lower()}") from e
