"""What a cycle is made of."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from rebalancer.kube.evict.eviction import Evictor
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Plan
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.gates.gates import Gate
from rebalancer.runtime.cycle.gates.permission import FreshLook
from rebalancer.runtime.cycle.gates.watched_limits import WatchedLimits
from rebalancer.runtime.cycle.memory.memory import Memory
from rebalancer.runtime.cycle.replacements import Replacements


class CycleLimits(Struct, frozen=True, kw_only=True):
    """Limits of one cycle.

    `max_replans`: how many plans may be made because the cluster did not behave as planned. `max_evictions`:
    beyond the caps of the policy; None: twice the evictions of the first plan. `max_failed`: how many
    replacements may fail. `per_second`: evictions per second; None: no limit, as in a dry run.
    """

    max_replans: int = 5
    max_evictions: int | None = None
    max_failed: int = 1
    per_second: float | None = None


_DEFAULTS = CycleLimits()
_OPEN = Gate()


class Parts(Struct, frozen=True, eq=False, kw_only=True):
    """What a cycle is made of; `rebalancer.runtime.live.assembly` makes them for a cluster.

    `snapshot` reads the cluster, `plan` plans it; `look`, `replacements`, `limited` are made for each plan.
    `rehearsal`: the server's dry run of an eviction; None: there is none. `dry`: nothing is evicted, so
    gates and the circuit breaker are not asked.
    """

    snapshot: Callable[[], Snapshot]
    plan: Callable[[Snapshot], Plan]
    look: Callable[[Snapshot, Plan], FreshLook]
    replacements: Callable[[Snapshot], Replacements]
    limited: Callable[[Snapshot], WatchedLimits]
    evictor: Evictor
    rehearsal: Evictor | None = None
    clock: Clock
    observer: Observer
    limits: CycleLimits = _DEFAULTS
    gate: Gate = _OPEN
    memory: Memory | None = None
    dry: bool = False
