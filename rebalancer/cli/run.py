"""`rebalancer run`: the daemon."""

from __future__ import annotations

import threading

from rebalancer.cli import acting, options

EXAMPLES = """\b
Examples:
  # Watch and say what would be done, every schedule.interval
  rebalancer run
  # Keep the cluster balanced
  rebalancer run --execute
"""


def run(
    execute: acting.Execute = False,
    dry_run: acting.DryRun = False,
    namespace: options.Namespaces = None,
    config: options.ConfigFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    groups: acting.Groups = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Run cycles at intervals until a signal ends it, between two evictions.

    Nothing is evicted without --execute or evictions.enabled.
    """
    from rebalancer.kube.connection import Connection
    from rebalancer.runtime.clock import SystemClock
    from rebalancer.runtime.configured import live_options
    from rebalancer.runtime.daemon import Daemon, stop_on_signals
    from rebalancer.runtime.observer import LogObserver, Observers
    from rebalancer.runtime.once import run_once
    from rebalancer.runtime.telemetry import observers_of, telemetry_options, telling
    from rebalancer.settings import load_settings
    from rebalancer.telemetry.logs import level_on_signal

    settings = load_settings(config, flags=acting.flags(namespace, execute=execute, dry_run=dry_run))
    acting.set_up_logging(settings)
    connection = Connection(acting.cluster_options(kubeconfig, context, impersonate, groups))
    live = live_options(settings, connection)
    stop = threading.Event()
    clock = SystemClock(stop)
    with (
        stop_on_signals(stop),
        level_on_signal(settings.telemetry.log_level),
        telling(telemetry_options(settings, context=connection.context)) as telemetry,
    ):
        observer = Observers([*observers_of(telemetry), LogObserver()])
        Daemon(
            lambda number: run_once(connection, live, clock=clock, observers=[observer], number=number),
            interval=settings.schedule.interval,
            stop=stop,
            observer=observer,
        ).run()
    connection.close()
