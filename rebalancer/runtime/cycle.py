"""The cycle: snapshot → plan → waves → outcome, and a new plan when the world is not as the plan has it.

What decides when a new plan is made, and how often:

- After a wave whose replacements all run where the plan counts with them, the next wave follows.
- A replacement on another of its planned nodes is no misprediction, but the later waves were checked against
  the predicted one (room, ports): so a new plan is made. As each such plan needs fewer evictions than the one
  before, these are not counted; `max_evictions` is their bound.
- A replacement elsewhere, a move that is no longer valid, nodes that changed: a new plan, at most
  `max_replans` times; an owner of whom two replacements went elsewhere ends the cycle, as it would go on so.
- Replacements that do not become Ready: one may happen, a second ends the cycle.
- Forbidden, unknown outcomes, an unwell API server: the cycle ends.
- A plan that evicted nobody, and whose successor has the same victims: nothing helps at present.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.kube.eviction import Eviction, Evictor
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.caps import Caps
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.observer import Observer
from rebalancer.runtime.outcome import CycleReport, End, MoveStatus, Outcome
from rebalancer.runtime.wave import Baseline, Flown, FreshLook, fly

_MOVED = frozenset({ReasonCode.NODES_CHANGED, ReasonCode.CHANGED_SINCE_PLAN, ReasonCode.TERMINATING})
"""Reasons after which another plan can come out differently although nobody was evicted."""


class Waiter(Baseline, Protocol):
    """`rebalancer.runtime.settle.Settler`, or a test's."""

    def settle(
        self, flown: Sequence[tuple[Move, Eviction, float]], done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """Waits for what is in flight."""
        ...


class CycleLimits(Struct, frozen=True, kw_only=True):
    """`max_replans`: plans made because the world did not keep to one. `max_evictions`: in a cycle, beyond
    the policy's caps; None = twice what the first plan has. `max_failed`: replacements that may fail."""

    max_replans: int = 5
    max_evictions: int | None = None
    max_failed: int = 1


_DEFAULTS = CycleLimits()


class Parts(Struct, frozen=True, eq=False, kw_only=True):
    """What a cycle is made of; `rebalancer.runtime.live` makes them for a cluster.

    `snapshot` reads the cluster, `plan` plans it, `look` and `waiter` are made anew for each plan.
    """

    snapshot: Callable[[], Snapshot]
    plan: Callable[[Snapshot], Plan]
    look: Callable[[Snapshot, Plan], FreshLook]
    waiter: Callable[[Snapshot], Waiter]
    evictor: Evictor
    clock: Clock
    observer: Observer
    policy: PolicyOptions = PolicyOptions()
    limits: CycleLimits = _DEFAULTS


class _Pass(Struct, frozen=True, eq=False):
    """How one plan was executed. `again`: why a new plan is needed, `counted` against `max_replans`;
    `moved`: the cluster has changed, so that it may come out differently."""

    again: str = ""
    counted: bool = False
    moved: bool = False
    end: End | None = None
    message: str = ""


class Cycle:
    """One cycle. `run` raises UserError only where the cluster cannot be read the first time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._outcomes: list[Outcome] = []
        self._caps: Caps | None = None
        self._most = 0

    def run(self) -> CycleReport:
        """Works until nothing is left to do, or until it must not go on; the report says which."""
        p = self._parts
        began = p.clock.monotonic()
        first: Plan | None = None
        plan: Plan | None = None
        plans = replans = 0
        fruitless: frozenset[str] | None = None
        done = _Pass()
        while True:
            if p.clock.stopping():
                done = _Pass(end=End.STOPPED, message="a stop was asked for")
                break
            p.observer.on_reading()
            try:
                snapshot = p.snapshot()
            except UserError as e:
                if plans == 0:
                    raise
                stopped = p.clock.stopping()
                done = _Pass(end=End.STOPPED if stopped else End.ABORTED, message=e.message)
                break
            p.observer.on_snapshot(snapshot)
            if p.clock.stopping():
                done = _Pass(end=End.STOPPED, message="a stop was asked for")
                break
            plan = p.plan(snapshot)
            plans += 1
            if first is None:
                first = plan
                self._caps = Caps(p.policy, snapshot)
                limit = p.limits.max_evictions
                self._most = limit if limit is not None else 2 * len(plan.moves)
            p.observer.on_plan(snapshot, plan)
            if not plan.moves:
                done = _Pass(end=End.COMPLETE, message=_nothing_left(plan))
                break
            victims = frozenset(m.pod.uid for m in plan.moves)
            if victims == fruitless:
                done = _Pass(end=End.NO_PROGRESS, message=done.again)
                break
            before = len(self._outcomes)
            done = self._execute(snapshot, plan)
            fruitless = None if done.moved or self._evicted(before) else victims
            if done.end is not None:
                break
            replans += done.counted
            if replans > p.limits.max_replans:
                done = _Pass(
                    end=End.UNSTABLE, message=f"{replans} plans did not hold; the last: {done.again}"
                )
                break
        report = CycleReport(
            end=done.end or End.COMPLETE,
            message=done.message,
            first=first,
            last=plan,
            plans=plans,
            outcomes=tuple(self._outcomes),
            seconds=p.clock.monotonic() - began,
        )
        p.observer.on_report(report)
        return report

    def _evicted(self, since: int = 0) -> int:
        return sum(o.evicted for o in self._outcomes[since:])

    def _execute(self, snapshot: Snapshot, plan: Plan) -> _Pass:
        """All waves of a plan, as long as the world keeps to it."""
        p = self._parts
        look, waiter = p.look(snapshot, plan), p.waiter(snapshot)
        labels = {n.name: n.labels for n in snapshot.nodes}
        mine: list[Outcome] = []

        def leaves(move: Move) -> list[str]:
            here = labels.get(move.pod.node_name, {})
            keys = (plan.constraints[i].constraint.topology_key for i in move.fixes)
            return [f"{k}={here[k]}" for k in dict.fromkeys(keys) if k in here]

        for wave in plan.waves:
            if not wave:
                continue
            room = self._most - self._evicted()
            if room <= 0:
                return _Pass(end=End.UNSTABLE, message=f"{self._most} evictions, and still not done")
            p.observer.on_wave(wave[0].wave, wave)
            assert self._caps is not None
            flown = fly(
                wave[:room],
                leaves=leaves,
                look=look,
                baseline=waiter,
                evictor=p.evictor,
                caps=self._caps,
                clock=p.clock,
                observer=p.observer,
            )
            landed = waiter.settle(flown.in_flight, p.observer.on_outcome)
            mine += (*flown.settled, *landed)
            self._outcomes += (*flown.settled, *landed)
            p.observer.on_wave_end(wave[0].wave)
            verdict = self._after(flown, landed, mine)
            if verdict is not None:
                return verdict
        if any(o.evicted for o in mine):
            return _Pass(again="whether anything is left")
        return _Pass(end=End.RECORDED, message="nothing was evicted: this is what would have been")

    def _after(self, flown: Flown, landed: Sequence[Outcome], mine: Sequence[Outcome]) -> _Pass | None:
        """Whether the next wave must not follow, and what follows instead."""
        p = self._parts
        failed = [o for o in self._outcomes if o.evicted and o.status is MoveStatus.FAILED]
        if flown.fatal:
            return _Pass(end=End.ABORTED, message=flown.fatal)
        if len(failed) > p.limits.max_failed:
            return _Pass(
                end=End.ABORTED, message=f"{len(failed)} replacements failed; the last: {failed[-1].message}"
            )
        if p.clock.stopping():
            return _Pass(end=End.STOPPED, message="a stop was asked for")
        if flown.capped:
            reached = next(o.message for o in flown.settled if o.reason and o.reason.code is ReasonCode.CAP)
            return _Pass(end=End.CAPPED, message=reached)
        strays = Counter(o.move.owner.key for o in self._outcomes if o.expected is False)
        if strays and (worst := strays.most_common(1)[0])[1] > 1:
            say = f"{worst[1]} replacements of {worst[0]} landed where the plan did not expect them"
            return _Pass(end=End.UNSTABLE, message=say)
        unplanned = [o for o in landed if o.status is MoveStatus.FAILED or o.expected is not True]
        if unplanned:
            return _Pass(again=unplanned[0].message, counted=True)
        if flown.trouble:
            if any(o.status is MoveStatus.RECORDED for o in mine):
                return None  # nothing changes by a dry run: the rest of the plan is still worth showing
            moved = any(o.reason is not None and o.reason.code in _MOVED for o in mine)
            return _Pass(again=flown.trouble, counted=True, moved=moved)
        elsewhere = next((o for o in landed if not o.as_planned), None)
        return _Pass(again=elsewhere.message) if elsewhere is not None else None


def _nothing_left(plan: Plan) -> str:
    if plan.violated == 0:
        return "every constraint in scope holds"
    keep = "constraint keeps" if plan.violated == 1 else "constraints keep"
    return f"no eviction helps: {plan.violated} {keep} an excess of {plan.excess}"
