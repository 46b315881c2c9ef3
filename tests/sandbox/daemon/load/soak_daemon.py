"""The soak's daemon, in a process of its own so that its memory is its own; it tells what it does.

Lines of JSON on standard output: {"plan": [uid, …]} before anything of it is evicted; {"end": …, "evicted":
n, "message": …} after each cycle; {"error": …, "bug": …} where a cycle ended in one.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any

from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Backoff, Connection
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, Observer
from rebalancer.planner.plan import Plan
from rebalancer.runtime.daemon.schedule import stop_on_signals
from rebalancer.runtime.daemon.service import Reloader, Service, serve
from rebalancer.settings import load_settings

SETTINGS: dict[str, Any] = {
    "evictions": {
        "enabled": True,
        "canary": 2,
        "stabilization": "500ms",
        "coolDown": "500ms",
        "retryAfter": "5s",
        "perSecond": 20,
        "readyTimeout": "8s",
        "pendingTimeout": "2s",
        "events": "all",
        # Otherwise what others undo all the time would soon be left alone for the day.
        "maxPerOwnerPerDay": "none",
    },
    "schedule": {"interval": "1s", "maxCycleTime": "20s"},
    "breaker": {"pause": "500ms", "maxDisplaced": 50, "maxNotReadyNodes": "60%"},
    "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
}


class Teller(Observer):
    """Writes the lines."""

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """Before the first eviction of it."""
        _say(plan=[m.pod.uid for m in plan.moves])

    def on_report(self, report: CycleReport) -> None:
        """After the last."""
        _say(end=report.end.value, evicted=report.evicted, message=report.message)

    def on_error(self, error: Exception) -> None:
        """Whether it is meant for people."""
        _say(error=str(error), bug=not isinstance(error, UserError))


def _say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main(kubeconfig: str) -> None:
    """Until SIGTERM."""
    logging.basicConfig(level="CRITICAL")
    connection = Connection(ClusterOptions(kubeconfig=kubeconfig, connect_timeout=1.0, read_timeout=2.0))
    settings, stop, teller = load_settings(env={}, flags=SETTINGS), threading.Event(), Teller()
    reloader = Reloader(settings, lambda: settings, file=None, observer=teller)
    with stop_on_signals(stop):
        serve(
            connection, reloader, stop=stop, observers=[teller], begun=_in_a_hurry, patient=Backoff(cap=2.0)
        )
    connection.close()


def _in_a_hurry(service: Service) -> None:
    quick = replace(service._live.settle, poll=0.1, budgets=2.0)
    service._live = replace(service._live, settle=quick)
    # Half-open connections of kinds that are not followed closely are found out by their silence.
    service.cache = WatchCache(service._connection, options=WatchOptions(silence=10.0))


if __name__ == "__main__":
    main(sys.argv[1])
