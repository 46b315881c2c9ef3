"""What a report takes from the ledger: which owners the daemon leaves alone, and whether it trusts itself."""

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


def remembered(settings: Settings, source: Source, snapshot: Snapshot) -> tuple[dict[str, Reason], int]:
    """Owner → why it is left alone, and how many evictions go one or two at a time first.

    Nothing if the ledger cannot be read, or was never written: then nobody evicts by it, and the report is
    that of the same cluster in a file.

    Cool-downs are left out: they will be over when somebody acts on the report. A report needs no right
    beyond `list`, so an unreadable ledger is no error.
    """
    if settings.ledger.mode != "configMap":
        return {}, 0
    connection = Connection(cluster_options(source))
    try:
        wait = threading.Event().wait
        place = places_of(settings, connection, wait=wait).ledger
        store = Ledgers(connection, place, writer="", wait=wait)
        memory = Memory(SystemClock(), memory_rules(settings, attended=True), store=store, read_only=True)
        memory.ledger = store.load()
        if not memory.ledger.serial:
            return {}, 0
        in_a_row = memory.ledger.totals.in_a_row
        return memory.resting(snapshot), max(0, settings.evictions.canary - in_a_row)
    except UserError as e:
        log.info("the report is made without the ledger: %s", e)
        return {}, 0
    finally:
        connection.close()
