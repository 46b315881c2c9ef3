"""Carrying out a plan: moves start as soon as they may, and are followed until they have landed.

Each turn of the loop looks at what is in flight, and then evicts one pod or waits. What it decides by is
elsewhere: the order of the plan in `flight`, budgets in `watched_limits`, room beside what is in flight in
`last_look.beside`, and the last look in `permission`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rebalancer.kube.errors import KubeError
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import MoveStatus, Outcome
from rebalancer.planner.plan import Move, Plan, together
from rebalancer.planner.results.chains import chains
from rebalancer.planner.waves.schedule import LARGEST
from rebalancer.runtime.cycle.domains_left import domains_left
from rebalancer.runtime.cycle.evicting import Evicting
from rebalancer.runtime.cycle.flight import Flight, Untried, controller_of
from rebalancer.runtime.cycle.gates.gates import Gate
from rebalancer.runtime.cycle.gates.watched_limits import PASSING
from rebalancer.runtime.cycle.jointly import broken_off, refused_by_server, too_many, unsent
from rebalancer.runtime.cycle.memory.memory import Memory
from rebalancer.runtime.cycle.parts import Parts

log = logging.getLogger(__name__)


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
        self._untried = Untried(snapshot, plan)
        self._replacements = parts.replacements(snapshot)
        self._limits = parts.limited(snapshot)
        self._look = parts.look(snapshot, plan)
        self._leaves = domains_left(snapshot, plan)
        self._evicting = Evicting(
            look=self._look,
            evictor=parts.evictor,
            clock=parts.clock,
            observer=parts.observer,
            gate=Gate() if parts.dry else parts.gate,
        )
        self.obstacles = self._evicting.obstacles
        self._open_waves: dict[int, set[str]] = {}
        self._intended: set[str] = set()
        self._evicted = 0
        self._quiet_since = self._next_at = parts.clock.monotonic()

    @property
    def exhausted(self) -> bool:
        """Whether it has evicted as many pods as it may, and more are planned."""
        return self._evicted >= self._most and bool(self.flight.may_start())

    def run(self, enough: Callable[[Sequence[Outcome]], bool]) -> None:
        """Until nothing is in flight and nothing more can go. `enough`: whether the outcomes so far forbid to
        evict more."""
        clock, poll = self._parts.clock, self._replacements.limits.poll
        while True:
            self._take_landings()
            over = self._over() or enough(self.outcomes)
            turn = [] if over else self._turn()
            if turn and clock.monotonic() >= self._next_at:
                self._evict(turn)
            elif turn or self.flight.flying or (not over and self.flight.may_start()):
                self._memory.save()
                clock.wait(min(poll, self._next_at - clock.monotonic()) if turn else poll)
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
        # One pod of each owner first, so that few in flight tell of many.
        if any(o.move.joint is not None for o in self.flight.flying.values()):
            # A joint move is in flight alone.
            return []
        waiting = sorted(self.flight.may_start(), key=lambda m: self.flight.in_flight(controller_of(m)) > 0)
        allowed = [m for m in waiting if self._allowed(m)]
        first = next((m for m in allowed if self._beside(m)), None)
        if first is None:
            return []
        if first.joint is not None:
            return together(self._plan, first)
        alike = [m for m in allowed if m is not first and m.wave == first.wave]
        return [first, *alike][:room]

    def _allowed(self, move: Move) -> bool:
        """Whether budgets, quotas and a domain that is not tried yet have room for it beside what is in
        flight."""
        if move.joint is not None and self.flight.flying:
            return False
        if not self._untried.admits(move, self.flight.flying.values()):
            return False
        if not (self._limits.allow(move) or self._impatient()):
            return False
        coming = [o.move for uid, o in self.flight.flying.items() if uid in self._replacements.unplaced]
        return not coming or self._limits.admit(move, coming)

    def _beside(self, move: Move) -> bool:
        """Whether it cannot get in the way of what is in flight, nor that in its way."""
        strangers = self.flight.strangers(move)
        try:
            return not strangers or self._look.beside(move, strangers, self._replacements.unplaced)
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
        """The first of these moves, and with it all of its joint move."""
        members = together(self._plan, turn[0])
        if not self._begun(turn, members):
            return
        if len(members) > 1 and (why := self._why_not_together(members)) is not None:
            self._end([unsent(m, why) for m in members])
        else:
            self._evict_together(members)

    def _evict_together(self, members: Sequence[Move]) -> None:
        """One after the other without a pause. The first that does not go ends it: the rest stays."""
        for n, move in enumerate(members):
            if self._sent(move, of=len(members)):
                continue
            again = not n and self.flight.waits(move)
            rest = [m for m in members[n:] if self.flight.waits(m)]
            if rest and not again and not self._parts.clock.stopping():
                why = self.outcomes[-1].message if rest[0] is not move else ""
                self._end([unsent(m, broken_off(members[:n], why)) for m in rest])
            return

    def _why_not_together(self, members: Sequence[Move]) -> Reason | None:
        """Why a joint move is not begun: it is too large for what may go now, or the API server would refuse
        one of its evictions."""
        most = min(self._memory.most_in_flight or LARGEST, self._most - self._evicted)
        if not self._parts.dry and len(members) > most:
            return too_many(members, most)
        return refused_by_server(members, self._parts.rehearsal, self._parts.clock)

    def _begun(self, turn: Sequence[Move], first: Sequence[Move]) -> bool:
        """Tells of the moves that are about to start, and writes them down; whether the `first` may."""
        p, move = self._parts, first[0]
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
        try:
            for m in first:
                if not self.flight.in_flight(controller_of(m)):
                    self._replacements.before(m)
        except KubeError as e:
            self._end([self._evicting.unseen(m, e) for m in first])
            return False
        return True

    def _sent(self, move: Move, of: int) -> bool:
        """Evicts a pod, one of so many that go together; whether it went."""
        p = self._parts
        outcome = self._evicting.evict(move, self.flight.in_flight(controller_of(move)))
        now = p.clock.monotonic()
        if outcome is None:
            return False
        if outcome.eviction is not None and p.limits.per_second:
            self._next_at = now + of / p.limits.per_second
        if outcome.status is MoveStatus.EVICTED:
            self._evicted += 1
            self._quiet_since = now
            self.flight.started(outcome)
            return True
        if self._may_try_again(outcome):
            self._limits.refused(move)
        else:
            self._end([outcome])
        return p.dry and outcome.status is MoveStatus.RECORDED

    def _may_try_again(self, outcome: Outcome) -> bool:
        """Whether it was refused for what may pass soon."""
        passes = outcome.reason is not None and outcome.reason.code in PASSING
        return passes and not self._parts.dry and not self._impatient()

    def _intend(self, moves: Sequence[Move]) -> None:
        """Writes down what is about to be evicted, several moves at a time. Raises KubeError."""
        if moves[0].pod.uid in self._intended:
            return
        new = [m for m in moves if m.pod.uid not in self._intended]
        self._memory.intend(self._snapshot, self._plan, new, [self._leaves(m) for m in new])
        self._intended.update(m.pod.uid for m in new)

    def _take_landings(self) -> None:
        """What has landed, or failed to."""
        gone = list(self.flight.flying.values())
        if gone and (known := self._replacements.landed(gone)):
            self._quiet_since = self._parts.clock.monotonic()
            self._end(known)

    def _end(self, outcomes: Sequence[Outcome]) -> None:
        """It is known what became of these moves."""
        if not self._parts.dry:
            self._memory.landed(outcomes)
        for o in outcomes:
            self.outcomes.append(o)
            self.flight.ended(o)
            self._untried.ended(o)
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
