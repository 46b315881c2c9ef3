"""Deletion costs, written where they are not as they should be: what the next scale-in goes by first."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.config import SchedulerConfig
from rebalancer.kube.election import Elector
from rebalancer.kube.errors import ForbiddenError, KubeError
from rebalancer.kube.leases import SCALE_INS
from rebalancer.kube.patches import CostWriter
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.pod import Pod
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CostOutcome, CostResult, SteeringReport
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.prevention.steering import CostChange, ScaleIns, SteeredOwner, Steering, Tally, right, steer
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.gates import PauseCheck

log = logging.getLogger(__name__)

PER_SECOND = 20.0
"""Writes over all owners: a large cluster's API server does not notice them."""
BARRED = 60.0
"""Seconds for which an owner is left alone after a refusal, and all of them after errors in a row."""
_ERRORS = 3
DISPUTE = 600.0
"""Seconds for which an owner is left alone after its costs were changed back so often within that time:"""
_UNDONE = 3
_RECENT = 60.0
"""Seconds for which an owner with a new pod comes before others: it is being scaled."""


class SteeringOptions(Struct, frozen=True, kw_only=True):
    """Whose scale-in is steered, under which scheduler. `dry`: nothing is written."""

    scope: ScaleInOptions = ScaleInOptions()
    scheduler: SchedulerConfig | None = None
    dry: bool = False

    @property
    def on(self) -> bool:
        """Whether there is anything to look at."""
        return self.scope.mode != "off"

    @property
    def writes(self) -> bool:
        """Whether a cost may be written."""
        return self.on and not self.dry


class _Written(Struct, frozen=True):
    """A cost that was written, the `version` of the pod that has it, and the time."""

    version: str
    cost: int
    at: float

    def after(self, pod: Pod) -> bool:
        """Whether the pod is as it was before: the watch has not brought it yet. Versions are numbers."""
        now = pod.resource_version
        return (len(now), now) < (len(self.version), self.version)


class _Open:
    """An owner's changes that are still to be written, and where it stands until then."""

    def __init__(self, owner: SteeredOwner, changes: Iterable[CostChange], now: float) -> None:
        self.key, self.namespace = owner.owner.key, owner.owner.namespace
        self._left = [*changes]
        self._left.reverse()
        self._pods = len(owner.costs)
        self._costs = Counter(owner.costs)
        self._recent = any(now - (c.pod.created or 0.0) < _RECENT for c in self._left)
        for change in owner.changes:
            if change not in self._left:
                self._made(change)

    def __len__(self) -> int:
        return len(self._left)

    @property
    def turn(self) -> tuple[bool, bool, float, str]:
        """The lowest first: owners whose next scale-in would be wrong; of these, and of others, those that
        have just changed; then those of which the smallest part may go."""
        done = right(self._costs.elements())
        return done > 0 or not self._pods, not self._recent, done / max(1, self._pods), self.key

    def take(self) -> CostChange:
        """The next change, which counts as made."""
        change = self._left.pop()
        self._made(change)
        return change

    def _made(self, change: CostChange) -> None:
        self._costs[change.before or 0, change.cost] -= 1
        self._costs[change.cost, change.cost] += 1


class ScaleInSteering:
    """Writes the costs that a cluster asks for, and remembers what it wrote.

    `tell` is called with every look that has news; `may` is asked before each write whether this process may
    act. `newest` gives a pod as it is known now, None if it is gone.
    """

    def __init__(
        self,
        writer: CostWriter,
        clock: Clock,
        tell: Callable[[SteeringReport], None],
        may: Callable[[], bool] = lambda: True,
        newest: Callable[[Pod], Pod | None] = lambda pod: pod,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._tell = tell
        self._may = may
        self._newest = newest
        self._written: dict[str, _Written] = {}
        self._undone: dict[str, list[float]] = {}
        self._refused: dict[str, float] = {}
        self._next = self._barred = float("-inf")
        self._errors = 0
        self._told: object = None

    def look(
        self, snapshot: Snapshot, options: SteeringOptions, enough: Callable[[], bool] = lambda: False
    ) -> SteeringReport:
        """Writes what this snapshot asks for, until all is written, or `enough`: there is a newer one."""
        since = self._clock.monotonic() - DISPUTE
        self._written = {uid: w for uid, w in self._written.items() if w.at > since}
        self._undone = {k: left for k, at in self._undone.items() if (left := [t for t in at if t > since])}
        steering = steer(snapshot, options.scope, options.scheduler)
        there = {name for o in steering.owners for name in (o.owner.key, o.owner.namespace)}
        self._refused = {name: at for name, at in self._refused.items() if name in there}
        outcomes: list[CostOutcome] = []
        disputed: tuple[str, ...] = ()
        waiting = 0
        if options.dry:
            outcomes += [CostOutcome(c, CostResult.RECORDED) for o in steering.owners for c in o.changes]
        else:
            changes = [(o, self._asked(o)) for o in steering.owners]
            disputed = tuple(sorted(key for key, at in self._undone.items() if len(at) >= _UNDONE))
            ready = [_Open(o, c, snapshot.now) for o, c in changes if c and o.owner.key not in disputed]
            self._write(ready, outcomes, enough)
            waiting = sum(map(len, ready)) + sum(
                o.result in (CostResult.FAILED, CostResult.CHANGED) for o in outcomes
            )
        report = SteeringReport(
            steering=steering,
            outcomes=tuple(outcomes),
            waiting=waiting,
            disputed=disputed,
        )
        news = (
            steering.held_back, steering.unknown, steering.foreign, steering.kept, disputed,
            _shown(outcomes) if options.dry else None,
        )  # fmt: skip
        if news != self._told or (outcomes and not options.dry):
            self._told = news
            self._tell(report)
        return report

    def _asked(self, owner: SteeredOwner) -> list[CostChange]:
        """The owner's changes, without those that were made and are not seen yet; who undid some is noted."""
        found, undone = list[CostChange](), False
        for change in owner.changes:
            made = self._written.get(change.pod.uid)
            if made is None or not made.after(change.pod):
                found.append(change)
                if made is not None and made.cost != (change.before or 0):
                    undone = True
                    del self._written[change.pod.uid]
        if undone:
            self._undone.setdefault(owner.owner.key, []).append(self._clock.monotonic())
        return found

    def _write(self, ready: list[_Open], outcomes: list[CostOutcome], enough: Callable[[], bool]) -> None:
        waiting = [(self._turn(owner), owner) for owner in ready]
        heapify(waiting)
        while waiting and self._clock.monotonic() >= self._barred and not (outcomes and enough()):
            turn, owner = waiting[0]
            if turn != (now := self._turn(owner)):
                heapreplace(waiting, (now, owner))  # its namespace has refused another one since
                continue
            if not owner or self._clock.monotonic() < self._refused.get(owner.key, float("-inf")) + BARRED:
                heappop(waiting)
                continue
            if not self._may() or self._clock.wait(max(0.0, self._next - self._clock.monotonic())):
                return
            outcomes.append(self._one(owner, owner.take()))

    def _turn(self, owner: _Open) -> tuple[object, ...]:
        """Who was refused comes last, and so does its namespace: a policy, or a missing Role, is theirs."""
        never = float("-inf")
        refused = self._refused.get(owner.namespace, never), self._refused.get(owner.key, never)
        return *refused, *owner.turn

    def _one(self, owner: _Open, change: CostChange) -> CostOutcome:
        pod = self._newest(change.pod)
        if pod is None or pod.uid != change.pod.uid or pod.terminating:
            return CostOutcome(change, CostResult.GONE)
        if not change.holds(pod):
            return CostOutcome(change, CostResult.CHANGED)
        try:
            outcome = self._writer.write(replace(change, pod=pod), lambda: self._clock.wait(1.0 / PER_SECOND))
        except ForbiddenError as e:
            outcome = CostOutcome(change, CostResult.FAILED, str(e))
            self._refused[owner.key] = self._refused[owner.namespace] = self._clock.monotonic()
        now = self._clock.monotonic()
        self._next = now + 1.0 / PER_SECOND
        if outcome.result is CostResult.WRITTEN:
            self._written[pod.uid] = _Written(outcome.version, change.cost, now)
            self._refused.pop(owner.key, None)
            self._refused.pop(owner.namespace, None)
        self._errors = self._errors + 1 if outcome.result is CostResult.FAILED else 0
        if self._errors >= _ERRORS:
            self._barred, self._errors = now + BARRED, 0
        return outcome


def _shown(outcomes: Iterable[CostOutcome]) -> list[tuple[str, int]]:
    return [(o.change.pod.key, o.change.cost) for o in outcomes]


# Whether people have paused everything: then deletion costs wait, too.

_FRESH = 5.0
"""Seconds for which an answer holds: a pause binds within them."""


class Unpaused:
    """Says whether a cost may be written now: `may` says so, and the brake, as far as it can be seen.

    Where the brake is missing or may not be read nothing is held: a cost evicts nobody, and
    `prevention.scaleIn: off` ends it. Other errors hold.
    """

    def __init__(self, brake: PauseCheck, clock: Clock, may: Callable[[], bool]) -> None:
        self._brake = brake
        self._clock = clock
        self._may = may
        self._asked = float("-inf")
        self._open = False

    def __call__(self) -> bool:
        """Asks the API server every few seconds."""
        if not self._may():
            return False
        now = self._clock.monotonic()
        if now - self._asked >= _FRESH:
            self._open, self._asked = self._ask(), now
        return self._open

    def _ask(self) -> bool:
        try:
            reason = self._brake.why_not()
        except KubeError as e:
            log.info("deletion costs wait: %s", e.message)
            return False
        return reason is None or reason.code is ReasonCode.NO_BRAKE


# Scale-ins are steered between cycles too: pods come and go at any time.

_POLL = 1.0
_AGAIN = 0.05
_SHARE, _IDLE, _IDLE_SHARE = 10, 10.0, 100
"""A look comes no sooner than so many times the CPU time of the last one after it, nor within a second. One
that only counts what scale-ins have left, or may not write, takes its time."""
_KINDS = ("Pod", "Node", "ReplicaSet", "Deployment", "Namespace", "Service")


class SteeringThread:
    """Looks whenever something has changed, in a thread of its own between `start` and `stop`.

    `options`: as the settings are now. `leading`: whether this process may act.
    """

    def __init__(
        self,
        cache: WatchCache,
        steering: ScaleInSteering,
        options: Callable[[], SteeringOptions],
        leading: Callable[[], bool],
        clock: Clock,
        *,
        elector: Callable[[], Elector | None] = lambda: None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._cache = cache
        self._steering = steering
        self._options = options
        self._leading = leading
        self._clock = clock
        self._elector = elector
        self._scale_ins = ScaleIns()
        self._tally: Tally | None = None
        self._cpu = cpu
        self._seen: object = None
        self._next = 0.0
        self._more = False
        self._thread = threading.Thread(target=self._run, name="scale-in", daemon=True)

    def start(self) -> None:
        """Begins. It ends when the clock says stop."""
        self._thread.start()

    def join(self) -> None:
        """Waits a moment for its end, after the stop."""
        if self._thread.is_alive():
            self._thread.join(2.0)

    def look(self) -> None:
        """One look, if there is reason for one. It ends when it is time for another."""
        options, began, cpu = self._options(), self._clock.monotonic(), self._cpu()
        elector, self._more = self._elector(), False
        if not self._leading():
            # What ends meanwhile is the next holder's to count.
            self._tally, self._scale_ins = None, ScaleIns()
            return
        if not (options.on or elector) or began < self._next or self._cache.not_ready() is not None:
            return
        seen = self._state(options)
        if seen == self._seen:
            return

        def due(at_work: bool) -> float:
            least, share = (_POLL, _SHARE) if at_work else (_IDLE, _IDLE_SHARE)
            return began + max(least, share * (self._cpu() - cpu))

        def enough() -> bool:
            return self._clock.monotonic() >= due(True) and self._state(self._options()) != seen

        snapshot = self._cache.snapshot(self._clock.now())
        if elector is not None:
            self._note(elector, snapshot, options)
        report = SteeringReport(steering=Steering())
        if options.on:
            report = self._steering.look(snapshot, options, enough)
        # What waits for its turn is looked at again, although nothing has changed; what is held, later.
        self._seen = None if report.waiting else seen
        self._more = report.waiting > 0 and bool(report.outcomes)
        self._next = due(self._more or (options.on and not report.waiting))

    def _state(self, options: SteeringOptions) -> object:
        kinds = _KINDS if options.on else ("ReplicaSet",)
        return options, *(self._cache.generation(kind) for kind in kinds)

    def _note(self, elector: Elector, snapshot: Snapshot, options: SteeringOptions) -> None:
        """What scale-ins have left goes on the lease, where the next holder finds it, and people do."""
        if self._tally is None:
            begun = Tally.read(elector.annotations.get(SCALE_INS, ""))
            self._tally = begun or Tally(since=int(self._clock.now()))
        for ended in self._scale_ins.look(snapshot, options.scheduler):
            self._tally = self._tally.plus(ended)
            if ended.best < ended.excess:
                log.info(
                    "the scale-in of %s from %d to %d left an excess of %d; other pods would have left %d",
                    ended.owner.key, ended.before, ended.left, sum(ended.excess), sum(ended.best),
                )  # fmt: skip
        elector.notes[SCALE_INS] = str(self._tally)

    def _run(self) -> None:
        while not self._clock.wait(_AGAIN if self._more else _POLL):
            try:
                self.look()
            except KubeError as e:
                log.info("scale-ins are not steered just now: %s", e.message)
            except Exception:
                # Evictions do not depend on it.
                log.exception("scale-ins could not be steered")
