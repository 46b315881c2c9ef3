"""What a report takes from the ledger: which owners the daemon leaves alone, and why."""

from __future__ import annotations

import logging
import threading

from rebalancer.errors import UserError
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.ledger import Ledgers
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.runtime.commands.source import Source, cluster_options
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.memory.memory import Memory
from rebalancer.runtime.live.configured import memory_rules
from rebalancer.runtime.live.places import places_of
from rebalancer.settings import Settings

log = logging.getLogger(__name__)


def resting_owners(settings: Settings, source: Source, snapshot: Snapshot) -> dict[str, Reason]:
    """Owner → why it is left alone. Empty if the ledger cannot be read.

    Cool-downs are left out: they will be over when somebody acts on the report. A report needs no right
    beyond `list`, so an unreadable ledger is no error.
    """
    if settings.ledger.mode != "configMap":
        return {}
    connection = Connection(cluster_options(source))
    try:
        wait = threading.Event().wait
        place = places_of(settings, connection, wait=wait).ledger
        store = Ledgers(connection, place, writer="", wait=wait)
        memory = Memory(SystemClock(), memory_rules(settings, attended=True), store=store, read_only=True)
        memory.ledger = store.load()
        return memory.resting(snapshot)
    except UserError as e:
        log.info("the report is made without the ledger: %s", e)
        return {}
    finally:
        connection.close()
