"""`rebalancer demo`: the daemon on an embedded cluster, live."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Annotated

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.exits import ExitCode

EXAMPLES = """\b
Examples:
  # Watch a daemon mend a cluster after a zone outage; needs no Kubernetes, takes half a minute
  rebalancer demo
  # The same, and each cycle's trace as a tree
  rebalancer demo --trace
  # Keep the cluster afterwards, and look around with kubectl
  rebalancer demo --keep
"""


def demo(
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of the scheduler's ties and of starting times.")
    ] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running afterwards, until interrupted.")
    ] = False,
    trace: acting.Trace = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Give up after so many seconds.")
    ] = 55.0,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show the daemon at work on an embedded cluster.

    It touches no cluster of yours. An interrupt ends it between two evictions.
    """
    from rebalancer.cli import demo_view
    from rebalancer.cli.demo_board import Board
    from rebalancer.report.text import plural
    from rebalancer.runtime.daemon import stop_on_signals
    from rebalancer.runtime.demo import demo_cluster, run_demo
    from rebalancer.runtime.telemetry import observers_of, telling
    from rebalancer.telemetry.options import TelemetryOptions

    console = demo_view.console()
    live = demo_view.is_live(console) and not trace
    stop = threading.Event()
    with stop_on_signals(stop), demo_cluster(seed) as (cluster, kubeconfig):
        nodes, pods = len(cluster.store.list("Node")), len(cluster.store.list("Pod"))
        figures = f"{plural(nodes, 'node')}, {plural(pods, 'pod')}"
        demo_view.introduce(console, cluster.url, str(kubeconfig), figures)
        board = Board(cluster, None if live else lambda line: demo_view.print_line(console, line))
        telemetry_on = telling(TelemetryOptions(cluster="demo"), print_traces=trace)
        with demo_view.shown(console, board) if live else nullcontext(), telemetry_on as telemetry:
            observers = [*observers_of(telemetry), board]
            result = run_demo(cluster, kubeconfig, stop=stop, observers=observers, timeout=timeout)
        demo_view.conclude(console, board, result)
        if keep and not result.interrupted:
            console.print(f"The cluster stays until you interrupt: KUBECONFIG={kubeconfig}", soft_wrap=True)
            stop.clear()
            stop.wait()
    if result.interrupted and not result.converged:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not result.converged:
        raise typer.Exit(ExitCode.ERROR)
