"""What a single cycle needs around it: the lease while it lasts, memory, settings that may change."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.brakes import drop_brake
from rebalancer.kube.errors import KubeError
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import memory_of, own_name
from rebalancer.runtime.live.leading import elector_of, take_lease
from rebalancer.runtime.live.newest import Newest, NewestGate
from rebalancer.runtime.live.places import Places, make_brake
from rebalancer.settings import Settings

log = logging.getLogger(__name__)

_DURATIONS = 3
"""Lease durations that a holder who may be dead, and an API server that does not answer, are waited for."""


@contextmanager
def session(
    settings: Settings,
    connection: Connection,
    places: Places,
    clock: SystemClock,
    *,
    newest: Newest,
    attended: bool,
    wait: bool,
) -> Iterator[Surroundings]:
    """Leads, if the settings allow evictions and ask for an election, and hands the lease back at the end.

    Where nothing is installed it brings its own brake, and takes it away again with the lease: what an
    installation finds later would stand beside its own. The ledger stays, as caps and cool-downs hold on.
    `attended`: a person watches. `wait`: while somebody else leads; otherwise raises UserError that names who
    does. Raises KubeError where the lease may not be used.
    """
    name, election = own_name(), settings.leader_election
    alone = settings.evictions.enabled and places.none_yet
    leads = settings.evictions.enabled and election.enabled
    elector = elector_of(settings, connection, places, identity=name) if leads else None
    memory = memory_of(
        settings,
        connection,
        places,
        clock,
        attended=attended,
        writer=name,
        term=lambda: elector.status().transitions if elector is not None else 0,
        silent=settings.schedule.max_cycle_time,
    )
    try:
        if elector is not None:
            patience = _DURATIONS * election.lease_duration
            take_lease(elector.start(), wait=wait, stop=clock.stop, patience=patience)
        if alone and not clock.stopping():
            make_brake(connection, places.brake, name, wait=clock.wait)
        yield Surroundings(
            memory=memory,
            newest=lambda used, clock: NewestGate(newest, used, clock, memory.earlier),
            leading=elector.still_leading if elector is not None else None,
            lease=lambda: elector.annotations if elector is not None else {},
        )
    finally:
        memory.leave()
        if elector is not None:
            elector.stop(remove=alone)
        if alone:
            try:
                drop_brake(connection, places.brake, name)
            except KubeError as e:
                log.warning("%s stays, and pauses nothing: %s", places.brake, e.message)
