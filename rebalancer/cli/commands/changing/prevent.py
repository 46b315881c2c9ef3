"""`rebalancer prevent`: how scale-ins are steered, and the end of it."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.habits import KubectlCommand
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

app = typer.Typer(
    help="Steer scale-ins so that they keep the spread.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_SHOW = """\b
Examples:
  # Which deletion costs would be written if every workload's scale-in were steered (changes nothing)
  rebalancer prevent show --all
\b
  # The same for a cluster in a file, as the settings say
  rebalancer prevent show --snapshot cluster.json --config rebalancer.yaml
"""
_OFF = """\b
Examples:
  # Remove every deletion cost that this tool has written
  rebalancer prevent off
"""


@app.command(epilog=_SHOW, cls=KubectlCommand)
@reaches_a_cluster
def show(
    files: options.Files = None,
    snapshot: options.Snapshots = None,
    every: Annotated[
        bool, typer.Option("--all", help="As with prevention.scaleIn: all, whatever the settings say.")
    ] = False,
    config: options.ConfigFile = None,
    namespace: options.Namespaces = None,
    reach: Reach = USUAL,
) -> None:
    """Show which pods would get which deletion cost, so that scale-ins keep the spread.

    Nothing is changed.
    """
    from msgspec.structs import replace

    from rebalancer.outcome.steering import CostOutcome, CostResult, SteeringReport
    from rebalancer.prevention.scale_in.steering import steer
    from rebalancer.report.steering import steering_lines
    from rebalancer.report.wording.text import clean, plural
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.runtime.live.configured import scale_in_scope
    from rebalancer.settings import load_settings, plan_options

    settings = load_settings(config, flags=options.scope_of(namespace))
    planning = plan_options(settings)
    scope = scale_in_scope(settings, planning.policy)
    if every:
        scope = replace(scope, mode="all")
    if scope.mode == "off":
        typer.echo("prevention.scaleIn is off: no scale-in is steered; --all shows what could be")
        return
    source = options.source_of(
        [*(files or ()), *(snapshot or ())] or None, reach, namespaces=settings.scope.read_namespaces
    )
    found = steer(load_snapshot(source).snapshot, scope, planning.scheduler)
    outcomes = tuple(CostOutcome(c, CostResult.RECORDED) for o in found.owners for c in o.changes)
    for line in steering_lines(SteeringReport(steering=found, outcomes=outcomes)):
        typer.echo(clean(line))
    steered = sum(o.order is not None for o in found.owners)
    typer.echo(f"{plural(steered, 'workload')} steered, {plural(found.changes, 'deletion cost')} to write")


@app.command(epilog=_OFF, cls=KubectlCommand)
@reaches_a_cluster
def off(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="In this namespace only.")
    ] = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Remove every deletion cost that this tool has written. Set prevention.scaleIn: off first.

    Needs the rights to list and to patch pods. Costs that somebody else has set are left alone.
    """
    from rebalancer.kube.client.connection import Connection
    from rebalancer.outcome.steering import CostOutcome, CostResult
    from rebalancer.report.wording.text import clean, plural
    from rebalancer.runtime.commands.prevent import take_back
    from rebalancer.runtime.cycle.clock import SystemClock
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.settings import load_settings

    settings = load_settings(config)
    acting.set_up_logging(settings, least="warning")
    if settings.prevention.scale_in != "off":
        typer.echo("warning: prevention.scaleIn is on in these settings: the costs will come back", err=True)

    def tell(outcome: CostOutcome) -> None:
        if outcome.result is CostResult.FAILED:
            typer.echo(clean(f"  failed: {outcome.change.pod.key}: {outcome.message}"), err=True)

    stop = threading.Event()
    connection = Connection(acting.cluster_options(reach))
    with stop_on_signals(stop):
        removed, left = take_back(connection, namespace, SystemClock(stop), tell)
    connection.close()
    typer.echo(f"removed from {plural(removed, 'pod')}" + (f", {left} are left" if left else ""))
    if left:
        raise typer.Exit(ExitCode.ERROR)
