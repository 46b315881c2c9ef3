"""The settings as they are now, also in the middle of a cycle: what became stricter binds the next eviction.

A cycle goes on with the settings that it began with, and a pod is evicted only if the newest settings allow
it as well. So what became looser has no effect before the next cycle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from rebalancer.engine.version import ServerVersion
from rebalancer.errors import UserError
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import Outcome
from rebalancer.outcome.eviction import Eviction, Result
from rebalancer.planner.newer_versions import why_held
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.limits.caps import Caps
from rebalancer.policy.limits.circuit_breaker import CircuitLimits
from rebalancer.policy.limits.in_flight import InFlight
from rebalancer.policy.limits.windows import outside
from rebalancer.policy.options import Earlier, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.domains_left import domains_left
from rebalancer.runtime.live.assembly import LiveOptions, WatchingGate
from rebalancer.runtime.observers.neighbours import held_by_descheduler
from rebalancer.settings import Settings
from rebalancer.settings.loading import enabled_in_file

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
