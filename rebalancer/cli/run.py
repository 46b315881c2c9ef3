"""`rebalancer run`: the daemon."""

from __future__ import annotations

import os
import threading
from pathlib import Path

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
    dry_run: acting.DryRun = "",
    namespace: options.Namespaces = None,
    config: options.ConfigFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    groups: acting.Groups = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Run cycles on a schedule until a signal ends it, between two evictions.

    Nothing is evicted without --execute or evictions.enabled. SIGHUP, or a change of the configuration file,
    makes it read its settings anew; invalid ones are refused, and the old ones stay.
    """
    from rebalancer.kube.connection import Connection
    from rebalancer.runtime.daemon import stop_on_signals
    from rebalancer.runtime.logged import LogObserver
    from rebalancer.runtime.observer import Observers
    from rebalancer.runtime.reload import Reloader
    from rebalancer.runtime.service import Service
    from rebalancer.runtime.telemetry import observers_of, telemetry_options, telling
    from rebalancer.settings import Settings, load_settings, plan_options
    from rebalancer.telemetry.logs import level_on_signal

    said = acting.flags(namespace, execute=execute, dry_run=dry_run)

    def load() -> Settings:
        settings = load_settings(config, flags=said)
        plan_options(settings)  # the scheduler's file is part of it
        return settings

    settings = load()
    acting.set_up_logging(settings)
    connection = Connection(acting.cluster_options(kubeconfig, context, impersonate, groups))
    stop = threading.Event()
    with telling(telemetry_options(settings, context=connection.context)) as telemetry:
        observer = Observers([*observers_of(telemetry), LogObserver()])
        named = config or (Path(path) if (path := os.environ.get("REBALANCER_CONFIG")) else None)
        reloader = Reloader(settings, load, file=named, observer=observer)
        with stop_on_signals(stop, reload=reloader.ask), level_on_signal(settings.telemetry.log_level):
            service = Service(
                connection,
                reloader,
                stop=stop,
                observers=[observer],
                ask_server=dry_run == "server",
                metrics=telemetry.exposition,
            )
            telemetry.watch_caches(service.cache_ages)
            service.run()
    connection.close()
