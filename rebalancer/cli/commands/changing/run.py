"""`rebalancer run`: the daemon."""

from __future__ import annotations

import threading

from rebalancer.cli import acting, options
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

EXAMPLES = """\b
Examples:
  # Watch the cluster and log what would be done, every schedule.interval
  rebalancer run
  # Keep the cluster balanced
  rebalancer run --execute
"""


@reaches_a_cluster
def run(
    execute: acting.Execute = False,
    dry_run: acting.DryRun = "",
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    ledger_namespace: acting.LedgerNamespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Run cycles on a schedule. A signal ends it between two evictions.

    Nothing is evicted without --execute or evictions.enabled. On SIGHUP, or when the configuration file
    changes, the settings are read again. Invalid settings are refused, and the old ones stay in effect.
    """
    from rebalancer.kube.client.connection import Connection
    from rebalancer.outcome.observer import Observers
    from rebalancer.runtime.daemon.reload import Reloader
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.runtime.daemon.service import Service
    from rebalancer.runtime.daemon.serving import serve
    from rebalancer.runtime.live.configured import telemetry_options
    from rebalancer.runtime.live.notifying import notifying
    from rebalancer.runtime.observers.log import LogObserver
    from rebalancer.settings import Settings, load_settings, plan_options
    from rebalancer.telemetry import logs
    from rebalancer.telemetry.start import telemetry_for

    said = acting.flags(
        namespace,
        all_namespaces,
        execute=execute,
        dry_run=dry_run,
        ledger_namespace=ledger_namespace,
    )

    def load() -> Settings:
        settings = load_settings(config, flags=said)
        plan_options(settings)  # the scheduler's file is part of it
        return settings

    settings = load()
    acting.set_up_logging(settings)
    connection = Connection(acting.cluster_options(reach))
    stop = threading.Event()
    telemetry_on = telemetry_for(telemetry_options(settings, context=connection.context))
    with telemetry_on as telemetry, notifying(settings, context=connection.context) as told:
        telemetry.watch_notices(told.mailboxes.results)
        observer = Observers([*telemetry.observers, LogObserver(), told.observer])

        def follow_service(service: Service) -> None:
            telemetry.watch_caches(service.cache_ages)
            telemetry.watch_excess(service.excess)
            telemetry.watch_gait(service.gait)

        def follow(changed: Settings) -> None:
            logs.change(changed.telemetry.log_level, changed.telemetry.log_format)
            telemetry.change(telemetry_options(changed))
            told.change(changed)

        reloader = Reloader(
            settings, load, file=acting.settings_file(config), observer=observer, follow=follow
        )
        with stop_on_signals(stop, reload=reloader.ask), logs.level_on_signal(settings.telemetry.log_level):
            serve(
                connection,
                reloader,
                stop=stop,
                observers=[observer],
                ask_server=dry_run == "server",
                metrics=telemetry.exposition,
                begun=follow_service,
            )
    connection.close()
