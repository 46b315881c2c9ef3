"""The cycle: snapshot → plan → waves → outcome, and a new plan when the world is not as the plan has it.

What decides when a new plan is made, and how often:

- After a wave whose replacements all run where the plan counts with them, the next wave follows.
- A replacement on another of its planned nodes is no misprediction, but the later waves were checked against
  the predicted one (room, ports): so a new plan is made. As each such plan needs fewer evictions than the one
  before, these are not counted; `max_evictions` is their bound.
- Moves that are not certain rest on where earlier replacements land: before a later wave of such moves a new
  plan is made, not counted either.
- Without a watch, the other pods are not looked at again: so for a wave long after the reading. Not counted.
- A replacement elsewhere, a move that is no longer valid, nodes that changed: a new plan, at most
  `max_replans` times; an owner of whom two replacements went elsewhere ends the cycle, as it would go on so.
- Replacements that do not become Ready: one may happen, a second ends the cycle and opens the breaker.
- Forbidden, unknown outcomes, an unwell API server, a ledger that cannot be written, a gate that closes
  (window, pause, lost lease, time): the cycle ends, what is in flight is waited for.
- A plan that evicted nobody, and whose successor has the same victims: nothing helps at present.
"""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.errors import UserError
from rebalancer.kube.errors import KubeError
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.caps import Caps
from rebalancer.policy.circuit import Vitals, unwell, vitals
from rebalancer.policy.cooldown import MemoryRules
from rebalancer.runtime.gates import Gate
from rebalancer.runtime.memory import Memory
from rebalancer.runtime.outcome import CycleReport, End, Outcome
from rebalancer.runtime.parts import Parts
from rebalancer.runtime.passes import STOPPED, Pass, after, held
from rebalancer.runtime.wave import Wave


class Cycle:
    """One cycle. `run` raises UserError only where cluster or ledger cannot be read the first time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memory = parts.memory or Memory(parts.clock, MemoryRules())
        self._outcomes: list[Outcome] = []
        self._caps: Caps | None = None
        self._vitals: Vitals | None = None
        self._most = 0
        self._read_at = 0.0
        self._first: Plan | None = None
        self._plan: Plan | None = None
        self._plans = 0

    def run(self) -> CycleReport:
        """Works until nothing is left to do, or it must not go on; the report says which."""
        p, memory = self._parts, self._memory
        began = p.clock.monotonic()
        done = self._passes()
        trouble: Reason | None = None
        if done.trips and not p.dry and (trouble := memory.trip(done.message)) is not None:
            p.observer.on_breaker(True, trouble.message)
        ended_well = done.end in (End.COMPLETE, End.CAPPED)
        if ended_well and memory.ledger.circuit.trips and not p.dry:
            p.observer.on_breaker(False, "")
        memory.end(well=ended_well and not p.dry)
        report = CycleReport(
            end=done.end or End.COMPLETE,
            message=f"{done.message}; {_again(trouble)}" if trouble is not None else done.message,
            reason=trouble or done.reason,
            first=self._first,
            last=self._plan,
            plans=self._plans,
            outcomes=tuple(self._outcomes),
            seconds=p.clock.monotonic() - began,
        )
        p.observer.on_report(report)
        return report

    def _passes(self) -> Pass:
        """Plans until a pass ends the cycle; that one."""
        p = self._parts
        replans = 0
        fruitless: frozenset[str] | None = None
        done = Pass()
        while True:
            snapshot = self._read()
            if isinstance(snapshot, Pass):
                return snapshot
            plan = self._plan = p.plan(snapshot)
            self._plans += 1
            if self._first is None:
                self._first = plan
                self._caps = Caps(p.policy, snapshot)
                self._vitals = vitals(snapshot)
                limit = p.limits.max_evictions
                self._most = limit if limit is not None else 2 * len(plan.moves)
            p.observer.on_plan(snapshot, plan)
            if not plan.moves:
                return Pass(end=End.COMPLETE, message=_nothing_left(plan))
            if (closed := self._closed(snapshot)) is not None:
                return closed
            victims = frozenset(m.pod.uid for m in plan.moves)
            if victims == fruitless:
                return Pass(end=End.NO_PROGRESS, message=done.again)
            before = len(self._outcomes)
            done = self._execute(snapshot, plan)
            fruitless = None if done.moved or self._evicted(before) else victims
            if done.end is not None:
                return done
            replans += done.counted
            if replans > p.limits.max_replans:
                say = f"{replans} plans did not hold; the last: {done.again}"
                return Pass(end=End.UNSTABLE, message=say)

    def _read(self) -> Snapshot | Pass:
        """The cluster now, or the end of the cycle."""
        p = self._parts
        if p.clock.stopping():
            return STOPPED
        p.observer.on_reading()
        self._read_at = p.clock.monotonic()
        try:
            snapshot = p.snapshot()
        except UserError as e:
            if self._plans == 0:
                raise
            return STOPPED if p.clock.stopping() else Pass(end=End.ABORTED, message=e.message, trips=True)
        p.observer.on_snapshot(snapshot)
        if p.clock.stopping():
            return STOPPED
        if self._plans == 0:
            self._memory.begin()
        self._memory.looked(snapshot)
        return snapshot

    def _closed(self, snapshot: Snapshot) -> Pass | None:
        """Whether a plan must not be carried out, for what the cluster looks like or somebody says."""
        p, limits = self._parts, self._memory.limits
        if p.dry:
            return None
        try:
            reason = p.gate.closed()
        except KubeError as e:
            say = f"whether evictions are paused is not known: {e}"
            return Pass(end=End.ABORTED, message=say, trips=True)
        if reason is not None:
            p.observer.on_held(reason)
            return held(reason)
        assert self._vitals is not None
        if limits is not None and (why := unwell(self._vitals, vitals(snapshot), limits)):
            return Pass(end=End.ABORTED, message=why, trips=True)
        return None

    def _outdated(self, moves: Sequence[Move]) -> str:
        """Why a later wave needs another plan, "" if it does not."""
        if not all(m.certain for m in moves):
            return "what depends on where replacements landed"
        age, lasts = self._parts.clock.monotonic() - self._read_at, self._parts.lasts
        return f"the cluster was read {age:.0f} s ago" if lasts is not None and age > lasts else ""

    def _evicted(self, since: int = 0) -> int:
        return sum(o.evicted for o in self._outcomes[since:])

    def _execute(self, snapshot: Snapshot, plan: Plan) -> Pass:
        """All waves of a plan, as long as the world keeps to it."""
        p, memory = self._parts, self._memory
        waiter = p.waiter(snapshot)
        assert self._caps is not None
        wave = Wave(
            look=p.look(snapshot, plan),
            baseline=waiter,
            evictor=p.evictor,
            caps=self._caps,
            clock=p.clock,
            observer=p.observer,
            gate=Gate() if p.dry else p.gate,
            per_second=p.limits.per_second,
            leaves=_Leaves(snapshot, plan),
        )
        mine: list[Outcome] = []
        for moves in plan.waves:
            if not moves:
                continue
            if mine and not p.dry and (again := self._outdated(moves)):
                return Pass(again=again)
            room = self._most - self._evicted()
            if room <= 0:
                return Pass(end=End.UNSTABLE, message=f"{self._most} evictions, and still not done")
            if not p.dry:
                if (canary := memory.canary(self._evicted())) is not None:
                    return Pass(end=End.CAPPED, message=canary.message, reason=canary)
                room = min(room, memory.most or room)
            moves = moves[:room]
            p.observer.on_wave(moves[0].wave, moves)
            if not p.dry:
                try:
                    memory.intend(snapshot, plan, moves, [wave.leaves(m) for m in moves])
                except KubeError as e:
                    say = f"nothing is evicted, as it cannot be written down: {e}"
                    return Pass(end=End.ABORTED, message=say)
            flown = wave.fly(moves)
            landed = waiter.settle(flown.in_flight, p.observer.on_outcome)
            mine += (*flown.settled, *landed)
            self._outcomes += (*flown.settled, *landed)
            if not p.dry:
                memory.landed((*flown.settled, *landed))
            p.observer.on_wave_end(moves[0].wave)
            verdict = after(
                flown,
                landed,
                mine,
                self._outcomes,
                max_failed=p.limits.max_failed,
                stopping=p.clock.stopping(),
                dry=p.dry,
            )
            if verdict is not None:
                if flown.held is not None:
                    p.observer.on_held(flown.held)
                return verdict
        if any(o.evicted for o in mine):
            return Pass(again="whether anything is left")
        return Pass(end=End.RECORDED, message="nothing was evicted: this is what would have been")


class _Leaves:
    """The domains (key=value) that a move leaves, of the constraints that it mends."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self._labels = {n.name: n.labels for n in snapshot.nodes}
        self._plan = plan

    def __call__(self, move: Move) -> list[str]:
        here = self._labels.get(move.pod.node_name, {})
        keys = (self._plan.constraints[i].constraint.topology_key for i in move.fixes)
        return [f"{k}={here[k]}" for k in dict.fromkeys(keys) if k in here]


def _again(reason: Reason) -> str:
    """When it is tried again, out of the breaker's sentence."""
    return reason.message.rpartition("; ")[2]


def _nothing_left(plan: Plan) -> str:
    if plan.violated == 0:
        return "every constraint in scope holds"
    keep = "constraint keeps" if plan.violated == 1 else "constraints keep"
    return f"no eviction helps: {plan.violated} {keep} an excess of {plan.excess}"
