"""Settings → the options of what acts on a live cluster."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from zoneinfo import ZoneInfo

import msgspec

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.ledger import Ledgers
from rebalancer.kube.read.transfer import ReadOptions
from rebalancer.policy.history.resting_owners import HistoryRules
from rebalancer.policy.limits.circuit_breaker import CircuitLimits
from rebalancer.policy.limits.cron import parse_cron
from rebalancer.policy.limits.windows import Window
from rebalancer.policy.options import PolicyOptions
from rebalancer.prevention.scale_in.scope import ScaleInOptions
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.memory.memory import Memory
from rebalancer.runtime.cycle.parts import CycleLimits
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.assembly import LiveOptions
from rebalancer.runtime.live.places import IN_CLUSTER, Places
from rebalancer.runtime.prevention.scale_in import SteeringOptions
from rebalancer.settings import Settings, plan_options
from rebalancer.telemetry.options import TelemetryOptions


def live_options(
    settings: Settings, connection: Connection, places: Places, *, ask_server: bool = False
) -> LiveOptions:
    """The options of a cycle. It evicts only with `evictions.enabled`.

    In a cluster the tool's own namespace is that of its service account, unless the settings name one.
    `ask_server`: a dry run that asks the API server for its verdict.
    """
    planning = plan_options(settings)
    if not planning.policy.own_namespace and connection.context == IN_CLUSTER:
        policy = msgspec.structs.replace(planning.policy, own_namespace=connection.namespace)
        planning = msgspec.structs.replace(planning, policy=policy)
    evictions, schedule = settings.evictions, settings.schedule
    return LiveOptions(
        execute=evictions.enabled,
        ask_server=ask_server,
        planning=planning,
        read=ReadOptions(namespaces=settings.scope.read_namespaces),
        limits=CycleLimits(per_second=evictions.per_second or None),
        settle=SettleLimits(ready=evictions.ready_timeout, pending=evictions.pending_timeout),
        windows=tuple(
            Window(parse_cron(w.cron), w.duration, ZoneInfo(w.time_zone), w.action) for w in schedule.windows
        ),
        max_time=schedule.max_cycle_time,
        brake=places.brake,
        grace_seconds=None if evictions.grace_period is None else int(evictions.grace_period),
        events=evictions.events,
        beside_descheduler=evictions.beside_descheduler == "evict",
        breaker=circuit_limits(settings),
    )


def scale_in_scope(settings: Settings, policy: PolicyOptions) -> ScaleInOptions:
    """Whose scale-in is steered."""
    p = settings.prevention
    return ScaleInOptions(
        mode=p.scale_in,
        beside_karpenter=p.beside_karpenter,
        included=policy.namespaces_include,
        excluded=(*policy.namespaces_exclude, *filter(None, [policy.own_namespace])),
    )


def steering_options(settings: Settings, live: LiveOptions) -> SteeringOptions:
    """The same, with what it goes by. `live`: the options of a cycle under the same settings."""
    return SteeringOptions(
        scope=scale_in_scope(settings, live.planning.policy),
        scheduler=live.planning.scheduler,
        dry=settings.prevention.dry_run,
    )


def memory_rules(settings: Settings, *, attended: bool) -> HistoryRules:
    """The rules of memory. `attended`: a person uses --execute and watches, so nothing has to wait."""
    e = settings.evictions
    return HistoryRules(
        cool_down=0.0 if attended else e.cool_down,
        retry_after=e.retry_after,
        max_returns=e.max_returns,
        stabilization=0.0 if attended else e.stabilization,
        settle=settings.schedule.node_settle,
        canary=0 if attended else e.canary,
    )


def circuit_limits(settings: Settings) -> CircuitLimits:
    """When the circuit breaker opens."""
    b = settings.breaker
    return CircuitLimits(
        not_ready=b.max_not_ready_nodes, displaced=b.max_displaced, late=b.max_late, pause=b.pause
    )


def memory_of(
    settings: Settings,
    connection: Connection,
    places: Places,
    clock: Clock,
    *,
    attended: bool,
    writer: str = "",
    term: Callable[[], int] = lambda: 0,
    silent: float = 3600.0,
) -> Memory:
    """The memory that the settings ask for. A dry run reads the ledger and writes nothing."""
    writer = writer or own_name()
    store = None
    if settings.ledger.mode == "configMap":
        store = Ledgers(connection, places.ledger, writer=writer, wait=clock.wait)
    return Memory(
        clock,
        memory_rules(settings, attended=attended),
        store=store,
        limits=circuit_limits(settings),
        writer=writer,
        read_only=not settings.evictions.enabled,
        ignore_circuit=attended,
        term=term,
        silent=silent,
    )


def health_address(settings: Settings, connection: Connection) -> tuple[str, int] | None:
    """(host, port) to listen on; None: no probes."""
    address = settings.health.address
    if address == "auto":
        address = ":8080" if connection.context == IN_CLUSTER else "none"
    if address == "none":
        return None
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def telemetry_options(settings: Settings, *, context: str = "") -> TelemetryOptions:
    """The telemetry that the settings ask for. `context`: of the kubeconfig; it names the cluster unless it
    is "in-cluster"."""
    t = settings.telemetry
    return TelemetryOptions(
        endpoint=t.otlp.endpoint,
        traces=t.otlp.traces,
        metrics=t.otlp.metrics,
        timeout=t.otlp.timeout,
        sample_ratio=t.trace_sampling,
        metrics_file=t.metrics_file,
        constraint_series=t.constraint_series,
        cluster=cluster_name(settings, context),
    )


def cluster_name(settings: Settings, context: str) -> str:
    """What the cluster is called in telemetry and messages; "" if nobody says."""
    return settings.telemetry.cluster_name or ("" if context == IN_CLUSTER else context)


def own_name() -> str:
    """Host, process id and a random part: no two writers of a ledger have the same name."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
