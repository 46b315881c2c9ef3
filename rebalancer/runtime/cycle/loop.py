"""The cycle: snapshot → plan → evictions → outcome, and a new plan when the cluster does not as planned.

When a new plan is made, and when the cycle ends:

- One plan lasts. As long as replacements land where it allows, its moves are carried out one after the other
  and side by side (`carrying_out`). When all have landed, another plan shows whether anything is left.
- What is left of the plan is not certain, and rests on where earlier replacements landed, which is not where
  they were predicted: a new plan. Each such plan needs fewer evictions than the one before, so these plans
  are not counted; `max_evictions` bounds them.
- A move was no longer right, or its replacement did not become Ready: what hangs on it waits, the rest of the
  plan is carried out, then a new plan is made, at most `max_replans` times. A second replacement that fails
  ends the cycle and opens the circuit breaker.
- A replacement runs elsewhere: no further eviction, and a new plan, counted too. When two replacements of one
  owner ran elsewhere, the cycle ends, as a third would too.
- Evicting is forbidden, a result is unknown, the API server is unwell, the ledger cannot be written, or a
  gate closes (window, pause, lost lease, time, unwell cluster): the cycle ends after waiting for what is in
  flight.
- All that is left waits for a later cycle because of a cap: the cycle ends.
- All that is left waits (`policy.waits`): the cycle ends, and says until when.
- A plan evicted nobody, and the next one has the same victims: nothing helps at present, the cycle ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.certainty import older
from rebalancer.engine.version import ServerVersion
from rebalancer.errors import UserError
from rebalancer.kube.errors import ForbiddenError, KubeError
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, End, Fate, Outcome
from rebalancer.planner.plan import Plan, what_is_shown
from rebalancer.policy.circuit_breaker import all_astray
from rebalancer.policy.history.waits import HistoryRules, first_to_end
from rebalancer.runtime.cycle.carrying_out import CarryingOut, Obstacles, Parts, settle_leftovers
from rebalancer.runtime.cycle.clock import StopAskedError
from rebalancer.runtime.cycle.memory import Memory

# What follows when nothing more of a plan can go: a new plan, or the end of the cycle.

_MOVED = frozenset(
    {
        ReasonCode.NODES_CHANGED,
        ReasonCode.CHANGED_SINCE_PLAN,
        ReasonCode.NOT_CURRENT,
        ReasonCode.NOT_NEEDED,
        ReasonCode.WOULD_WORSEN,
        ReasonCode.TERMINATING,
        ReasonCode.PAUSED_BY_ANNOTATION,
        ReasonCode.QUOTA,
    }
)
"""Reasons after which another plan can come out differently although nobody was evicted."""
_GOES_ON = frozenset({ReasonCode.CYCLE_TIME})
"""Reasons that end this cycle and not the next."""


class NextStep(Struct, frozen=True, eq=False):
    """A new plan, or the end of the cycle.

    `again`: why a new plan is needed; `counted`: it counts against the re-plans of a cycle; `moved`: the
    cluster has changed, so that the next plan may differ. `end`, with `message` and perhaps `reason`: the
    cycle is over; `trips`: the circuit breaker opens too.
    """

    again: str = ""
    counted: bool = False
    moved: bool = False
    end: End | None = None
    message: str = ""
    reason: Reason | None = None
    trips: bool = False


STOPPED = NextStep(end=End.STOPPED, message="a stop was asked for")


def held(reason: Reason) -> NextStep:
    """Evicting is not allowed now."""
    end = End.CAPPED if reason.code in _GOES_ON else End.HELD
    return NextStep(end=end, message=reason.message, reason=reason)


def unread(e: UserError) -> NextStep:
    """The cluster cannot be read. Who lacks a right has it again at any moment."""
    return NextStep(end=End.ABORTED, message=str(e), trips=not isinstance(e, ForbiddenError))


def capped(reason: Reason) -> NextStep:
    """What is left waits for a later cycle."""
    return NextStep(end=End.CAPPED, message=reason.message, reason=reason)


def after_plan(
    obstacles: Obstacles,
    mine: Sequence[Outcome],
    every: Sequence[Outcome],
    *,
    rests: bool,
    max_failed: int,
    stopping: bool,
    dry: bool,
) -> NextStep:
    """What follows a plan of which nothing is in flight and nothing more can go.

    `mine`: outcomes of this plan, `every`: of the cycle so far. `rests`: some moves rest on where others
    landed.
    """
    failed = [o for o in every if o.evicted and o.status is Fate.FAILED]
    if obstacles.fatal:
        return NextStep(end=End.ABORTED, message=obstacles.fatal, trips=obstacles.unwell)
    if len(failed) > max_failed:
        say = f"{len(failed)} replacements failed; the last: {failed[-1].message}"
        return NextStep(end=End.ABORTED, message=say, trips=True)
    if stopping:
        return STOPPED
    if obstacles.held is not None:
        return held(obstacles.held)
    if (say := went_elsewhere(every)) != "":
        return NextStep(end=End.UNSTABLE, message=say)
    unplanned = [o for o in mine if o.evicted and (o.status is Fate.FAILED or o.expected is not True)]
    if unplanned:
        return NextStep(again=unplanned[0].message, counted=True)
    recorded = dry or any(o.status is Fate.RECORDED for o in mine)
    refused = [o for o in mine if not o.evicted and o.status is not Fate.RECORDED]
    if refused and not recorded:
        moved = any(o.reason is not None and o.reason.code in _MOVED for o in mine)
        why = refused[0].reason.message if refused[0].reason is not None else refused[0].message
        return NextStep(again=why, counted=True, moved=moved)
    if recorded:
        return NextStep(end=End.RECORDED, message="nothing was evicted: this is what would have been")
    again = "what depends on where replacements landed" if rests else "whether anything is left"
    return NextStep(again=again)


def went_elsewhere(every: Sequence[Outcome]) -> str:
    """Why no further eviction can be predicted: two replacements of one owner went otherwise; else ""."""
    elsewhere = [o for o in every if o.expected is False]
    owner, times = Counter(o.move.owner.key for o in elsewhere).most_common(1)[0] if elsewhere else ("", 0)
    last = next((o.message for o in reversed(elsewhere) if o.move.owner.key == owner), "")
    return f"{times} replacements of {owner} did not go as planned; the last: {last}" if times > 1 else ""


class Cycle:
    """One cycle. `run` raises UserError only if the cluster or the ledger cannot be read at the start."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memory = parts.memory or Memory(parts.clock, HistoryRules())
        self._leftovers: list[Outcome] = []
        """What became of pods that an earlier process released: told, and no part of any plan here."""
        self._outcomes: list[Outcome] = []
        self._most = 0
        self._first: Plan | None = None
        self._plan: Plan | None = None
        self._plans = 0
        self._begun = False
        self._late = ""

    def run(self) -> CycleReport:
        """Works until nothing is left to do or it must stop. The report says which."""
        p, memory = self._parts, self._memory
        began = p.clock.monotonic()
        done = self._passes()
        trouble: Reason | None = None
        if done.trips and not p.dry and (trouble := memory.trip(done.message)) is not None:
            p.observer.on_breaker(True, trouble.message)
        if memory.ledger.circuit.trips and not p.dry and memory.circuit_waits() is None:
            p.observer.on_breaker(False, "")
        ended_well = done.end in (End.COMPLETE, End.CAPPED, End.WAITING) and not p.dry
        # Where everything had to wait, nothing has been shown; nor has who looked at a part.
        holds = self._plan is not None and self._plan.violated == 0 and memory.looked_at_all
        landed = any(o.evicted and o.expected is not False for o in self._outcomes)
        memory.end(well=ended_well and not self._late and (landed or holds))
        report = CycleReport(
            end=done.end or End.COMPLETE,
            message=f"{done.message}; {_again(trouble)}" if trouble is not None else done.message,
            reason=trouble or done.reason,
            first=self._first,
            last=self._plan,
            plans=self._plans,
            outcomes=(*self._leftovers, *self._outcomes),
            seconds=p.clock.monotonic() - began,
        )
        p.observer.on_report(report)
        return report

    def _passes(self) -> NextStep:
        """Plans and executes until the cycle ends. Returns the step that ended it."""
        p, memory = self._parts, self._memory
        replans = 0
        fruitless: frozenset[str] | None = None
        done = NextStep()
        while True:
            snapshot = self._read()
            if isinstance(snapshot, NextStep):
                return snapshot
            if not self._plans:
                self._leftovers = settle_leftovers(p, memory, snapshot)
                if any(o.status is not Fate.RELEASED for o in self._leftovers):
                    snapshot = self._read()
                    if isinstance(snapshot, NextStep):
                        return snapshot
            waited = self._plan is not None and any(m.awaits for m in self._plan.moves)
            try:
                plan = self._plan = p.plan(snapshot)
            except StopAskedError:
                return STOPPED
            self._plans += 1
            self._first = self._first or plan
            if plan is self._first or waited:
                # The node that was waited for opens what an earlier plan could not have.
                limit = p.limits.max_evictions
                self._most = limit if limit is not None else self._evicted() + 2 * len(plan.moves)
            p.observer.on_plan(snapshot, plan)
            self._late = self._not_ready(snapshot)
            if not plan.moves:
                done = _nothing_left(snapshot, plan)
                return replace(done, message=f"{done.message}{self._late}")
            if (closed := self._closed()) is not None:
                return closed
            if not plan.allowed:
                waits = [m.waits for m in plan.moves if m.waits is not None]
                return capped(first_to_end(waits) or waits[0])
            victims = frozenset(m.pod.uid for m in plan.allowed)
            if victims == fruitless:
                return NextStep(end=End.NO_PROGRESS, message=done.again)
            before = len(self._outcomes)
            done = self._execute(snapshot, plan)
            fruitless = None if done.moved or self._evicted(before) else victims
            if done.end is not None:
                return done
            replans += done.counted
            if replans > p.limits.max_replans:
                say = f"{replans} plans did not hold; the last: {done.again}"
                return NextStep(end=End.UNSTABLE, message=say)

    def _read(self) -> Snapshot | NextStep:
        """The cluster as it is now, or the step that ends the cycle."""
        p = self._parts
        if p.clock.stopping():
            return STOPPED
        p.observer.on_reading()
        try:
            snapshot = p.snapshot()
        except UserError as e:
            if p.clock.stopping():
                return STOPPED
            if self._plans == 0:
                raise
            return unread(e)
        p.observer.on_snapshot(snapshot)
        if p.clock.stopping():
            return STOPPED
        if not self._begun:
            self._begun = True
            self._memory.begin()
        self._memory.looked(snapshot)
        return snapshot

    def _closed(self) -> NextStep | None:
        """The step that ends the cycle, if this plan must not be carried out: a check says no."""
        p = self._parts
        if p.dry:
            return None
        try:
            reason = p.closed()
        except KubeError as e:
            return unread(e)
        if reason is None:
            return None
        if p.clock.stopping():
            return STOPPED
        p.observer.on_held(reason)
        return held(reason)

    def _evicted(self, since: int = 0) -> int:
        return sum(o.evicted for o in self._outcomes[since:])

    def _execute(self, snapshot: Snapshot, plan: Plan) -> NextStep:
        """Carries out a plan, as far as the cluster behaves as planned."""
        p = self._parts
        room = self._most - self._evicted()
        work = CarryingOut(p, self._memory, snapshot, plan, most=room)
        work.run(self._enough)
        self._outcomes += work.outcomes
        self._late = self._late or _but_not_ready(work.outcomes)
        if work.unwritten:
            return NextStep(end=End.ABORTED, message=work.unwritten)
        if say := all_astray(self._memory.ledger, self._memory.cycle):
            return NextStep(end=End.ABORTED, message=say, trips=True)
        if work.exhausted:
            return NextStep(end=End.UNSTABLE, message=f"{self._most} evictions, and still not done")
        step = after_plan(
            work.obstacles,
            work.outcomes,
            self._outcomes,
            rests=work.flight.rests_on_landings(),
            max_failed=p.limits.max_failed,
            stopping=p.clock.stopping(),
            dry=p.dry,
        )
        if work.obstacles.held is not None:
            p.observer.on_held(work.obstacles.held)
        return step

    def _not_ready(self, snapshot: Snapshot) -> str:
        """As `_but_not_ready`, of replacements that are not Ready by now."""
        failed = any(o.status is Fate.FAILED for o in self._outcomes)
        return _but_not_ready(self._outcomes, {p.key for p in snapshot.pods if p.ready}) if failed else ""

    def _enough(self, mine: Sequence[Outcome]) -> bool:
        """Whether these outcomes, with those of earlier plans, forbid to evict more by this plan."""
        failed = sum(o.evicted and o.status is Fate.FAILED for o in (*self._outcomes, *mine))
        return failed > self._parts.limits.max_failed or any(o.expected is False for o in mine)


def _but_not_ready(outcomes: Iterable[Outcome], ready: Collection[str] = ()) -> str:
    """What the message ends with where a replacement failed that is not among the Ready pods; else ""."""
    failed = [o for o in outcomes if o.evicted and not o.kept and o.status is Fate.FAILED]
    late = [o.message for o in failed if o.replacement not in ready]
    return f", but not every replacement is Ready: {late[-1]}" if late else ""


def _again(reason: Reason) -> str:
    """The part of the breaker's sentence that says when it is tried again."""
    return reason.message.rpartition("; ")[2]


def _nothing_left(snapshot: Snapshot, plan: Plan) -> NextStep:
    hidden = ", ".join(RESOURCES[k].qualified for k in snapshot.undecided)
    unread = f"{hidden} cannot be read: grant the right to list and watch them" if hidden else ""
    if plan.violated == 0:
        say = "every constraint in scope holds"
        return NextStep(end=End.COMPLETE, message=f"{say}, as far as is known: {unread}" if unread else say)
    keep = "constraint keeps" if plan.violated == 1 else "constraints keep"
    left = f"{plan.violated} {keep} an excess of {plan.excess}"
    if unread:
        say = f"whether an eviction would help is not known: {unread}; {left}"
        return NextStep(end=End.UNKNOWN, message=say)
    if (waits := first_to_end(b.reason for b in plan.blocked)) is not None:
        return NextStep(end=End.WAITING, message=waits.message, reason=waits)
    why = older(ServerVersion.parse(snapshot.server_version))
    because = f"; {why}, so that no move is certain" if why else ""
    return NextStep(end=End.COMPLETE, message=f"{what_is_shown(plan.constraints)}: {left}{because}")
