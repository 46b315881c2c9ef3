"""What a cycle is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from rebalancer.kube.eviction import Eviction, Evictor
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.gates import Gate
from rebalancer.runtime.memory import Memory
from rebalancer.runtime.observer import Observer
from rebalancer.runtime.outcome import Outcome
from rebalancer.runtime.wave import Baseline, FreshLook


class Waiter(Baseline, Protocol):
    """`rebalancer.runtime.settle.Settler`, or a test's."""

    def settle(
        self, flown: Sequence[tuple[Move, Eviction, float]], done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """Waits for what is in flight."""
        ...


class CycleLimits(Struct, frozen=True, kw_only=True):
    """`max_replans`: plans made because the world did not keep to one. `max_evictions`: in a cycle, beyond
    the policy's caps; None = twice what the first plan has. `max_failed`: replacements that may fail.
    `per_second`: evictions at most; None = as fast as they go."""

    max_replans: int = 5
    max_evictions: int | None = None
    max_failed: int = 1
    per_second: float | None = None


_DEFAULTS = CycleLimits()
_OPEN = Gate()


class Parts(Struct, frozen=True, eq=False, kw_only=True):
    """What a cycle is made of; `rebalancer.runtime.live` makes them for a cluster.

    `snapshot` reads the cluster, `plan` plans it, `look` and `waiter` are made anew for each plan. `lasts`:
    seconds after which no further wave rests on a snapshot; None where `look` follows all pods. `dry`:
    nothing is evicted, so that neither gates nor the breaker have a say.
    """

    snapshot: Callable[[], Snapshot]
    plan: Callable[[Snapshot], Plan]
    look: Callable[[Snapshot, Plan], FreshLook]
    waiter: Callable[[Snapshot], Waiter]
    evictor: Evictor
    clock: Clock
    observer: Observer
    policy: PolicyOptions = PolicyOptions()
    limits: CycleLimits = _DEFAULTS
    gate: Gate = _OPEN
    memory: Memory | None = None
    lasts: float | None = None
    dry: bool = False
