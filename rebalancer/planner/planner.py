"""Snapshot in, plan out: the pipeline of constraints, components, moves, waves and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from rebalancer.bulk_work import bulk_work
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.drained import Drained
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.cluster.to_be_made import Expelling, to_be_made
from rebalancer.planner.cluster.waiting import Waiting, settle
from rebalancer.planner.constraints import HardConstraints, Results, SoftConstraints, View
from rebalancer.planner.hard import TURNS, Planned
from rebalancer.planner.least import Least, Stays, least
from rebalancer.planner.moves import JudgedMove, Wave, in_order, victim_order
from rebalancer.planner.new_nodes import into_new_node
from rebalancer.planner.objective import for_proof, steps_in_all
from rebalancer.planner.plan import Move, Plan, PlanOptions, Refusal, reason
from rebalancer.planner.stays import shown_move
from rebalancer.planner.waves.schedule import demands, waiting_moves
from rebalancer.planner.waves.wave import wave_limits
from rebalancer.policy.caps import PER_DAY, Caps
from rebalancer.policy.new_pods import making
from rebalancer.policy.owners import not_looked_at, unread_annotations
from rebalancer.policy.pods_to_come import PodsToCome

_RESTS_ON_SCORES = (
    "soft constraints (ScheduleAnyway) are in scope: moves for them rest on the scheduler's scores"
)

_LABELS_ASKED_FOR = (
    "no policy, DestinationRule or PodMonitor asks for the label of a pod that is replaced first: they "
    "are in no snapshot, and are read in the cluster"
)


def plan(snapshot: Snapshot, options: PlanOptions | None = None) -> Plan:
    """The fewest evictions that restore the snapshot's hard constraints, in waves, with all reasons."""
    options = options or PlanOptions()
    return plan_view(view_of(snapshot, options), options)


@bulk_work()
def view_of(snapshot: Snapshot, options: PlanOptions) -> View:
    """What a plan starts from."""
    return View(snapshot, options)


def plan_view(view: View, options: PlanOptions) -> Plan:
    """The plan of a snapshot as it is to be planned; Pending pods whose place is settled are then in it.

    Repairs that are not worth their evictions are left out as a whole, so that no chain is half done.
    """
    made, left_alone = _whole(view, options), dict(options.policy.waiting_owners)
    while (poor := _not_worth_it(made, options.policy.min_worth)) and not poor.keys() <= left_alone.keys():
        left_alone |= poor
        options = replace(options, policy=replace(options.policy, waiting_owners=left_alone))
        made = _whole(view_of(view.snapshot, options), options)
    worth = {owner: saved / moves for owner, (saved, moves) in _bought(made).items()}
    return replace(made, moves=tuple(replace(m, worth=worth[m.owner.key]) for m in made.moves))


def _bought(made: Plan) -> dict[str, tuple[int, int]]:
    """Owner → how many pods fewer go with the fullest domain of one of its constraints, and for how many
    evictions."""
    moves, fixed = Counter(m.owner.key for m in made.moves), dict[str, set[int]]()
    for m in made.moves:
        fixed.setdefault(m.owner.key, set()).update(m.fixes)

    def saved(index: int) -> int:
        c = made.constraints[index]
        return max(c.domains.values(), default=0) - max(c.after.values(), default=0)

    return {owner: (max([0, *map(saved, fixed[owner])]), n) for owner, n in moves.items()}


def _not_worth_it(made: Plan, least: float) -> dict[str, Reason]:
    """Owner → why its pods stay: each eviction has to save so many pods."""
    return {
        owner: reason(
            ReasonCode.NOT_WORTH_IT,
            f"mending it evicts {moves} of its pods and saves {saved} where the fullest domain fails: "
            f"{saved / moves:.2g} for each eviction, and evictions.minWorth is {least:g}",
            saved=saved,
            evictions=moves,
        )
        for owner, (saved, moves) in _bought(made).items()
        if saved < least * moves
    }


def _whole(view: View, options: PlanOptions) -> Plan:
    made = _planned(view, options)
    if spent := _spent(made):
        # Others may mend until tomorrow what these share with them.
        left_alone = {**options.policy.waiting_owners, **spent}
        by_others = replace(options, policy=replace(options.policy, waiting_owners=left_alone))
        other = _planned(view_of(view.snapshot, by_others), by_others)
        made = max(made, other, key=lambda found: len(found.allowed))
    if made.moves or not options.policy.into_new_nodes:
        return made
    return into_new_node(view, options, made, lambda s, o: _planned(view_of(s, o), o))


def _spent(made: Plan) -> dict[str, Reason]:
    """Owners that have had their evictions of the day, and whose moves mend constraints of others, too."""
    able = {m.owner.key for m in made.allowed}
    return {
        m.owner.key: m.waits
        for m in made.moves
        if m.waits is not None and PER_DAY in m.waits.numbers and m.owner.key not in able
        if any(len(made.constraints[i].workloads) > 1 for i in m.fixes)
    }


@bulk_work()
def _planned(view: View, options: PlanOptions) -> Plan:
    order = victim_order(view.snapshot, view.evictable.budgets)
    soft = SoftConstraints(view, options, order) if options.soft == "predicted" else None
    hard = HardConstraints(view, options, order)
    highest = hard.classes.highest_priority if view.pending else 0
    unsettled = settle(view.simulation, view.pending, highest)
    owners, replacements = view.evictable.owners, view.evictable.replacements
    leaving = [*Expelling(view.simulation).pods(view.snapshot)]
    view.simulation.drained = Drained(leaving)
    to_come = to_be_made(PodsToCome(owners), replacements, view.simulation, leaving)
    waiting = Waiting(view.simulation, hard.groups, unsettled, to_come)

    with ExitStack() as made:
        waves, given_up, late = _in_turns(view, hard, soft, waiting, made)
        moves = in_order(waves)
        solved = hard.ended()
        results = [hard.results(moves, given_up)]
        if soft is not None:
            results.append(soft.results(moves, late))
    constraints = tuple(
        c if view.evictable.in_view(c.constraint.namespace) else replace(c, in_scope=False)
        for r in results
        for c in r.constraints
    )
    left = any(c.residual_excess for c in results[0].constraints)
    bound = Least(exact=False)
    if options.proves:
        bound = least(
            view.simulation,
            _stays(view, hard, results[0]),
            hard.classes,
            hard.groups.all,
            {g.index for g in hard.own if view.evictable.in_view(g.constraint.namespace)},
            sum(c.residual_excess for c in constraints if c.in_scope),
            for_proof(steps_in_all(view.simulation.spent.steps, len(view.snapshot.pods))),
        )
    lower_bound = sum(s.solution.bound for s in solved)
    # However it was found: no plan leaves less than nothing, and none gets there with fewer moves.
    fewest = not left and len(moves) == lower_bound
    # With an excess left, another order of several components might have left less; and of what rests on
    # scores, a soft excess that stays among it, nothing is proved.
    searched = all(s.solution.proved for s in solved) and not given_up and (len(solved) <= 1 or not left)
    whole = _moves(view, options, waves, results)
    # Pods are replaced first, and nobody has looked who else asks for their labels.
    unlooked = options.policy.label_users is None and any(m.release_label for m in whole)
    return Plan(
        constraints=tuple(
            replace(c, least_excess=bound.by_group[g.index])
            if c.residual_excess and c.constraint.hard and g.index in bound.by_group
            else c
            for c, g in zip(constraints, (g for r in results for g in r.groups), strict=True)
        ),
        moves=whole,
        blocked=_blocked(moves, results),
        lower_bound=lower_bound,
        optimal=not view.simulation.state.version.newer_by
        and all(m.certain for m in moves)
        and not late
        and (fewest or searched)
        and not any(c.residual_excess for r in results[1:] for c in r.constraints),
        assumptions=(
            *view.simulation.assumptions(),
            *((_RESTS_ON_SCORES,) if soft is not None else ()),
            *((_LABELS_ASKED_FOR,) if unlooked else ()),
            *not_looked_at(making(m.owner, m.pod) for m in whole),
            *unread_annotations([m.owner for m in whole]),
        ),
        components=tuple(s.figures() for s in solved),
        demands=demands(waves, view.evictable, wave_limits(view.simulation, view.evictable)),
        least_excess=bound.excess,
        least_exact=bound.exact,
        between=bound.between,
        steps=steps_in_all(view.simulation.spent.steps, len(view.snapshot.pods)),
    )


def _in_turns(
    view: View, hard: HardConstraints, soft: SoftConstraints | None, waiting: Waiting, made: ExitStack
) -> tuple[list[Wave], list[Refusal], tuple[Refusal, ...]]:
    """The waves for hard and soft constraints, and the moves for each of the two that were not kept.

    The simulation stays as they leave it until `made` ends.
    """
    waves: list[Wave] = []
    late: tuple[Refusal, ...] = ()

    def take(planned: Planned) -> Planned:
        waves.extend(planned.waves)
        made.enter_context(view.simulation.after(in_order(planned.waves)))
        return planned

    given_up = [*take(hard.plan(waiting)).refused]
    for _ in range(TURNS if soft is not None else 0):
        assert soft is not None
        more = take(soft.plan(waiting))
        late = more.refused
        if not more.waves or not hard.excess():
            break
        # For the room that moves for soft constraints free.
        again = take(hard.plan(waiting))
        given_up += again.refused
        if not again.waves:
            break
    return waves, given_up, late


def _stays(view: View, hard: HardConstraints, results: Results) -> list[Stays]:
    """The components in view that keep an excess."""
    of_group = {g.index: c for g, c in zip(results.groups, results.constraints, strict=True)}
    found = []
    for solved in hard.solved.values():
        own = [of_group.get(g.index) for g in solved.groups]
        residual = tuple(c.residual_excess if c is not None else 0 for c in own)
        if any(residual) and view.evictable.in_view(solved.groups[0].constraint.namespace):
            codes = frozenset(r.code for c in own if c is not None for r in c.reasons)
            found.append(Stays(solved.groups, solved.classes, residual, codes))
    return found


def _moves(view: View, options: PlanOptions, waves: list[Wave], results: list[Results]) -> tuple[Move, ...]:
    position = {id(g): i for i, g in enumerate(g for r in results for g in r.groups)}
    owners, first = view.evictable.owners, view.evictable.replace_first
    numbered = [(number, move) for number, wave in enumerate(waves, 1) for move in wave]
    caps = Caps(options.policy, view.snapshot, owners)
    waits = waiting_moves(caps, owners, (move for _, move in numbered))
    known = _known_rules(view.simulation, [move for _, move in numbered])
    return tuple(
        shown_move(
            view.simulation,
            owners,
            move,
            number,
            position,
            waits.get(i),
            first.of(move.pod),
            certain=known[i],
        )
        for i, (number, move) in enumerate(numbered)
    )


def _known_rules(simulation: Simulation, moves: Sequence[JudgedMove]) -> list[bool]:
    """Whether the rules that each move rests on at its turn are known: those of the version, or what the
    scheduler's own decisions have shown of them."""
    if not simulation.state.version.newer_by:
        return [True] * len(moves)
    found = []
    with ExitStack() as made:
        for m in moves:
            shown = simulation.covered(
                m.pod, m.replacement, simulation.state.witness, after_gone=m.late, release=m.release
            )
            found.append(shown)
            made.enter_context(simulation.after([m]))
    return found


def _blocked(moves: list[JudgedMove], results: list[Results]) -> tuple[Refusal, ...]:
    """Pods that are left alone, by name; what holds for hard constraints comes first."""
    moved = {key_of(m.pod) for m in moves}
    every = {r.pod.key: r for result in reversed(results) for r in result.refused}
    return tuple(r for _, r in sorted(every.items()) if key_of(r.pod) not in moved)
