"""Leading by the lease: the elector as settings ask for it, and taking the lease for one cycle."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from rebalancer.errors import UserError
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.election import ElectionOptions, Elector, LeaseStatus
from rebalancer.kube.coordination.ledger import Ledgers
from rebalancer.kube.errors import ForbiddenError, KubeError
from rebalancer.runtime.live.places import Places
from rebalancer.settings import Settings

log = logging.getLogger(__name__)

_POLL = 0.05
_FRESH = 60.0
"""Seconds since its last renewal, by the clocks of both machines, after which a holder may be dead. That is
found out by waiting, as every candidate does."""


def elector_of(
    settings: Settings,
    connection: Connection,
    places: Places,
    *,
    identity: str,
    on_change: Callable[[bool], None] = lambda _: None,
) -> Elector:
    """An elector that has not been started."""
    wanted, lease = settings.leader_election, places.lease

    def claimed() -> int:
        """The latest term in which somebody acted, by the ledger; -1 where that cannot be told."""
        if settings.ledger.mode != "configMap":
            return -1
        try:
            ledger = Ledgers(connection, places.ledger, writer=identity, wait=lambda _: True).load()
        except KubeError as e:
            log.info("in which term others have acted is not known: %s", e.message)
            return -1
        return max((c.term for c in ledger.claims.values()), default=-1)

    return Elector(
        connection,
        lease.namespace,
        lease.name,
        identity=identity,
        options=ElectionOptions(
            duration=wanted.lease_duration, renew_deadline=wanted.renew_deadline, retry=wanted.retry_period
        ),
        on_change=on_change,
        claimed=claimed,
        brake=places.brake,
    )


def take_lease(elector: Elector, *, wait: bool, stop: threading.Event, patience: float) -> None:
    """Returns when the started elector leads, or when `stop` is set.

    `wait`: as long as it takes; else raises UserError at once if somebody else leads. A holder that has not
    renewed the lease for a minute may be dead, so it is waited for up to `patience` seconds; so is a lease
    without a holder that nobody has handed back. Raises KubeError where the lease may not be used, or where
    the API server does not answer within `patience`.
    """
    began = time.monotonic()
    while not elector.still_leading():
        status = elector.status()
        late = time.monotonic() - began > patience
        if isinstance(status.error, ForbiddenError) or (status.error is not None and late):
            raise status.error
        held = status.holder and status.holder != elector.identity
        if held and not wait and (late or _fresh(status)):
            raise UserError(
                f"{status.holder} leads by lease {elector.namespace}/{elector.name}, so nothing is done",
                "--wait waits until it does not",
            )
        if late and not wait:
            raise UserError(
                f"lease {elector.namespace}/{elector.name} has no holder and was not handed back, so "
                "somebody may still act by it; nothing is done",
                "--wait waits until it has run out",
            )
        if stop.wait(_POLL):
            return


def _fresh(status: LeaseStatus) -> bool:
    try:
        return abs(time.time() - datetime.fromisoformat(status.renewed).timestamp()) < _FRESH
    except ValueError:
        return True
