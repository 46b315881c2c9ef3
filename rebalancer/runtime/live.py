"""The parts of a cycle, made for a live cluster."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from rebalancer.kube.connection import Connection
from rebalancer.kube.evict import LiveEvictor
from rebalancer.kube.eviction import Evictor, RecordingEvictor
from rebalancer.kube.fresh import Revalidation
from rebalancer.kube.objects import Objects
from rebalancer.kube.read import ReadOptions, read_snapshot
from rebalancer.kube.retry import DEFAULT_BACKOFF, Backoff
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Plan
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.cycle import CycleLimits, Parts
from rebalancer.runtime.observer import Observer
from rebalancer.runtime.settle import SettleLimits, Settler


class LiveOptions(Struct, frozen=True, kw_only=True):
    """How a live cluster is read, planned and acted on. `execute`: evict for real; otherwise record only."""

    execute: bool = False
    planning: PlanOptions = PlanOptions()
    read: ReadOptions = ReadOptions()
    limits: CycleLimits = CycleLimits()
    settle: SettleLimits = SettleLimits()
    backoff: Backoff = DEFAULT_BACKOFF


def live_parts(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observer: Observer,
    planner: Callable[[Snapshot], Plan] | None = None,
) -> Parts:
    """Everything a cycle needs. `planner` instead of the usual one: `ReviewedPlanner`, or a test's."""
    objects = Objects(connection, wait=clock.wait, backoff=options.backoff)
    evictor: Evictor = RecordingEvictor()
    if options.execute:
        evictor = LiveEvictor(
            connection,
            objects.pod,
            wait=clock.wait,
            linger=clock.linger,
            monotonic=clock.monotonic,
            backoff=options.backoff,
        )
    return Parts(
        snapshot=lambda: read_snapshot(connection, now=clock.now, wait=clock.wait, options=options.read),
        plan=planner or (lambda snapshot: plan(snapshot, options.planning)),
        look=lambda snapshot, made: Revalidation(objects, snapshot, made.moves, monotonic=clock.monotonic),
        waiter=lambda snapshot: Settler(objects, snapshot, clock, options.settle),
        evictor=evictor,
        clock=clock,
        observer=observer,
        policy=options.planning.policy,
        limits=options.limits,
    )
