"""Settings → the options of what acts on a live cluster."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from rebalancer.engine.version import ServerVersion
from rebalancer.errors import UserError
from rebalancer.kube.connection import Connection
from rebalancer.kube.ledger_store import Ledgers
from rebalancer.kube.lists import ReadOptions
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Eviction, Outcome, Result
from rebalancer.planner.constraints import why_held
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.budgets import InFlight
from rebalancer.policy.caps import Caps
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import Earlier, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.waits import HistoryRules
from rebalancer.policy.windows import Window, outside, parse_cron
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.clock import Clock, domains_left
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.assembly import LiveOptions, WatchingGate
from rebalancer.runtime.live.places import IN_CLUSTER, Places
from rebalancer.runtime.observers.neighbours import held_by_descheduler
from rebalancer.runtime.observers.notices import SLACK, WEBHOOK, NoticeObserver
from rebalancer.runtime.prevention import SteeringOptions
from rebalancer.settings import Settings, plan_options
from rebalancer.settings.loading import enabled_in_file
from rebalancer.telemetry.start import TelemetryOptions
from rebalancer.telemetry.webhooks import Mailboxes, Receiver


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


# The settings as they are now, also in the middle of a cycle: what became stricter binds the next eviction.
#
# A cycle goes on with the settings that it began with, and a pod is evicted only if the newest settings
# allow it as well. So what became looser has no effect before the next cycle.

T = TypeVar("T")
log = logging.getLogger(__name__)


def content_of(file: Path | None) -> str:
    """A digest of what the file says. A ConfigMap's mount changes by exchanged symbolic links, so neither
    time nor inode tell."""
    if file is None:
        return ""
    try:
        return sha256(file.read_bytes()).hexdigest()
    except OSError as e:
        return f"cannot be read: {e.strerror}"


def usable(make: Callable[[], T]) -> T:
    """What is made of settings. Raises UserError, also for a defect of ours: a file must not end a process
    that evicts."""
    try:
        return make()
    except UserError:
        raise
    except Exception as e:
        log.exception("reading the settings")
        raise UserError(f"the settings cannot be read: {type(e).__name__}: {e}", "this is a bug") from e


class Newest:
    """The options of the settings file as it is when asked. It is parsed when its content has changed.

    `withdrawn`: whether `evictions.enabled: true` was taken out of the file, or false was written into it,
    since the first time. `--execute` has precedence over what the file said then, not over a later change.
    """

    def __init__(
        self, file: Path | None, load: Callable[[], Settings], options: Callable[[Settings], LiveOptions]
    ) -> None:
        self._file, self._load, self._options = file, load, options
        self._content: str | None = None
        self._known: LiveOptions | UserError
        self._enabled: bool | None = None
        self.withdrawn = False

    def __call__(self) -> LiveOptions:
        """The options. Raises UserError if the file cannot be used."""
        content = content_of(self._file)
        if content != self._content:
            first, self._content = self._content is None, content
            try:
                self._known = usable(lambda: self._read(first))
            except UserError as e:
                self._known = e
        if isinstance(self._known, UserError):
            raise self._known
        return self._known

    def _read(self, first: bool) -> LiveOptions:
        options = self._options(self._load())
        said = enabled_in_file(self._file) if self._file is not None else None
        if said != self._enabled and not first:
            self.withdrawn = said is not True
        self._enabled = said
        return options


class NewestGate(WatchingGate):
    """Closed where the newest settings allow no eviction, bars the pods that they protect.

    As an observer it counts the cycle's evictions, to which changed caps apply too. `earlier`: what such caps
    count from earlier cycles, asked when the first plan is made.
    """

    def __init__(
        self, newest: Newest, used: LiveOptions, clock: Clock, earlier: Callable[[], Earlier] = Earlier
    ) -> None:
        self._newest = newest
        self._used = used
        self._clock = clock
        self._began = clock.monotonic()
        self._ask_earlier = earlier
        self._earlier = Earlier()
        self._first: Snapshot | None = None
        self._snapshot: Snapshot | None = None
        self._leaves: dict[str, list[str]] = {}
        self._done: list[tuple[Pod, list[str]]] = []
        self._flying: dict[str, Pod] = {}
        self._judged: tuple[PolicyOptions, Snapshot, Evictable] | None = None

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        if self._first is None:
            self._first, self._earlier = snapshot, self._ask_earlier()
        self._snapshot = snapshot
        left = domains_left(snapshot, plan)
        self._leaves = {m.pod.uid: left(m) for m in plan.moves}

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        if eviction.evicted or eviction.result is Result.UNKNOWN:
            self._done.append((move.pod, self._leaves.get(move.pod.uid, [])))
            self._flying[move.pod.uid] = move.pod

    def on_outcome(self, outcome: Outcome) -> None:
        self._flying.pop(outcome.move.pod.uid, None)

    def breaker(self) -> CircuitLimits | None:
        try:
            return self._newest().breaker
        except UserError:
            return None  # `closed` says so

    def closed(self) -> Reason | None:
        try:
            return self._closed(self._newest())
        except UserError as e:
            return _unusable(e)

    def _closed(self, new: LiveOptions) -> Reason | None:
        if not new.execute:
            return Reason(ReasonCode.EVICTIONS_DISABLED, "evictions.enabled is false now")
        if self._newest.withdrawn:
            say = (
                "evictions.enabled is false now in the settings file, which counts more than --execute before"
            )
            return Reason(ReasonCode.EVICTIONS_DISABLED, say)
        seen = None if new.beside_descheduler else self._snapshot
        if seen is not None and (reason := held_by_descheduler(seen.pods)) is not None:
            return reason
        if new.max_time is not None and self._clock.monotonic() - self._began >= new.max_time:
            return Reason(
                ReasonCode.CYCLE_TIME,
                f"the cycle has taken {new.max_time:.0f} s, which is all it may now",
                {"seconds": int(new.max_time)},
                "the next cycle goes on; see schedule.maxCycleTime",
            )
        return outside(new.windows, self._clock.now(), self._clock.latest()) if new.windows else None

    def bars(self, pod: Pod) -> Reason | None:
        try:
            new = self._newest()
        except UserError as e:
            return _unusable(e)
        if (reason := self._closed(new)) is not None:
            return reason
        planning = new.planning
        policy = planning.policy
        if self._snapshot is not None:
            version = ServerVersion.parse(self._snapshot.server_version)
            if (reason := why_held(version, planning.newer_versions)) is not None:
                return reason
        if policy == self._used.planning.policy or self._snapshot is None or self._first is None:
            return None
        if self._judged is None or self._judged[:2] != (policy, self._snapshot):
            self._judged = (policy, self._snapshot, Evictable(self._snapshot, policy))
        judged = self._judged[2]
        return judged.why_not(pod) or self._capped(policy, self._first, pod) or self._crowded(judged, pod)

    def _crowded(self, evictable: Evictable, pod: Pod) -> Reason | None:
        """Why the pod waits until others of its owner have landed."""
        share = InFlight(evictable.shares)
        for gone in self._flying.values():
            share.spend(gone)
        if share.fits(pod):
            return None
        most = share.at_most(pod)
        return Reason(
            ReasonCode.REPLACEMENT_NOT_READY,
            f"as many pods of {pod.key}'s owner as may be away together by now are on their way ({most})",
            {"most": most},
            "it goes on as they land; see evictions.inFlightPerOwner",
        )

    def _capped(self, policy: PolicyOptions, first: Snapshot, pod: Pod) -> Reason | None:
        counted = replace(policy, earlier=self._earlier)
        caps = Caps(counted, first, Owners(first, counted))
        for gone, domains in self._done:
            caps.spend(gone, domains)
        return caps.spend(pod, self._leaves.get(pod.uid, []))


def _unusable(e: UserError) -> Reason:
    say = f"the settings have changed and cannot be used: {e.message}"
    return Reason(ReasonCode.SETTINGS_INVALID, say, remedy="correct them; nothing is evicted until then")


# Settings → who is told of cycles by webhook and chat.


def receivers(settings: Settings) -> tuple[Receiver, ...]:
    """Those that have a URL."""
    n = settings.notifications
    files = {WEBHOOK: n.webhook.url_file, SLACK: n.slack.url_file}
    return tuple(Receiver(name, file, n.timeout) for name, file in files.items() if file)


def templates(settings: Settings) -> dict[str, str]:
    """Templates by receiver."""
    n = settings.notifications
    return {WEBHOOK: n.webhook.template, SLACK: n.slack.template}


class Notifying:
    """The observer that tells, and the mailboxes that it fills."""

    def __init__(self, settings: Settings, *, context: str = "") -> None:
        self.mailboxes = Mailboxes(receivers(settings))
        self.observer = NoticeObserver(
            self.mailboxes.put, cluster=cluster_name(settings, context), templates=templates(settings)
        )

    def change(self, settings: Settings) -> None:
        """Takes over settings that have changed while it runs."""
        self.mailboxes.change(receivers(settings))
        self.observer.templates = templates(settings)


@contextmanager
def notifying(settings: Settings, *, context: str = "") -> Iterator[Notifying]:
    """Tells while the block runs; at its end, what is queued has two seconds and a half."""
    it = Notifying(settings, context=context)
    try:
        yield it
    except Exception as e:
        it.observer.on_error(e)
        raise
    finally:
        it.mailboxes.close()
