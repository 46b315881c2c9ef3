"""What a report takes from the ledger: which owners the daemon leaves alone, whether it trusts itself, and
since when pods cannot be replaced."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.ledger import Ledgers
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.runtime.commands.source import Source, cluster_options
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.memory.memory import Memory
from rebalancer.runtime.live.configured import memory_rules
from rebalancer.runtime.live.places import places_of
from rebalancer.settings import Settings

log = logging.getLogger(__name__)


class Remembered(Struct, frozen=True):
    """`resting`: owner → why it is left alone. `canary`: how many evictions go one or two at a time first.
    `irreplaceable`: workload → since when it has pods that no node would take again."""

    resting: Mapping[str, Reason] = {}
    canary: int = 0
    irreplaceable: Mapping[str, float] = {}

    def since(self, snapshot: Snapshot, pod: Pod) -> float | None:
        """Since when the pod's workload has pods that no node would take again."""
        owners = Owners(snapshot, PolicyOptions())
        owner = owners.of(pod)
        return self.irreplaceable.get(owners.top(owner).key) if owner is not None else None


_YEAR_9999 = 253_370_764_800.0
"""Its first second. What lies behind it, somebody else has written: no page can show it."""


def remembered(settings: Settings, source: Source, snapshot: Snapshot) -> Remembered:
    """What the ledger of the cluster says.

    Nothing if the ledger cannot be read, or was never written: then nobody evicts by it, and the report is
    that of the same cluster in a file.

    Cool-downs are left out: they will be over when somebody acts on the report. A report needs no right
    beyond `list`, so an unreadable ledger is no error.
    """
    if settings.ledger.mode != "configMap":
        return Remembered()
    connection = Connection(cluster_options(source))
    try:
        wait = threading.Event().wait
        place = places_of(settings, connection, wait=wait).ledger
        store = Ledgers(connection, place, writer="", wait=wait)
        clock = SystemClock(server=connection.time)
        memory = Memory(clock, memory_rules(settings, attended=True), store=store, read_only=True)
        memory.ledger = store.load()
        if not memory.ledger.serial:
            return Remembered()
        in_a_row = memory.ledger.totals.in_a_row
        return Remembered(
            resting=memory.resting(snapshot),
            canary=max(0, settings.evictions.canary - in_a_row),
            irreplaceable={w: at for w, at in memory.ledger.irreplaceable.items() if 0 < at < _YEAR_9999},
        )
    except UserError as e:
        log.info("the report is made without the ledger: %s", e)
        return Remembered()
    finally:
        connection.close()
