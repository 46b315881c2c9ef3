"""All that the judge holds against a plan of one cluster, as a list of findings by category.

Categories, beside the kinds of `flight.Problem` (with "predicted-" before it if it happens even where every
replacement lands as predicted; with "any-order-" if only where they land between evictions or victims
are gone early):

exception            planning raised
misreported          excess, or residual excess where all land as predicted, is not what is counted
landing-dependent    the residual excess is another where replacements land elsewhere
not-deterministic    planning twice gave two plans
not-idempotent       planning on the predicted result gave moves
residual             more excess left than what can be reached
evictions            more evictions than are needed for the same excess (beyond 10 pods: than bound + 1)
false-optimal        `optimal`, though better can be reached
false-bound          `lower_bound` above what suffices
likely               a move is not certain, though the default policy asks for certain ones
cycle-…              one of the above where the planner plans anew after every wave, as the runtime does;
                     its residual and evictions are held against the adaptive search, or, beyond 10 pods,
                     against the first plan and one eviction more
slow                 planning took more than `SLOW` seconds
beats-search         less excess or fewer evictions than the search thought possible: one of them errs

Notes are no findings: "loose-bound" (the integer program's bound is higher), "adaptive-better" (choosing the
next victim after seeing where the last replacement landed does better than any plan can), "more-to-do"
(planning again gives moves where replacements landed elsewhere than predicted).
"""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field
from random import Random

from rebalancer.planner.plan import Plan
from tests.support.build import NOW, decoded
from tests.support.judge.bound import Bound, bound
from tests.support.judge.cells import Cells, UnsupportedError
from tests.support.judge.cycles import Planner, after_walk, pursue
from tests.support.judge.exhaustive import Best, adaptive, fixed
from tests.support.judge.flight import ANY, PLAIN, PREDICTED
from tests.support.judge.plans import told, waves_of
from tests.support.judge.reach import witness
from tests.support.judge.walk import Result, play, play_all
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State, total_excess

SLOW = 5.0
EXHAUSTIVE = 10
"""Pods up to which everything is tried."""


@dataclass
class Verdict:
    """Findings as (category, text), and figures for statistics."""

    findings: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    plan: Plan | None = None
    seconds: float = 0.0
    excess: int = 0
    bound: Bound | None = None
    best: Best | None = None
    game: Best | None = None
    listed: list[Json] = field(default_factory=list)

    def blame(self, category: str, text: str) -> None:
        """Adds a finding unless it is there."""
        if (category, text) not in self.findings:
            self.findings.append((category, text))


def judge_plan(
    listed: list[Json],
    planner: Planner,
    *,
    plays: int = 4,
    again: bool = True,
    compare: bool = True,
    cycles: bool = True,
) -> Verdict:
    """Plans the cluster and holds the plan against everything the judge knows.

    `plays`: how often larger clusters are played for each timing. `again`: plan twice, and on the result.
    `compare`: with search and integer program. `cycles`: plan anew after every wave.
    """
    verdict, state = Verdict(), State.of(listed)
    verdict.excess = total_excess(state)
    began = time.perf_counter()
    plan = _planned(planner, listed, verdict)
    verdict.seconds = time.perf_counter() - began
    if plan is None:
        return verdict
    verdict.plan = plan
    if likely := [m.pod.name for m in plan.moves if not m.certain]:
        verdict.notes.append(("likely", f"moves of {likely} are not certain"))
    if verdict.seconds > SLOW:
        verdict.blame("slow", f"{verdict.seconds:.1f} s")
    if plan.excess != verdict.excess:
        verdict.blame("misreported", f"excess is {verdict.excess}, the plan says {plan.excess}")
    ends = _ends(state, plan, verdict, plays)
    for end in ends:
        left = total_excess(end.state)
        if not likely and left != plan.residual_excess:
            category = "misreported" if end is ends[0] else "landing-dependent"
            verdict.blame(category, f"residual is {left}, the plan says {plan.residual_excess}")
    if again:
        _again(listed, planner, plan, ends, verdict)
    if compare:
        # A plan with moves that depend on earlier landings promises the predicted one only.
        promising = ends[:1] if likely else ends
        _compare(state, plan, verdict, max(total_excess(e.state) for e in promising))
    if cycles and plan.moves and verdict.seconds < 1 and not state.pending():
        promised = (plan.residual_excess, len(plan.moves) + 1)
        _pursue(state, planner, verdict, promised if verdict.game is None else verdict.game.value)
    return verdict


def _again(listed: list[Json], planner: Planner, plan: Plan, ends: list[Result], verdict: Verdict) -> None:
    """The same snapshot gives the same plan, the result of the plan an empty one."""
    second = _planned(planner, listed, verdict)
    if second is not None and told(second) != told(plan):
        verdict.blame("not-deterministic", f"{told(plan)}\n{told(second)}")
    for end in ends[:3]:
        after = _planned(planner, after_walk(end.state), verdict, later=3600)
        if after is not None and after.moves:
            if end is ends[0]:
                verdict.blame("not-idempotent", told(after))
            else:
                verdict.notes.append(("more-to-do", told(after)))


def _planned(planner: Planner, listed: list[Json], verdict: Verdict, later: float = 0.0) -> Plan | None:
    try:
        return planner(decoded(listed, now=NOW + later))
    except TimeoutError as e:
        verdict.blame("slow", str(e))
        return None
    except Exception:
        verdict.blame("exception", traceback.format_exc(limit=-4))
        return None


def _ends(state: State, plan: Plan, verdict: Verdict, plays: int) -> list[Result]:
    """Where playing the plan led, its problems noted: everything on small clusters, chance on others.

    The first end is the predicted one, of the whole plan; elsewhere only certain moves are played as planned.
    """
    ends = [play(state, waves_of(plan), Random(0), PREDICTED)]
    waves = waves_of(plan, only_certain=True)
    _blame(verdict, "predicted-", ends)
    for timing, prefix in ((PLAIN, ""), (ANY, "any-order-")):
        found: list[Result] = []
        complete = False
        if len(state.pods) <= EXHAUSTIVE:
            found, complete = play_all(state, waves, timing)
        if not complete:
            found += [play(state, waves, Random(seed), timing) for seed in range(plays)]
        _blame(verdict, prefix, found)
        if not prefix:
            ends += found
    return ends


def _blame(verdict: Verdict, prefix: str, found: list[Result]) -> None:
    """Notes the first problem of each kind that an easier play has not shown already."""
    known = {category.removeprefix("predicted-") for category, _ in verdict.findings}
    for problem in sorted({p for result in found for p in result.problems}):
        if problem.kind not in known:
            known.add(problem.kind)
            verdict.blame(prefix + problem.kind, problem.text)


def _compare(state: State, plan: Plan, verdict: Verdict, left: int) -> None:
    try:
        cells = Cells.of(state)
    except UnsupportedError:
        return
    if state.pending():
        return
    goal = verdict.bound = bound(cells, seconds=10)
    value = (left, len(plan.moves))
    if goal.proved and plan.lower_bound > goal.evictions:
        verdict.blame(
            "false-bound", f"lower bound {plan.lower_bound}, {goal.evictions} suffice in the end state"
        )
    if goal.proved and plan.lower_bound < goal.evictions:
        verdict.notes.append(("loose-bound", f"lower bound {plan.lower_bound} where {goal.evictions} is one"))
    if len(state.pods) <= EXHAUSTIVE:
        best = verdict.best = fixed(cells, goal.excess)
        # The search makes sure moves only: with likely ones as predicted, a plan may come to less.
        sure = all(m.certain for m in plan.moves) or value < (goal.excess, goal.evictions)
        if best.complete and value != best.value and (sure or value > best.value):
            category = (
                "beats-search" if value < best.value else "residual" if left > best.excess else "evictions"
            )
            verdict.blame(category, f"plan {value}, search {best.value} evicting {_named(cells, best)}")
        if plan.optimal and best.value < value:
            verdict.blame("false-optimal", f"plan {value}, search {best.value}")
        game = adaptive(cells, goal.excess)
        verdict.game = game if game.complete else None
        if game.value < best.value:
            verdict.notes.append(("adaptive-better", f"fixed {best.value}, adaptive {game.value}"))
        return
    if left == goal.excess:
        if goal.proved and len(plan.moves) > goal.evictions + 1:
            verdict.blame("evictions", f"{len(plan.moves)}, the bound is {goal.evictions}")
    elif left > goal.excess:
        walked = witness(cells, goal)
        if walked[0] < left:
            verdict.blame(
                "residual", f"plan {value}, walked to {walked}, bound {(goal.excess, goal.evictions)}"
            )
        if plan.optimal and walked < value:
            verdict.blame("false-optimal", f"plan {value}, walked to {walked}")
    else:
        verdict.blame("beats-search", f"plan {value} below the bound {(goal.excess, goal.evictions)}")


def _pursue(state: State, planner: Planner, verdict: Verdict, promised: tuple[int, int]) -> None:
    """Planning anew after every wave must reach what was promised, wherever replacements land."""
    for seed in range(1 if verdict.game is None else 3):
        pursuit = pursue(state, planner, Random(seed))
        for problem in pursuit.problems:
            verdict.blame(f"cycle-{problem.kind}", problem.text)
        value = (total_excess(pursuit.state), pursuit.evictions)
        if not pursuit.quiet:
            verdict.blame("cycle-endless", f"{pursuit.evictions} evictions and no end")
        elif value > promised:
            category = "cycle-residual" if value[0] > promised[0] else "cycle-evictions"
            verdict.blame(category, f"planning anew each wave gives {value}, promised was {promised}")


def _named(cells: Cells, best: Best) -> list[str]:
    """Victims as node and labels."""
    return [f"{dict(cells.kinds[k].labels)} on {cells.nodes[n]}" for k, n in best.victims]
