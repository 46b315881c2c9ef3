"""The two ways to find bounds: by programs, whose answers are carried over to later ones; in closed form."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.planner.bounds import Effort, bounds_of
from rebalancer.planner.bounds.program import SeveralKeys
from rebalancer.planner.cluster.components import Component, components
from rebalancer.planner.constraints import HardConstraints, View
from rebalancer.planner.moves import Candidate, victim_order
from rebalancer.planner.plan import PlanOptions
from tests.support.build import decoded
from tests.support.clusters.random_clusters import clusters
from tests.support.scheduler.plain import Json

ENOUGH = 1_000_000


def violated(listed: list[Json]) -> list[Component]:
    options = PlanOptions()
    view = View(decoded(listed), options)
    order = victim_order(view.snapshot, view.evictable.budgets)
    hard = HardConstraints(view, options, order)
    every = [Component(*coupled, view.simulation) for coupled in components(hard.own, hard.classes.all)]
    return [c for c in every if c.classes and sum(c.excesses(c.start))]


@given(clusters("small"), st.randoms(use_true_random=False))
def test_a_bound_after_moves_is_that_of_a_program_solved_anew(listed: list[Json], rng: Random) -> None:
    for component in violated(listed):
        remaining = bounds_of(component, Effort(ENOUGH))
        least = remaining.least(component.start)
        for _ in range(4):
            placed = component.start
            for _ in range(3):
                movable = np.argwhere((placed > component.fixed) & (component.start > 0))
                if not len(movable):
                    break
                q, node = rng.choice(movable.tolist())
                open_ = np.flatnonzero((component.room[q] > 0) & (placed[q] <= component.start[q]))
                if not len(open_):
                    break
                landed = rng.choice(open_.tolist())
                pod = component.classes[q].by_node[node][0]
                candidate = Candidate(component, q, node, pod)
                told = remaining.moves_after(placed, least, candidate, landed)
                placed = candidate.moved(placed, landed)
                assert told == bounds_of(component, Effort(ENOUGH)).moves(placed, least)


@given(clusters("small", keys=1))
def test_the_closed_form_bounds_what_the_program_bounds(listed: list[Json]) -> None:
    for component in violated(listed):
        closed, solved = bounds_of(component, Effort(ENOUGH)), SeveralKeys(component, Effort(ENOUGH))
        least = solved.start_least()
        assert closed.start_least() == least
        assert closed.start_moves(least) == solved.start_moves(least)
