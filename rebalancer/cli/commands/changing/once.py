"""`rebalancer once`: one cycle, for a person or a CronJob."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

if TYPE_CHECKING:
    from rebalancer.outcome.cycle import CycleReport

EXAMPLES = """\b
Examples:
  # What would be done
  rebalancer once
  # Do it
  rebalancer once --execute
\b
  # Ask the API server whether it would allow each planned eviction
  rebalancer once --dry-run=server
\b
  # Review first, then do exactly that
  rebalancer report -o json --output-file plan.json
  rebalancer once --plan plan.json --execute
"""


@reaches_a_cluster
def once(
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Evict only the pods in this report (JSON), each only if its eviction is still right.",
        ),
    ] = None,
    execute: acting.Execute = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another rebalancer leads, instead of ending at once.")
    ] = False,
    dry_run: acting.DryRun = "",
    trace: acting.Trace = False,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    ledger_namespace: acting.LedgerNamespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Run one cycle: plan and evict until nothing is left to do.

    Nothing is evicted without --execute or evictions.enabled. An interrupt ends the cycle between two
    evictions. --execute assumes that somebody is watching, so it does not wait for stabilization, cool-downs,
    the canary or an open circuit breaker. With evictions.enabled alone, as in a CronJob, it does.
    """
    import msgspec

    from rebalancer.cli.lines import Lines
    from rebalancer.kube.client.connection import Connection
    from rebalancer.outcome.cycle import End
    from rebalancer.runtime.cycle.clock import SystemClock
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.runtime.live.assembly import LiveOptions
    from rebalancer.runtime.live.configured import live_options, telemetry_options
    from rebalancer.runtime.live.newest import Newest
    from rebalancer.runtime.live.notifying import notifying
    from rebalancer.runtime.live.places import places_of
    from rebalancer.runtime.live.single.once import run_once
    from rebalancer.runtime.live.single.reviewed import read_reviewed
    from rebalancer.runtime.live.single.session import session
    from rebalancer.runtime.live.single.steering import steered_after
    from rebalancer.runtime.observers.neighbours import NeighbourWatch
    from rebalancer.settings import Settings, load_settings
    from rebalancer.telemetry.start import telemetry_for

    said = acting.flags(
        namespace,
        all_namespaces,
        execute=execute,
        dry_run=dry_run,
        ledger_namespace=ledger_namespace,
    )
    settings = load_settings(config, flags=said)
    acting.set_up_logging(settings, least="warning")
    reviewed = read_reviewed(plan) if plan is not None else None
    connection = Connection(acting.cluster_options(reach))
    if reviewed is not None:
        for warning in acting.doubts(reviewed, connection.context, time.time()):
            typer.echo(f"warning: {warning}", err=True)
    stop = threading.Event()
    clock = SystemClock(stop, connection.time)
    places = places_of(settings, connection, wait=stop.wait)

    def options_of(settings: Settings) -> LiveOptions:
        live = live_options(settings, connection, places, ask_server=dry_run == "server")
        return msgspec.structs.replace(live, must_exist=tuple(namespace or ()))

    live = options_of(settings)
    newest = Newest(acting.settings_file(config), lambda: load_settings(config, flags=said), options_of)
    lines = Lines()
    telemetry_on = telemetry_for(telemetry_options(settings, context=connection.context), print_traces=trace)
    within = session(
        settings,
        connection,
        places,
        clock,
        newest=newest,
        attended=execute or reviewed is not None,
        wait=wait,
    )
    told_on = notifying(settings, context=connection.context)
    with stop_on_signals(stop), telemetry_on as telemetry, told_on as told, within as around:
        telemetry.watch_notices(told.mailboxes.results)
        report = run_once(
            connection,
            live,
            clock=clock,
            observers=[*telemetry.observers, lines, NeighbourWatch(lines), told.observer],
            reviewed=reviewed,
            around=around,
            afterwards=steered_after(
                connection, settings, live, clock, [*telemetry.observers, lines], around
            ),
        )
    connection.close()
    if report.end is End.RECORDED:
        judged = ": the API server only gave its verdicts" if live.ask_server else ""
        typer.echo(f"nothing was evicted{judged}; --execute does it")
    raise typer.Exit(_exit_code(report))


def _exit_code(report: CycleReport) -> ExitCode:
    from rebalancer.model.reason import ReasonCode
    from rebalancer.outcome.cycle import End

    if report.end is End.STOPPED:
        return ExitCode.INTERRUPTED
    if report.failed:
        return ExitCode.SOME_FAILED
    without_brake = report.reason is not None and report.reason.code is ReasonCode.NO_BRAKE
    return ExitCode.ERROR if without_brake or not report.ok else ExitCode.OK
