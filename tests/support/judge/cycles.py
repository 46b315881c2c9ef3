"""What a runtime that plans anew after every wave makes of a cluster: the adaptive use of a planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan
from tests.support.build import NOW, decoded
from tests.support.judge.flight import Problem
from tests.support.judge.plans import waves_of
from tests.support.judge.walk import play
from tests.support.scheduler.budget import with_status
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State

Planner = Callable[[Snapshot], Plan]


@dataclass(frozen=True)
class Pursuit:
    """Where it ended; `quiet` says that the last plan was empty."""

    state: State
    evictions: int
    problems: tuple[Problem, ...]
    quiet: bool


def after_walk(state: State) -> list[Json]:
    """The objects of a state, budgets with the status that the controller has written since."""
    fresh = [
        {k: v for k, v in o.items() if k != "status"} if o["kind"] == "PodDisruptionBudget" else o
        for o in state.objects()
    ]
    return with_status(fresh)


def pursue(state: State, planner: Planner, rng: Random, most: int = 30) -> Pursuit:
    """Plans, plays the first wave with landings by chance, plans again, until nothing is left to do."""
    evictions, problems = 0, list[Problem]()
    for cycle in range(most):
        waves = waves_of(planner(decoded(after_walk(state), now=NOW + 60 * cycle)))
        if not waves:
            return Pursuit(state, evictions, tuple(problems), True)
        end = play(state, waves[:1], rng)
        evictions += len(waves[0])
        problems += end.problems
        state = end.state
    return Pursuit(state, evictions, tuple(problems), False)
