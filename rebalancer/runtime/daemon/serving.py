"""The daemon from its first request to its end. Probes are answered all the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Backoff
from rebalancer.outcome.observer import Observer
from rebalancer.runtime.daemon.first_requests import PATIENT, until_answered
from rebalancer.runtime.daemon.health import HealthServer, Metrics
from rebalancer.runtime.daemon.reload import Reloader
from rebalancer.runtime.daemon.service import Service
from rebalancer.runtime.live.configured import health_address
from rebalancer.runtime.live.places import places_to_act

_EACH_IS_TOLD = Backoff(tries=1)


def serve(
    connection: Connection,
    reloader: Reloader,
    *,
    stop: threading.Event,
    observers: Sequence[Observer],
    ask_server: bool = False,
    metrics: Metrics | None = None,
    cycle: Callable[[Any], None] = lambda _: None,
    begun: Callable[[Service], None] = lambda _: None,
    patient: Backoff = PATIENT,
) -> None:
    """Runs cycles on one cluster until `stop` is set.

    `metrics`: what /metrics answers. `begun` is called with the service before its first cycle, `cycle` with
    the report of each. `patient`: how long it waits between tries of its first requests. Raises UserError
    where the daemon cannot begin.
    """
    settings = reloader.settings
    probes = _Probes()
    address = health_address(settings, connection)
    health = None
    if address is not None:
        health = HealthServer(address, healthz=probes.hung, readyz=probes.not_ready, metrics=metrics).start()
    try:
        places = until_answered(
            lambda: places_to_act(settings, connection, wait=stop.wait, backoff=_EACH_IS_TOLD),
            stop=stop,
            told=probes.waits,
            backoff=patient,
        )
        if places is None:
            return
        service = Service(
            connection,
            reloader,
            places=places,
            stop=stop,
            observers=observers,
            ask_server=ask_server,
            cycle=cycle,
        )
        begun(service)
        probes.service = service
        service.run()
    finally:
        if health is not None:
            health.stop()


class _Probes:
    """What they say: of the first requests, and then of the service."""

    def __init__(self) -> None:
        self.service: Service | None = None
        self._why = "the daemon has not begun"

    def waits(self, why: str) -> None:
        """The first requests fail because of this."""
        self._why = f"the daemon has not begun: {why}"

    def hung(self) -> str:
        return self.service.hung() if self.service is not None else ""

    def not_ready(self) -> str:
        return self.service.not_ready() if self.service is not None else self._why
