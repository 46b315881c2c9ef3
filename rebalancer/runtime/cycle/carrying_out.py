"""Carrying out a plan: moves start as soon as they may, and are followed until they have landed.

Each turn of the loop looks at what is in flight, and then evicts one pod or waits. What it decides by is
elsewhere: the order of the plan in `replacements.Flight`, budgets in `gates.WatchedLimits`, the last look in
`gates.Permission`, and room beside what is in flight in `last_look.room.Room.may_overlap`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.errors import ForbiddenError, KubeError
from rebalancer.kube.evictor import Evictor, RecordingEvictor
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Eviction, Fate, Observer, Outcome, Result
from rebalancer.planner.pace import chains, must_stay_ready
from rebalancer.planner.plan import Move, Plan, domains_left
from rebalancer.planner.waves.schedule import LARGEST
from rebalancer.policy.options import Method
from rebalancer.runtime.cycle.clock import Clock, RateLimit
from rebalancer.runtime.cycle.gates import PASSING, Away, FreshLook, Permission, WatchedLimits, forbidden
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.releases import ReleaseParts, Releases
from rebalancer.runtime.cycle.replacements import (
    Flight,
    ReplacementWatch,
    SlowStart,
    controller_of,
)

# What a cycle is made of.


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


class Parts(Struct, frozen=True, eq=False, kw_only=True):
    """What a cycle is made of; `rebalancer.runtime.live.assembly` makes them for a cluster.

    `snapshot` reads the cluster, `plan` plans it; `look`, `replacements`, `limited` are made for each plan.
    `closed`: why no plan is carried out now; may raise KubeError. `dry`: nothing is evicted, so neither it
    nor the circuit breaker is asked. `releases`: what replace first needs; None: nothing is released.
    `pace`: of its evictions.
    """

    snapshot: Callable[[], Snapshot]
    plan: Callable[[Snapshot], Plan]
    look: Callable[[Snapshot, Plan], FreshLook]
    replacements: Callable[[Snapshot, Plan | None], ReplacementWatch]
    limited: Callable[[Snapshot], WatchedLimits]
    evictor: Evictor
    clock: Clock
    pace: RateLimit
    observer: Observer
    limits: CycleLimits = _DEFAULTS
    closed: Callable[[], Reason | None] = lambda: None
    memory: Memory | None = None
    dry: bool = False
    releases: ReleaseParts | None = None


# Evicting one pod after the other, each after a last look, and what is in the way of the next.


class Obstacles(Struct, eq=False):
    """What stood in the way of a plan's evictions so far.

    `fatal`: why this cycle must not evict any more; `unwell`: because of the API server. `held`: the gate
    that closed. `blind`: the watch is behind, so that no further move can be judged.
    """

    fatal: str = ""
    unwell: bool = False
    held: Reason | None = None
    blind: bool = False


_SKIPPED = {
    Result.GONE: ReasonCode.CHANGED_SINCE_PLAN,
    Result.TERMINATING: ReasonCode.TERMINATING,
    Result.BLOCKED: ReasonCode.PDB_EXHAUSTED,
    Result.STALE_BUDGET: ReasonCode.PDB_STALE,
    Result.SEVERAL_BUDGETS: ReasonCode.MULTIPLE_PDBS,
}
_FATAL = {
    Result.FORBIDDEN: "evicting is forbidden",
    Result.THROTTLED: "the API server is too busy",
    Result.FAILED: "the API server is unwell",
    Result.UNKNOWN: "the outcome of an eviction is unknown",
}


class Evicting:
    """Evicts pods of one plan. `sent`: called right before each request."""

    def __init__(
        self,
        *,
        look: FreshLook,
        evictor: Evictor,
        clock: Clock,
        observer: Observer,
        releases: Releases | None = None,
        sent: Callable[[Move], None] = lambda _: None,
    ) -> None:
        self.obstacles = Obstacles()
        self._sent = sent
        self._releases = releases
        self._look = look
        self._evictor = evictor
        self._clock = clock
        self._observer = observer

    def evict(self, move: Move, away: Away) -> Outcome | None:
        """Evicts the pod if its move is still right; None: a stop was asked for.

        The outcome is not told to the observer: some of what is refused can be tried again.
        """
        self._observer.on_move(move)
        permission = Permission(self._look, self._clock, move, away, self._sent)
        if self._releases is not None and move.method is Method.REPLACE_FIRST:
            full = self._releases.full(move)
            eviction = (
                self._releases.release(move, self._look, permission)
                if full is None
                else Eviction(result=Result.HELD, message=full.message, reason=full)
            )
        elif move.method is Method.REPLACE_FIRST:
            eviction = RecordingEvictor().evict(move.pod, move.reason, permission)  # a dry run
        else:
            eviction = self._evictor.evict(move.pod, move.reason, permission, permission.fresh)
        self.obstacles.held = permission.held
        if not eviction.tried:
            return self._untried(move, eviction)
        return self._tried(move, eviction)

    def _tried(self, move: Move, eviction: Eviction) -> Outcome:
        """A move for which a request was sent."""
        at = self._clock.monotonic()
        self._observer.on_eviction(move, eviction)
        if eviction.evicted:
            now = replace(move, destinations=self._look.destinations(move))
            return Outcome(move=now, status=Fate.INTENDED, message=eviction.message, eviction=eviction, at=at)
        return self._not_evicted(move, eviction)

    def unseen(self, move: Move, e: UserError | None) -> Outcome:
        """The cluster could not be looked at. Who lacks a right has it again at any moment."""
        if (reason := forbidden(move, e, "the last look")) is None:
            self.obstacles.unwell = not isinstance(e, ForbiddenError)
            self.obstacles.fatal = f"the cluster cannot be looked at: {e or ''}"
        say = f"{move.pod.key} was not evicted: {e}"
        return Outcome(move=move, status=Fate.FAILED, message=say, reason=reason)

    def _untried(self, move: Move, eviction: Eviction) -> Outcome | None:
        """A move for which no request was sent."""
        reason = eviction.reason
        if reason is None:
            return self.unseen(move, eviction.error)
        if reason.code is ReasonCode.STOPPING:
            return None
        self.obstacles.blind = reason.code is ReasonCode.NOT_CURRENT
        return _skipped(move, reason)

    def _not_evicted(self, move: Move, eviction: Eviction) -> Outcome:
        """A request that came to nothing, or may have."""
        result, say = eviction.result, eviction.message
        status, reason = Fate.FAILED, None
        if result is Result.WOULD_EVICT:
            status = Fate.RECORDED
        elif result is Result.HELD:
            status, reason = Fate.SKIPPED, eviction.reason
        elif result in _SKIPPED:
            status, reason = Fate.SKIPPED, Reason(_SKIPPED[result], say)
        elif result is Result.FORBIDDEN and (reason := forbidden(move, eviction.error, "evicting")):
            say = reason.message
        elif result not in (Result.REFUSED, Result.UNASKED):
            self.obstacles.fatal = f"{_FATAL[result]}: {say}"
            self.obstacles.unwell = result is not Result.FORBIDDEN
        return Outcome(move=move, status=status, message=say, reason=reason, eviction=eviction)


def _skipped(move: Move, reason: Reason) -> Outcome:
    say = f"{move.pod.key} was not evicted: {reason.message}"
    return Outcome(move=move, status=Fate.SKIPPED, message=say, reason=reason)


log = logging.getLogger(__name__)

_UNASKED = 3
"""Evictions in a row for which a webhook could not be asked, after which no further one is tried there."""


class CarryingOut:
    """One plan. `most`: how many evictions it may make; then it is `exhausted`.

    `outcomes`: of the moves whose end is known. `unwritten`: why the ledger could not be written.
    """

    def __init__(
        self,
        parts: Parts,
        memory: Memory,
        snapshot: Snapshot,
        plan: Plan,
        *,
        most: int,
    ) -> None:
        self._parts, self._memory = parts, memory
        self._snapshot, self._plan, self._most = snapshot, plan, most
        self.flight = Flight(chains(plan, plan.allowed), dry=parts.dry)
        self.outcomes: list[Outcome] = []
        self.unwritten = ""
        self._slow = SlowStart(snapshot, plan, memory.landed_on, must_stay_ready(parts.limits.per_second))
        self._replacements = parts.replacements(snapshot, plan)
        self._limits = parts.limited(snapshot)
        self._look = parts.look(snapshot, plan)
        self._leaves = domains_left(snapshot, plan)
        self._releases = None
        if parts.releases is not None:
            self._releases = releases_of(parts, parts.releases, memory, self._replacements)
        self._evicting = Evicting(
            look=self._look,
            evictor=parts.evictor,
            clock=parts.clock,
            observer=parts.observer,
            releases=self._releases,
            sent=self._note,
        )
        self.obstacles = self._evicting.obstacles
        self._open_waves: dict[int, set[str]] = {}
        self._intended: set[str] = set()
        self._evicted = 0
        self._unasked: list[str] = []
        """The namespaces of the last evictions in a row for which a webhook could not be asked."""
        self._could_ask = False
        self._quiet_since = parts.clock.monotonic()

    @property
    def exhausted(self) -> bool:
        """Whether it has evicted as many pods as it may, and more are planned."""
        return self._evicted >= self._most and bool(self.flight.may_start())

    def run(self, enough: Callable[[Sequence[Outcome]], bool]) -> None:
        """Until nothing is in flight and nothing more can go. `enough`: whether the outcomes so far forbid to
        evict more."""
        clock, pace, poll = self._parts.clock, self._parts.pace, self._replacements.limits.poll
        while True:
            self._take_landings()
            over = self._over() or enough(self.outcomes)
            turn = [] if over else self._turn()
            if turn and clock.monotonic() >= pace.next_at:
                self._evict(turn)
            elif turn or self.flight.flying or (not over and self.flight.may_start()):
                self._memory.save()
                pause = clock.linger if clock.stopping() else clock.wait  # what is released is finished
                # Writing may have taken longer than was left.
                pause(max(0.0, min(poll, pace.next_at - clock.monotonic())) if turn else poll)
            else:
                break
        self._memory.settled()
        for wave in list(self._open_waves):
            self._parts.observer.on_wave_end(wave)
        self._wait_for_budgets()

    def _over(self) -> bool:
        """Whether nothing more may be evicted."""
        o = self.obstacles
        final = bool(o.fatal) or o.held is not None or o.blind
        return final or bool(self.unwritten) or self.exhausted or self._parts.clock.stopping()

    # -- what may go

    def _turn(self) -> list[Move]:
        """The moves that may go now, the next one first."""
        if self._parts.dry:
            return self.flight.may_start()
        room = min(LARGEST, self._memory.most_in_flight or LARGEST) - len(self.flight.flying)
        if room <= 0:
            return []
        self._slow.look(self.flight.flying.values())
        if self._releases is not None:
            self._releases.look()
        # One pod of each owner first, so that few in flight tell of many; and first who can be asked for.
        unasked, flying = self._memory.unasked, self.flight.in_flight
        waiting = self.flight.may_start()
        waiting.sort(key=lambda m: (m.pod.namespace in unasked, flying(controller_of(m)) > 0))
        away = self._away()
        allowed = [m for m in waiting if self._allowed(m, away)]
        first = next((m for m in allowed if self._may_overlap(m, away)), None)
        if first is None:
            return []
        alike = [m for m in allowed if m is not first and m.wave == first.wave]
        return [first, *alike][:room]

    def _allowed(self, move: Move, away: Away) -> bool:
        """Whether budgets, quotas and the slow start have room for it beside what is in flight."""
        if not self._slow.admits(move):
            return False
        if self._releases is not None and move.method is Method.REPLACE_FIRST:
            # A pod too many takes nothing from its budget.
            if not self._releases.may_begin(move):
                return False
        elif not (self._limits.allow(move) or self._impatient()):
            return False
        return not away.coming or self._limits.admit(move, away.coming)

    def _may_overlap(self, move: Move, away: Away) -> bool:
        """Whether it cannot get in the way of what is in flight, nor that in its way."""
        try:
            return not away.flying or self._look.may_overlap(move, away)
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)
            return False

    def _impatient(self) -> bool:
        """Whether nothing has happened for so long that budgets will not open by themselves: then the last
        look says what is wrong with them."""
        quiet = self._parts.clock.monotonic() - self._quiet_since
        return not self.flight.flying and quiet >= self._replacements.limits.budgets

    # -- what is done

    def _evict(self, turn: Sequence[Move]) -> None:
        """The first of these moves."""
        move, p = turn[0], self._parts
        if not self._begun(turn):
            return
        outcome = self._evicting.evict(move, self._away())
        now = p.clock.monotonic()
        if outcome is None:
            return
        if outcome.eviction is not None:
            p.pace.sent()
            if not (p.dry or outcome.kept):
                self._memory.sent(move.pod.uid)
            if not p.dry:
                self._asked(move, outcome.eviction)
        if outcome.status is Fate.INTENDED:
            self._evicted += 1
            self._quiet_since = now
            self.flight.started(outcome)
            if outcome.kept and self._releases is not None:
                self._releases.began(outcome)
                self._memory.landed([replace(outcome, status=Fate.RELEASED)])
        elif self._may_try_again(outcome):
            self._limits.refused(move)
        else:
            self._end([outcome])
            self._ask_no_more()

    def _ask_no_more(self) -> None:
        """Ends the moves of owners with enough refusals in this cycle, and of namespaces that are closed to
        it. Where the plan has no other namespace, not even for later, nothing can be evicted."""
        closed, refusing = self._memory.closed, self._memory.refusing
        if closed and {m.pod.namespace for m in self._plan.moves} <= closed.keys():
            why = next(reversed(closed.values()))
            self.obstacles.fatal = f"{why.message}; {why.remedy}"
        if closed or refusing:
            waiting = [m for m in self._plan.allowed if self.flight.waits(m)]
            no = [(m, closed.get(m.pod.namespace) or refusing.get(m.owner.key)) for m in waiting]
            self._end([_skipped(m, why) for m, why in no if why is not None])

    def _asked(self, move: Move, eviction: Eviction) -> None:
        """Whether webhooks can be asked: each that cannot takes seconds to say so, for every pod. Where those
        of several namespaces cannot, and none could by this plan, all may be alike."""
        unasked, space = self._memory.unasked, move.pod.namespace
        if eviction.result is not Result.UNASKED:
            self._unasked, self._could_ask = [], True
            unasked.discard(space)
            return
        self._unasked.append(space)
        unasked.add(space)
        if len(self._unasked) < _UNASKED:
            return
        silent, self._unasked = {*self._unasked}, []
        say = f"{_UNASKED} evictions in a row could not be asked for: "
        if (len(silent) > 1 and not self._could_ask) or (e := eviction.error) is None:
            self.obstacles.fatal = f"{say}{eviction.message}"
            return
        why = Reason(ReasonCode.EVICTION_REFUSED, f"{say}{e.message}", {}, e.remedy)
        self._memory.closed |= dict.fromkeys(silent, why)

    def _begun(self, turn: Sequence[Move]) -> bool:
        """Tells of the moves that are about to start, and writes them down; whether the first may."""
        p, move = self._parts, turn[0]
        if move.wave not in self._open_waves:
            members = [m for m in self._plan.allowed if m.wave == move.wave]
            self._open_waves[move.wave] = {m.pod.uid for m in members}
            p.observer.on_wave(move.wave, tuple(members))
        if p.dry:
            return True
        try:
            self._intend(turn)
        except KubeError as e:
            self.unwritten = f"nothing is evicted, as it cannot be written down: {e}"
            return False
        return True

    def _note(self, move: Move) -> None:
        """Which pods the owner has by now. Raises CacheNotReadyError."""
        if not self._parts.dry:
            self._replacements.before(move, self.flight.flying.values())

    def _away(self) -> Away:
        flying = tuple(o.move for o in self.flight.flying.values())
        coming = tuple(m for m in flying if m.pod.uid in self._replacements.unplaced)
        return Away((*(o.move for o in self.outcomes if o.evicted), *flying), flying, coming)

    def _may_try_again(self, outcome: Outcome) -> bool:
        """Whether it was refused for what may pass soon. What may be carried out late counts from now on: a
        further try would know nothing of it."""
        late = outcome.eviction is not None and outcome.eviction.unanswered
        passes = outcome.reason is not None and outcome.reason.code in PASSING
        return passes and not late and not self._parts.dry and not self._impatient()

    def _intend(self, moves: Sequence[Move]) -> None:
        """Writes down what is about to be evicted, several moves at a time. Raises KubeError."""
        if moves[0].pod.uid in self._intended:
            return
        new = [m for m in moves if m.pod.uid not in self._intended]
        self._memory.intend(self._snapshot, self._plan, new, [self._leaves(m) for m in new])
        self._intended.update(m.pod.uid for m in new)

    def _take_landings(self) -> None:
        """What has landed, or failed to."""
        if not self._parts.dry:
            self._memory.saw(self._replacements.nodes())
        flying, released = list(self.flight.flying.values()), self._releases
        if released is not None:
            flying = [o for o in flying if released.follows(o.move.pod.uid)]
        if flying and (known := self._replacements.landed(flying)):
            self._quiet_since = self._parts.clock.monotonic()
            self._end([o for o in known if released is None or not released.landed(o)])
        if released is not None and (ended := released.advance()):
            self._quiet_since = self._parts.clock.monotonic()
            self.obstacles.held = self.obstacles.held or released.closed
            self._end(ended)
            self._ask_no_more()

    def _end(self, outcomes: Sequence[Outcome]) -> None:
        """It is known what became of these moves."""
        if outcomes and not self._parts.dry:
            self._memory.landed(outcomes)
        for o in outcomes:
            self.outcomes.append(o)
            self.flight.ended(o)
            self._parts.observer.on_outcome(o)
            left = self._open_waves.get(o.move.wave, set())
            left.discard(o.move.pod.uid)
            if not left and self._open_waves.pop(o.move.wave, None) is not None:
                self._parts.observer.on_wave_end(o.move.wave)

    def _wait_for_budgets(self) -> None:
        """Some seconds, until the disruption controller has seen the replacements too."""
        clock, limits = self._parts.clock, self._replacements.limits
        gone = [o.move for o in self.outcomes if o.evicted]
        until = self._quiet_since + limits.budgets
        while gone and not self._limits.as_planned(gone) and clock.monotonic() < until:
            if clock.wait(limits.poll):
                break


def releases_of(
    parts: Parts, needs: ReleaseParts, memory: Memory, replacements: ReplacementWatch
) -> Releases:
    """For one plan, or for what an earlier process left."""
    p = parts
    return Releases(needs, memory, p.evictor, p.clock, p.pace, p.observer, replacements)


def settle_leftovers(parts: Parts, memory: Memory, snapshot: Snapshot) -> list[Outcome]:
    """Goes on with what was released and is not open in this process; what became of it.

    It takes as long as a replacement may take at most. What is held stays as it is.
    """
    if parts.releases is None or parts.dry:
        return []
    replacements = parts.replacements(snapshot, None)
    releases, every = releases_of(parts, parts.releases, memory, replacements), list[Outcome]()
    releases.take_up_marked(snapshot, lambda plan: parts.look(snapshot, plan))
    while releases.any:
        memory.saw(replacements.nodes())
        ended = releases.advance()
        every += ended
        memory.landed(ended)
        for outcome in ended:
            parts.observer.on_outcome(outcome)
        memory.save()
        if releases.any:
            (parts.clock.linger if parts.clock.stopping() else parts.clock.wait)(replacements.limits.poll)
    return every
