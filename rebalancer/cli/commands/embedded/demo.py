"""`rebalancer demo`: the daemon on an embedded cluster, live."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Annotated

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.sandbox_extra import sandbox_needed

EXAMPLES = """\b
Examples:
  # Watch a daemon repair a cluster after a zone outage (half a minute, no Kubernetes needed)
  rebalancer demo
  # The same, and each cycle's trace as a tree
  rebalancer demo --trace
  # The broken cluster without the daemon, to try the other commands on (docs/tutorial.md)
  rebalancer demo --by-hand
  # Keep the cluster afterwards, and look around with kubectl
  rebalancer demo --keep
"""


def demo(
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed for ties between nodes and for start-up times.")
    ] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running afterwards, until interrupted.")
    ] = False,
    by_hand: Annotated[
        bool,
        typer.Option("--by-hand", help="Evict nothing: leave the broken cluster to you, until interrupted."),
    ] = False,
    trace: acting.Trace = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Give up after this many seconds.")
    ] = 55.0,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show the daemon at work on an embedded cluster.

    None of your clusters is touched. An interrupt ends the demo between two evictions.
    """
    with sandbox_needed("demo"):
        from rebalancer.cli.live_view import screen
        from rebalancer.cli.live_view.board import Board
        from rebalancer.runtime.commands.demo import demo_cluster, run_demo
    from rebalancer.report.wording.text import plural
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.telemetry.options import TelemetryOptions
    from rebalancer.telemetry.start import telemetry_for

    console = screen.console()
    live = screen.is_live(console) and not trace
    stop = threading.Event()
    with stop_on_signals(stop), demo_cluster(seed) as (cluster, kubeconfig):
        nodes, pods = len(cluster.store.list("Node")), len(cluster.store.list("Pod"))
        figures = f"{plural(nodes, 'node')}, {plural(pods, 'pod')}"
        screen.introduce(console, cluster.url, str(kubeconfig), figures)
        if by_hand:
            console.print(f"In another terminal: export KUBECONFIG={kubeconfig}", soft_wrap=True)
            console.print("It stays until you interrupt.")
            stop.wait()
            return
        board = Board(cluster, None if live else lambda line: screen.print_line(console, line))
        telemetry_on = telemetry_for(TelemetryOptions(cluster="demo"), print_traces=trace)
        with screen.shown(console, board) if live else nullcontext(), telemetry_on as telemetry:
            observers = [*telemetry.observers, board]
            result = run_demo(cluster, kubeconfig, stop=stop, observers=observers, timeout=timeout)
        screen.conclude(console, board, result)
        if keep and not result.interrupted:
            console.print(f"The cluster stays until you interrupt: KUBECONFIG={kubeconfig}", soft_wrap=True)
            console.print(f"For example: KUBECONFIG={kubeconfig} rebalancer history", soft_wrap=True)
            stop.clear()
            stop.wait()
    if result.interrupted and not result.converged:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not result.converged:
        raise typer.Exit(ExitCode.ERROR)
