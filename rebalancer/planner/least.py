"""What no placement can beat: the least excess with pods, room, volumes and policy as they are.

Asked only where a plan leaves an excess. Pods that carry a hard constraint and may be evicted stand anywhere
they find room, those of other constraints out of their way; order, budgets and harm on the way are left out.
So it is a lower bound of what any plan can reach, and the rest of the excess that stays has a cause. For the
first of these the program is asked again, for what the scheduler could come to (`program.AdmittedProgram`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from msgspec import Struct

from rebalancer.model.reason import ReasonCode
from rebalancer.planner.bounds.one_key import ClosedForm, NodeBuckets, ceilings, deciding
from rebalancer.planner.bounds.program import AdmittedProgram, LeastExcess, Program, least_excess
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import Classes, PodClass, add_yields
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.objective import Effort
from rebalancer.planner.plan import Between, Cause
from rebalancer.spread.arrays import Ints

_TOGETHER = 4000
"""Classes times nodes up to which all constraints are bounded by one program: their pods share room."""
_SINGLE = 20
"""Constraints that are bounded by a program each."""

_FORBIDDEN = frozenset({ReasonCode.NOT_CERTAIN, ReasonCode.PENDING_PODS, ReasonCode.NODE_LEAVING})
"""Reasons by which a move is forbidden that could be made."""


Asked = Callable[[], Mapping[str, Ints]]
"""Of each resource, int64[N], what all pods that carry a hard constraint and may move ask for."""


class Stays(Struct, frozen=True, eq=False):
    """A component that keeps an excess: its groups and classes, the excess that stays of each group, and the
    codes of the reasons given."""

    groups: tuple[Group, ...]
    classes: tuple[PodClass, ...]
    residual: tuple[int, ...]
    codes: frozenset[ReasonCode]


class Least(Struct, frozen=True, eq=False):
    """`excess`: no placement has less in all; `exact`: one has as little. `by_group`: the same of single
    groups, by index, as far as it was asked. `between`: what keeps the plan from it, by cause."""

    excess: int = 0
    exact: bool = True
    by_group: Mapping[int, int] = {}
    between: tuple[Between, ...] = ()


def least(
    simulation: Simulation,
    stays: Sequence[Stays],
    classes: Classes,
    groups: Sequence[Group],
    in_view: Collection[int],
    left: int,
    effort: Effort,
) -> Least:
    """The bound over all components that keep an excess, in the state before any move. `classes`: of all
    pods that carry a hard constraint; `groups`: all of these constraints; `in_view`: the indices of those
    whose excess counts; `left`: what the plan leaves of it. What is beyond the effort is not asked."""
    if not stays:
        return Least()

    @cache
    def asked() -> Mapping[str, Ints]:
        # Who of a whole cluster may move is a question for each of its pods.
        given: dict[str, Ints] = {}
        add_yields(given, classes.carrying, simulation)
        return given

    found = [_of(simulation, s, asked, effort) for s in stays]
    excess, exact = sum(f.excess for f in found), all(f.exact for f in found)
    together = _together(simulation, classes, groups, in_view, effort)
    if together is not None and together.excess > excess:
        excess, exact = together.excess, together.exact
    return Least(
        excess=min(excess, left),
        exact=exact and excess <= left,
        by_group=_single(simulation, stays, found, asked, effort),
        between=_between(
            stays,
            found,
            [_of(simulation, s, asked, effort, admitted=True).excess for s in stays],
            min(excess, left),
        ),
    )


def _of(
    simulation: Simulation, stays: Stays, asked: Asked, effort: Effort, *, admitted: bool = False
) -> LeastExcess:
    """The bound of one component, all pods of others out of its way. `admitted`: the least that the scheduler
    could come to without harm.

    First all pods of others stay where they are: if there need be no excess then, there need be none at all.
    """
    if not stays.classes:
        return LeastExcess(sum(stays.residual), True)
    bound = None
    # With several, the closed form rests on what the scheduler lets onto a node.
    closes = admitted or len(stays.groups) == 1
    for others in (dict[str, Ints], asked):
        component = _component(simulation, stays.groups, stays.classes, others())
        if closes and (by := deciding(component)) is not None:
            bound = LeastExcess(ClosedForm(component, by, anywhere=not admitted).start_least(), True)
        else:
            bound = _program(component, range(len(component.groups)), effort, admitted=admitted)
        if bound == LeastExcess(0, True):
            break
    assert bound is not None
    return bound


def _component(
    simulation: Simulation,
    groups: tuple[Group, ...],
    classes: tuple[PodClass, ...],
    asked: Mapping[str, Ints],
) -> Component:
    """Groups with their classes, all pods out of their way of which `asked` says what they ask for; their own
    are among these."""
    own: dict[str, Ints] = {}
    add_yields(own, classes, simulation)
    others = {resource: amount - own.get(resource, 0) for resource, amount in asked.items()}
    return Component(groups, classes, simulation, others)


def _together(
    simulation: Simulation,
    every: Classes,
    groups: Sequence[Group],
    in_view: Collection[int],
    effort: Effort,
) -> LeastExcess | None:
    """The bound of all constraints, those that hold too, for their pods compete for room; None where that is
    too much to ask."""
    if every.more_carry_than(_TOGETHER // simulation.state.table.size):
        return None
    classes = tuple(c for c in every.carrying if any(_movable(c).values()))
    if not classes:
        return None
    component = Component(tuple(groups), classes, simulation)
    return _program(component, [i for i, group in enumerate(groups) if group.index in in_view], effort)


def _program(
    component: Component, groups: Sequence[int], effort: Effort, *, admitted: bool = False
) -> LeastExcess:
    start, buckets = component.start, NodeBuckets(component).buckets(component.start)
    program = (
        AdmittedProgram(component, start, buckets, None, ceilings(component), only=groups)
        if admitted
        else Program(component, start, buckets, None, only=groups)
    )
    return least_excess(program, effort)


def _single(
    simulation: Simulation,
    stays: Sequence[Stays],
    found: Sequence[LeastExcess],
    asked: Asked,
    effort: Effort,
) -> dict[int, int]:
    """The bounds of single groups, those that keep most first."""
    known: dict[int, int] = {}
    to_ask: list[tuple[int, int, int]] = []
    for s, (stay, bound) in enumerate(zip(stays, found, strict=True)):
        for i, (group, left) in enumerate(zip(stay.groups, stay.residual, strict=True)):
            if not left:
                known[group.index] = 0
            elif len(stay.groups) == 1 or not stay.classes:
                known[group.index] = min(bound.excess, left) if stay.classes else left
            else:
                to_ask.append((-left, s, i))
    for _, s, i in sorted(to_ask)[:_SINGLE]:
        if effort.gone:
            break
        bound = _program(_component(simulation, stays[s].groups, stays[s].classes, asked()), [i], effort)
        known[stays[s].groups[i].index] = min(bound.excess, stays[s].residual[i])
    return known


def _between(
    stays: Sequence[Stays], found: Sequence[LeastExcess], admitted: Sequence[int], least: int
) -> tuple[Between, ...]:
    """What lies between the bound and what stays, by cause."""
    total = sum(sum(s.residual) for s in stays)
    by: dict[Cause, int] = {}
    for stay, bound, could_be in zip(stays, found, admitted, strict=True):
        left = sum(stay.residual)
        could_be = max(bound.excess, min(could_be, left))
        for cause, gap in (
            (Cause.NOT_PLACED, could_be - bound.excess),
            (_cause(stay, bound), left - could_be),
        ):
            by[cause] = by.get(cause, 0) + max(0, gap)
    # Where components compete for room, their bounds in sum are below that of all together.
    over = sum(by.values()) - max(0, total - least)
    for cause in reversed(Cause):
        cut = min(max(over, 0), by.get(cause, 0))
        by[cause] = by.get(cause, 0) - cut
        over -= cut
    return tuple(Between(cause, by[cause]) for cause in Cause if by.get(cause))


def _cause(stay: Stays, bound: LeastExcess) -> Cause:
    if ReasonCode.SIMULATION_LIMIT in stay.codes or not bound.exact:
        return Cause.GAVE_UP
    return Cause.FORBIDDEN if stay.codes & _FORBIDDEN else Cause.NOT_REACHABLE


def _movable(pods: PodClass) -> dict[int, int]:
    """How many of a class's pods on each node may be evicted."""
    return {node: len(there) - pods.pinned.get(node, 0) for node, there in pods.by_node.items()}
