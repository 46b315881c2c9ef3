"""Playing the plan forward in the embedded cluster: what `once --execute` would do to it.

The cluster is made from the snapshot's objects, with controllers, kubelets and a scheduler whose choice among
equally good nodes is drawn from the seed; the cycles are those of `run_once`, over HTTP. Pods start and end
in a fraction of a second, so that ages, cool-downs and maintenance windows count as passed.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.engine.config import DEFAULT_CONFIG
from rebalancer.findings import plan_with_findings
from rebalancer.kube.client.config import ClusterOptions
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.read.snapshot import read_snapshot
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport, End
from rebalancer.outcome.observer import Observer
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.runtime.commands.simulation.whatif import Changes, apply, settled
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.cycle.snapshot_checks import check_readable
from rebalancer.runtime.live.assembly import LiveOptions, Surroundings
from rebalancer.runtime.live.single.once import run_once
from rebalancer.sandbox import Cluster

_LIMITS = SettleLimits(ready=30.0, pending=3.0, budgets=5.0, poll=0.02)
_LEAST_PATIENCE = 20.0
_PODS_PER_SECOND = 50.0
"""How fast the embedded cluster is at least: bounds the wait for it to settle."""


class Standing(Struct, frozen=True, eq=False):
    """A cluster at one moment, with its plan. `unplaced`: pods that wait for a node."""

    snapshot: Snapshot
    plan: Plan
    unplaced: int

    @property
    def violated(self) -> int:
        """Constraints in scope that do not hold."""
        return self.plan.violated


class Simulated(Struct, frozen=True, eq=False, kw_only=True):
    """`before`: as the snapshot has it. `changed`: at rest, after the changes. `after`: after the cycles.

    `notes`: what the changes came to. `interrupted`: a stop was asked for.
    """

    seed: int
    notes: tuple[str, ...]
    before: Standing
    changed: Standing
    cycles: tuple[CycleReport, ...]
    after: Standing
    interrupted: bool = False

    @property
    def evicted(self) -> int:
        """Pods evicted in all cycles."""
        return sum(c.evicted for c in self.cycles)


def simulate(
    snapshot: Snapshot,
    objects: Iterable[dict[str, Any]],
    *,
    options: PlanOptions,
    changes: Changes | None = None,
    seed: int = 0,
    max_cycles: int = 10,
    observers: Sequence[Observer] = (),
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Simulated:
    """Runs cycles until one has nothing left to do or makes no progress, at most `max_cycles`.

    `objects`: those that `snapshot` was read from. `tell` is called with progress in words. Raises UserError
    if a change names nothing.
    """
    check_readable(snapshot)
    policy = msgspec.structs.replace(options.policy, min_pod_age=0.0)
    options = msgspec.structs.replace(options, policy=policy)
    stop = stop or threading.Event()
    clock = SystemClock(stop)
    patience = max(_LEAST_PATIENCE, len(snapshot.pods) / _PODS_PER_SECOND)
    before = _standing(snapshot, options)
    tell(f"starting {len(snapshot.nodes):,} nodes with {len(snapshot.pods):,} pods")
    version: dict[str, Any] = {"version": snapshot.server_version} if snapshot.server_version else {}
    made = Cluster(objects, seed=seed, scheduler=options.scheduler or DEFAULT_CONFIG, **version)
    cycles: list[CycleReport] = []
    with tempfile.TemporaryDirectory(prefix="rebalancer-simulate-") as folder, made as cluster:
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(Path(folder) / "config"))))

        cache = WatchCache(connection).start()

        def look() -> Standing:
            read = read_snapshot(connection, now=clock.now, wait=clock.wait)
            return _standing(read, options)

        try:
            notes = settled(cluster, patience)
            if changes is not None and changes != Changes():
                tell("making the changes")
                notes += apply(cluster, changes, patience=patience)
            changed = look()
            if changes is not None and changes.restart:
                notes.append(_compared(before.plan, changed.plan))
            live = LiveOptions(execute=True, planning=options, settle=_LIMITS)
            for number in range(1, max_cycles + 1):
                report = run_once(
                    connection,
                    live,
                    clock=clock,
                    observers=observers,
                    number=number,
                    around=Surroundings(cache=cache),
                )
                cycles.append(report)
                notes += settled(cluster, patience)
                if not report.evicted or stop.is_set() or report.end is End.ABORTED:
                    break
            # A look is worth it also after an interrupt, which its waits would otherwise end.
            interrupted = stop.is_set()
            stop.clear()
            after = look()
        finally:
            cache.stop()
            connection.close()
    return Simulated(
        seed=seed,
        notes=tuple(notes),
        before=before,
        changed=changed,
        cycles=tuple(cycles),
        after=after,
        interrupted=interrupted,
    )


def _compared(before: Plan, restarted: Plan) -> str:
    """What a restart came to, beside what evictions could do instead."""
    left, without = restarted.excess, before.residual_excess
    better = "less than" if left < without else "as much as" if left == without else "more than"
    return (
        f"restarted, an excess of {left} is left: {better} the {without} that {len(before.moves)} evictions "
        "would leave"
    )


def _standing(snapshot: Snapshot, options: PlanOptions) -> Standing:
    unplaced = sum(not (p.node_name or p.finished or p.terminating) for p in snapshot.pods)
    return Standing(snapshot, plan_with_findings(snapshot, options), unplaced)
