"""`rebalancer once`: one cycle, for a person or a CronJob."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.exits import ExitCode

EXAMPLES = """\b
Examples:
  # What would be done
  rebalancer once
  # Do it
  rebalancer once --execute
\b
  # Ask the API server for its verdict on each planned eviction, beside the plan's
  rebalancer once --dry-run=server
\b
  # Review first, then do exactly that
  rebalancer report -o json --output-file plan.json
  rebalancer once --plan plan.json --execute
"""


def once(
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Evict only what this report (JSON) has, each pod only if still valid.",
        ),
    ] = None,
    execute: acting.Execute = False,
    dry_run: acting.DryRun = "",
    trace: acting.Trace = False,
    namespace: options.Namespaces = None,
    config: options.ConfigFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    groups: acting.Groups = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Plan and evict until nothing is left to do: one cycle.

    Nothing is evicted without --execute or evictions.enabled. An interrupt ends it between two evictions.
    With --execute somebody looks on: it does not wait for stabilization, cool-downs, the canary or an open
    circuit breaker, as a CronJob with evictions.enabled does.
    """
    from rebalancer.cli.lines import Lines
    from rebalancer.kube.connection import Connection
    from rebalancer.runtime.clock import SystemClock
    from rebalancer.runtime.configured import live_options, memory_of
    from rebalancer.runtime.daemon import stop_on_signals
    from rebalancer.runtime.live import Surroundings
    from rebalancer.runtime.neighbours import NeighbourWatch
    from rebalancer.runtime.once import run_once
    from rebalancer.runtime.outcome import End
    from rebalancer.runtime.reviewed import read_reviewed
    from rebalancer.runtime.telemetry import observers_of, telemetry_options, telling
    from rebalancer.settings import load_settings

    settings = load_settings(config, flags=acting.flags(namespace, execute=execute, dry_run=dry_run))
    acting.set_up_logging(settings, least="warning")
    reviewed = read_reviewed(plan) if plan is not None else None
    connection = Connection(acting.cluster_options(kubeconfig, context, impersonate, groups))
    if reviewed is not None and reviewed.cluster and reviewed.cluster != connection.context:
        typer.echo(f"warning: {plan} is of {reviewed.cluster}, this is {connection.context}", err=True)
    stop = threading.Event()
    clock = SystemClock(stop)
    live = live_options(settings, connection, ask_server=dry_run == "server")
    memory = memory_of(settings, connection, clock, attended=execute or reviewed is not None)
    lines = Lines()
    telemetry_on = telling(telemetry_options(settings, context=connection.context), print_traces=trace)
    with stop_on_signals(stop), telemetry_on as telemetry:
        report = run_once(
            connection,
            live,
            clock=clock,
            observers=[*observers_of(telemetry), lines, NeighbourWatch(lines)],
            reviewed=reviewed,
            around=Surroundings(memory=memory),
        )
    connection.close()
    if report.end is End.RECORDED:
        judged = ": the API server only gave its verdicts" if live.ask_server else ""
        typer.echo(f"nothing was evicted{judged}; --execute does it")
    if report.failed or report.mispredicted:
        raise typer.Exit(ExitCode.SOME_FAILED)
    if not report.ok:
        raise typer.Exit(ExitCode.ERROR)
