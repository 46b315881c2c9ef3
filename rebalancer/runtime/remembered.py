"""What a report knows of former evictions: whom the daemon leaves alone, and why."""

from __future__ import annotations

import logging
import threading

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import KubeError
from rebalancer.kube.ledger import Ledgers
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.runtime.clock import SystemClock
from rebalancer.runtime.configured import ledger_place, memory_rules
from rebalancer.runtime.memory import Memory
from rebalancer.runtime.source import Source
from rebalancer.settings import Settings

log = logging.getLogger(__name__)


def resting_owners(settings: Settings, source: Source, snapshot: Snapshot) -> dict[str, Reason]:
    """Owner → why it is left alone; nothing for files, or where the ledger may not be read.

    Cool-downs are left out, which are over by the time that somebody acts on a report. A report needs no
    rights beyond `list`: this is said if it can be, and never an error.
    """
    if source.snapshots or settings.ledger.mode != "configMap":
        return {}
    connection = Connection(
        ClusterOptions(kubeconfig=source.kubeconfig, context=source.context, impersonate=source.impersonate)
    )
    try:
        place = ledger_place(settings, connection)
        store = Ledgers(connection, place, writer="", wait=threading.Event().wait)
        memory = Memory(SystemClock(), memory_rules(settings, attended=True), store=store, read_only=True)
        memory.ledger = store.load()
        return memory.resting(snapshot)
    except KubeError as e:
        log.info("the report is made without the ledger: %s", e)
        return {}
    finally:
        connection.close()
