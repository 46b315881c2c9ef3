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

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config import IN_CLUSTER
from rebalancer.kube.config_maps import Ledgers, Place
from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection
from rebalancer.kube.lists import ReadOptions
from rebalancer.model.reason import Reason
from rebalancer.planner import PlanOptions
from rebalancer.policy.caps import Window, parse_cron
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import PolicyOptions
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.places import Places
from rebalancer.runtime.observers.log import EventSetting
from rebalancer.runtime.observers.notices import SLACK, WEBHOOK, NoticeObserver
from rebalancer.runtime.prevention import SteeringOptions
from rebalancer.settings import Settings, plan_options
from rebalancer.settings.loading import enabled_in_file
from rebalancer.settings.settings import Scope
from rebalancer.telemetry.start import TelemetryOptions
from rebalancer.telemetry.webhooks import Mailboxes, Receiver


class LiveOptions(Struct, frozen=True, kw_only=True):
    """How a live cluster is read, planned and acted on.

    `execute`: evict for real; otherwise record only, or with `ask_server` let the API server judge each
    eviction by itself. `windows`, `max_time` (seconds) and `brake` (where people pause evictions; None:
    pauses are not looked at) may forbid evictions. `grace_seconds`: of the evicted pods, None = their own.
    `events`: what is written as events. `beside_descheduler`: evict although a descheduler runs.
    `must_exist`: namespaces that somebody named. `history`: the rules of memory; None: those that it has.
    `steering`: how scale-ins are steered.
    """

    execute: bool = False
    ask_server: bool = False
    planning: PlanOptions = PlanOptions()
    read: ReadOptions = ReadOptions()
    limits: CycleLimits = CycleLimits()
    settle: SettleLimits = SettleLimits()
    backoff: Backoff = DEFAULT_BACKOFF
    windows: tuple[Window, ...] = ()
    max_time: float | None = None
    brake: Place | None = None
    grace_seconds: int | None = None
    events: EventSetting = "none"
    beside_descheduler: bool = True
    breaker: CircuitLimits = CircuitLimits()
    must_exist: tuple[str, ...] = ()
    history: HistoryRules | None = None
    steering: SteeringOptions = SteeringOptions()


def live_options(
    settings: Settings,
    connection: Connection,
    places: Places,
    *,
    ask_server: bool = False,
    attended: bool = False,
) -> LiveOptions:
    """The options of a cycle. It evicts only with `evictions.enabled`.

    In a cluster the tool's own namespace is that of its service account, unless the settings name one.
    `ask_server`: a dry run that asks the API server for its verdict. `attended`: see `memory_rules`.
    """
    planning = plan_options(settings)
    if not planning.policy.own_namespace and connection.context == IN_CLUSTER:
        policy = replace(planning.policy, own_namespace=connection.namespace)
        planning = replace(planning, policy=policy)
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
        history=memory_rules(settings, attended=attended),
        steering=SteeringOptions(
            scope=scale_in_scope(settings, planning.policy, places.installation),
            scheduler=planning.scheduler,
            dry=settings.prevention.dry_run,
        ),
    )


def scale_in_scope(settings: Settings, policy: PolicyOptions, by: str = "") -> ScaleInOptions:
    """Whose scale-in is steered, and `by` which installation."""
    p = settings.prevention
    return ScaleInOptions(
        mode=p.scale_in,
        beside_karpenter=p.beside_karpenter,
        included=policy.namespaces_include,
        excluded=(*policy.namespaces_exclude, *filter(None, [policy.own_namespace])),
        selector=policy.namespace_selector,
        by=by,
    )


def memory_rules(settings: Settings, *, attended: bool) -> HistoryRules:
    """The rules of memory. `attended`: a person uses --execute and watches, so nothing has to wait."""
    e = settings.evictions
    return HistoryRules(
        cool_down=0.0 if attended else e.cool_down,
        retry_after=e.retry_after,
        max_returns=e.max_returns,
        stabilization=0.0 if attended else e.stabilization,
        settle=0.0 if attended else settings.schedule.node_settle,
        canary=0 if attended else e.canary,
        after_undone=() if attended else HistoryRules().after_undone,
        out_wait=e.out_wait,
    )


def circuit_limits(settings: Settings) -> CircuitLimits:
    """When the circuit breaker opens."""
    b = settings.breaker
    return CircuitLimits(
        not_ready=b.max_not_ready_nodes,
        displaced=b.max_displaced,
        late=b.max_late,
        pause=b.pause,
        scope=_looked_at(settings.scope),
    )


def _looked_at(scope: Scope) -> tuple[str, ...]:
    """The namespaces of which a cycle sees violations; () = all. What narrows them further is part of each
    name: who goes by something else does not look at all that these do."""

    def narrowed(s: Scope) -> str:
        return repr(
            (s.mode, s.namespaces.exclude, s.namespace_selector, s.label_selector, s.owner_kinds_exclude)
        )

    said = narrowed(scope)
    mark = "" if said == narrowed(Scope()) else f"?{sha256(said.encode()).hexdigest()[:8]}"
    every = scope.namespaces.include or scope.read_namespaces
    return tuple(name + mark for name in every) or ((mark,) if mark else ())


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
    elsewhere: Callable[[], Reason | None] = lambda: None,
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
        attended=attended,
        term=term,
        silent=silent,
        elsewhere=elsewhere,
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


class Sources:
    """The settings file, and the scheduler's that settings name: what they say may change, each by itself."""

    def __init__(self, file: Path | None) -> None:
        self._files: list[Path | None] = [file, None]
        self._known: list[str | None] = [None, None]

    def changed(self) -> tuple[bool, bool]:
        """Of each, whether it says something else than when this was asked before."""
        before, self._known = self._known, [content_of(file) for file in self._files]
        return self._known[0] != before[0], self._known[1] != before[1]

    def name(self, settings: Settings) -> Settings:
        """Follows the file that these settings name. Called before it is read for what comes into force."""
        named = settings.planner.scheduler_config
        file = Path(named) if named else None
        if file != self._files[1]:
            self._files[1], self._known[1] = file, content_of(file)
        return settings


class Newest:
    """The options of the settings as they are when asked. They are read when what they come from has changed.

    `--execute` has precedence over what the file said when the command began (`enabled`), not over a later
    change: if `evictions.enabled: true` is taken out of the file then, or false is written into it, nothing
    is evicted.
    """

    def __init__(
        self,
        file: Path | None,
        load: Callable[[], Settings],
        options: Callable[[Settings], LiveOptions],
        enabled: bool | None = None,
    ) -> None:
        self._file, self._load, self._options = file, load, options
        self._sources = Sources(file)
        self._known: LiveOptions | UserError
        self._enabled = enabled
        self._withdrawn = False

    def __call__(self) -> LiveOptions:
        """The options. Raises UserError if the file cannot be used."""
        if any(self._sources.changed()):
            try:
                self._known = usable(self._read)
            except UserError as e:
                self._known = e
        if isinstance(self._known, UserError):
            raise self._known
        return self._known

    def _read(self) -> LiveOptions:
        options = self._options(self._sources.name(self._load()))
        said = enabled_in_file(self._file)
        if said != self._enabled:
            self._withdrawn = said is not True
        self._enabled = said
        return replace(options, execute=False) if self._withdrawn else options


def steering_now(begun: SteeringOptions, newest: Callable[[], LiveOptions]) -> SteeringOptions:
    """How scale-ins are steered by the settings as they are now, in the middle of a cycle too: costs are
    written between evictions, and `prevent off` follows on `off` at once. Not at all where that was not
    `begun`, as a lease may be needed first, or where the settings cannot be used."""
    try:
        return newest().steering if begun.on else begun
    except UserError:
        return replace(begun, scope=replace(begun.scope, mode="off"))


# Settings → who is told of cycles by webhook and chat.


def receivers(settings: Settings) -> tuple[Receiver, ...]:
    """The receivers that have a URL."""
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
