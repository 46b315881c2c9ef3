"""Settings → how a live cluster is acted on."""

from __future__ import annotations

import os
import socket
import uuid
from zoneinfo import ZoneInfo

import msgspec

from rebalancer.kube.connection import Connection
from rebalancer.kube.ledger import Ledgers, Place
from rebalancer.policy.circuit import CircuitLimits
from rebalancer.policy.cooldown import MemoryRules
from rebalancer.policy.cron import parse_cron
from rebalancer.policy.windows import Window
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.live import LiveOptions
from rebalancer.runtime.memory import Memory
from rebalancer.runtime.parts import CycleLimits
from rebalancer.runtime.settle import SettleLimits
from rebalancer.settings import Settings, plan_options

_IN_CLUSTER = "in-cluster"


def live_options(settings: Settings, connection: Connection, *, ask_server: bool = False) -> LiveOptions:
    """The options of a cycle; evicts only under `evictions.enabled`.

    In a cluster the tool's own namespace is that of its service account, unless the settings name one.
    `ask_server`: a dry run that asks the API server for its verdict.
    """
    planning = plan_options(settings)
    if not planning.policy.own_namespace and connection.context == _IN_CLUSTER:
        policy = msgspec.structs.replace(planning.policy, own_namespace=connection.namespace)
        planning = msgspec.structs.replace(planning, policy=policy)
    evictions, schedule = settings.evictions, settings.schedule
    return LiveOptions(
        execute=evictions.enabled,
        ask_server=ask_server,
        planning=planning,
        limits=CycleLimits(per_second=evictions.per_second or None),
        settle=SettleLimits(ready=evictions.ready_timeout, pending=evictions.pending_timeout),
        windows=tuple(
            Window(parse_cron(w.cron), w.duration, ZoneInfo(w.time_zone), w.action) for w in schedule.windows
        ),
        max_time=schedule.max_cycle_time,
        brakes=True,
        lease=lease_place(settings, connection),
        grace_seconds=None if evictions.grace_period is None else int(evictions.grace_period),
        events=evictions.events,
    )


def memory_rules(settings: Settings, *, attended: bool) -> MemoryRules:
    """What memory is used for. `attended`: somebody said --execute and looks on, so that nothing waits."""
    e = settings.evictions
    return MemoryRules(
        cool_down=0.0 if attended else e.cool_down,
        retry_after=e.retry_after,
        max_returns=e.max_returns,
        stabilization=0.0 if attended else e.stabilization,
        canary=0 if attended else e.canary,
    )


def circuit_limits(settings: Settings) -> CircuitLimits:
    """When the circuit breaker opens."""
    b = settings.breaker
    return CircuitLimits(not_ready=b.max_not_ready_nodes, new_pending=b.max_new_pending, pause=b.pause)


def memory_of(
    settings: Settings, connection: Connection, clock: Clock, *, attended: bool, writer: str = ""
) -> Memory:
    """The memory that the settings ask for; a dry run reads the ledger and writes nothing."""
    writer = writer or own_name()
    store = None
    if settings.ledger.mode == "configMap":
        store = Ledgers(connection, ledger_place(settings, connection), writer=writer, wait=clock.wait)
    return Memory(
        clock,
        memory_rules(settings, attended=attended),
        store=store,
        limits=circuit_limits(settings),
        writer=writer,
        read_only=not settings.evictions.enabled,
        ignore_circuit=attended,
    )


def ledger_place(settings: Settings, connection: Connection) -> Place:
    """Where the ledger is."""
    return Place(settings.ledger.namespace or _home(settings, connection), settings.ledger.name)


def lease_place(settings: Settings, connection: Connection) -> Place:
    """Where the lease is, whose annotation pauses evictions whether or not it is stood for."""
    election = settings.leader_election
    namespace = election.namespace or settings.ledger.namespace or _home(settings, connection)
    return Place(namespace, election.name)


def health_address(settings: Settings, connection: Connection) -> tuple[str, int] | None:
    """(host, port) to listen on; None = not at all."""
    address = settings.health.address
    if address == "auto":
        address = ":8080" if connection.context == _IN_CLUSTER else "none"
    if address == "none":
        return None
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def own_name() -> str:
    """Host, process, and something that no other has: whoever writes a ledger must be told apart."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _home(settings: Settings, connection: Connection) -> str:
    return settings.scope.own_namespace or connection.namespace or "default"
