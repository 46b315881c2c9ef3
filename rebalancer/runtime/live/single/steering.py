"""Scale-ins steered by a single cycle, after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.brakes import Brakes
from rebalancer.kube.patch.deletion_cost import CostWriter
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.observer import Observer, Observers
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.live.assembly import LiveOptions, Surroundings
from rebalancer.runtime.live.configured import steering_options
from rebalancer.runtime.prevention.pause import Unpaused
from rebalancer.runtime.prevention.scale_in import ScaleInSteering
from rebalancer.settings import Settings


def steered_after(
    connection: Connection,
    settings: Settings,
    live: LiveOptions,
    clock: Clock,
    observers: Iterable[Observer],
    around: Surroundings,
) -> Callable[[Snapshot], None]:
    """What is to be called with the last snapshot of the cycle. `live`: its options under these settings."""
    options = steering_options(settings, live)
    tell = Observers(observers).on_steering
    may: Callable[[], bool] = around.leading or (lambda: True)
    if live.brake is not None:
        may = Unpaused(Brakes(connection, wait=clock.wait), live.brake, clock, may)
    steering = ScaleInSteering(CostWriter(connection), clock, tell, may)

    def look(last: Snapshot) -> None:
        if options.on:
            steering.look(last, options)

    return look
