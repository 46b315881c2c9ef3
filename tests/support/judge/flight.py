"""What may happen within a wave, and what is wrong with it.

Events, in any order that `Timing` allows:
evict      the victim terminates: no longer counted, still holding its room
place      its replacement takes one of the nodes that the filters leave, Pending pods of at least its
           priority first; a StatefulSet's only once the victim is gone
arrive     a Pending pod takes one of the nodes that the filters leave
release    a victim is gone; those that remain go when all replacements are placed

A step that takes a label away replaces its pod first: at "evict" the owner lets go of the pod, which runs on,
and counts; once the replacement is placed, and Ready, the pod terminates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.support.scheduler.budget import Ledger
from tests.support.scheduler.owners import (
    adopters,
    assigned,
    evicted,
    owner_of,
    protection,
    released,
    replacement,
    waits_for_end,
)
from tests.support.scheduler.plain import Json, key_of, labels_of, namespace_of, node_of
from tests.support.scheduler.spread import Group
from tests.support.scheduler.state import State, excesses, feasible, kept_out_of

Meaning = tuple[object, ...]


def meaning(group: Group) -> Meaning:
    """A group without its eligible nodes: what a plan says of a constraint."""
    return (
        group.namespace,
        group.selector,
        group.key,
        group.max_skew,
        group.min_domains,
        group.affinity_policy,
        group.taints_policy,
    )


@dataclass(frozen=True)
class Step:
    """One move of a plan: the victim (namespace/name), where the plan says its replacement lands, and why.

    `label`: what is taken from the victim so that it is replaced first, "" if it is evicted at once.
    """

    pod: str
    destinations: frozenset[str] | None = None
    certain: bool = True
    predicted: str = ""
    fixes: tuple[Meaning, ...] | None = None
    label: str = ""


@dataclass(frozen=True)
class Timing:
    """Which events are played, in which orders.

    `interleaved`: replacements may be placed before the last victim of the wave is evicted, victims go in any
    order, and whenever nothing is in flight, no excess is higher: no more of them may ever go.
    `early`: victims may be gone before all replacements are placed.
    `mixed`: Pending pods arrive at any moment, whatever their priority; none has to before a replacement.
    `as_predicted`: one move after the other as the plan lists them, each landing where it predicts.
    """

    interleaved: bool = False
    early: bool = False
    mixed: bool = False
    as_predicted: bool = False


PLAIN = Timing()
ANY = Timing(interleaved=True, early=True, mixed=True)
PREDICTED = Timing(as_predicted=True)


@dataclass(frozen=True, order=True)
class Problem:
    """What a plan did wrong: `kind` is one of

    raised        an excess of a constraint that matches a moved pod is higher at the end of the wave
    pending       a replacement found no node
    budget        the Eviction API would refuse
    protected     a victim that must not be evicted, or is not there
    elsewhere     a node that the filters leave is not among the destinations of a certain move
    returned      the replacement is in every domain that it was to leave
    not-kept-out  the pod's own constraint lets the replacement return to the domain it left
    aimless       the move names no constraint of the cluster that it fixes
    astray        the predicted node is not left by the filters
    adopted       another owner, or the same, would take a released pod over
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Flight:
    """A moment within a wave; `before` is the state that the wave began with."""

    before: State
    state: State
    waiting: tuple[Step, ...]
    timing: Timing = PLAIN
    gone: tuple[str, ...] = ()
    out: tuple[tuple[Step, Json], ...] = ()
    leaving: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    moved: tuple[Json, ...] = field(default=(), compare=False)

    @property
    def over(self) -> bool:
        """Whether nothing is left to evict or to place."""
        return not self.waiting and not self.out

    def blame(self, kind: str, text: str) -> Flight:
        """The same moment with a problem more."""
        return replace(self, problems=(*self.problems, Problem(kind, text)))


Action = tuple[str, int]


def actions(flight: Flight) -> list[Action]:
    """What can happen next."""
    timing = flight.timing
    found: list[Action] = []
    if timing.as_predicted and flight.out:
        return [("place", 0)]
    if timing.mixed:
        found += [("arrive", i) for i in range(len(flight.state.pending()))]
    if flight.waiting:
        found += [("evict", i) for i in range(len(flight.waiting) if timing.interleaved else 1)]
        if not timing.interleaved:
            return found
    found += [("place", i) for i in range(len(flight.out))]
    if timing.early:
        found += [("release", i) for i in range(len(flight.leaving))]
    return found


def perform(flight: Flight, action: Action, everything: list[Group]) -> Iterator[Flight]:
    """The moments that may follow an action: one for each choice of the scheduler."""
    what, index = action
    if what == "evict":
        yield _evict(flight, index)
    elif what == "release":
        key = sorted(flight.leaving)[index]
        yield replace(flight, state=flight.state.without([key]), leaving=flight.leaving - {key})
    elif what == "arrive":
        pod = flight.state.pending()[index]
        nodes = feasible(flight.state, pod)
        for node in nodes:
            yield replace(flight, state=flight.state.with_pods([assigned(pod, node)]))
        if not nodes:
            yield flight
    else:
        for after in _place(flight, index, everything):
            yield _at_rest(after, everything) if flight.timing.interleaved and not after.out else after


def begin(state: State, wave: Iterable[Step], timing: Timing = PLAIN) -> Flight:
    """The moment before the first eviction of a wave."""
    return Flight(state, state, tuple(wave), timing)


def _evict(flight: Flight, index: int) -> Flight:
    step, rest = flight.waiting[index], flight.waiting[:index] + flight.waiting[index + 1 :]
    flight = replace(flight, waiting=rest, gone=(*flight.gone, step.pod))
    pod = flight.before.pods.get(step.pod)
    if pod is None or step.pod in flight.gone[:-1]:
        return flight.blame("protected", f"{step.pod} is not there")
    if why := protection(flight.before, pod):
        flight = flight.blame("protected", f"{step.pod}: {why}")
    if step.label:
        alone = released(pod, step.label)
        for name in adopters(flight.state, alone):
            flight = flight.blame("adopted", f"{step.pod} without {step.label}: by {name}")
        if flight.before.nodes[node_of(pod)]["spec"].get("unschedulable"):
            flight = flight.blame("protected", f"{step.pod}: its node is cordoned")
        return replace(flight, state=flight.state.with_pods([alone]), out=(*flight.out, (step, pod)))
    if why := _refusal(flight, pod):
        flight = flight.blame("budget", f"{step.pod}: {why}")
    return replace(
        flight,
        state=flight.state.with_pods([evicted(pod)]),
        out=(*flight.out, (step, pod)),
        leaving=flight.leaving | {step.pod},
    )


def _refusal(flight: Flight, pod: Json) -> str:
    """What the Eviction API and an ordered owner say against one more eviction in this wave."""
    ledger = Ledger(flight.before)
    evictions = [k for k in flight.gone[:-1] if k in flight.leaving or k not in flight.state.pods]
    earlier = [flight.before.pods[k] for k in evictions if k in flight.before.pods]
    for other in earlier:
        ledger.evict(other)
    owner = owner_of(flight.before, pod)
    if owner is not None and owner["kind"] == "StatefulSet":
        ordered = owner["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        if ordered and any(owner_of(flight.before, p) is owner for p in earlier):
            return "an OrderedReady StatefulSet has two pods in flight"
    return ledger.evict(pod)


def _place(flight: Flight, index: int, everything: list[Group]) -> Iterator[Flight]:
    step, victim = flight.out[index]
    flight = replace(flight, out=flight.out[:index] + flight.out[index + 1 :])
    if waits_for_end(victim) and step.pod in flight.leaving:
        flight = replace(flight, state=flight.state.without([step.pod]), leaving=flight.leaving - {step.pod})
    new = replacement(flight.state, victim)
    first = [flight.state] if flight.timing.mixed else settle(flight.state, new["spec"].get("priority") or 0)
    for state in first:
        here = replace(flight, state=state)
        left = feasible(state, new)
        if not left:
            yield replace(
                here.blame("pending", f"no node for the replacement of {step.pod}"), moved=_with(here, new)
            )
            continue
        if step.certain:
            here = _kept_out(here, step, victim, new, everything)
        allowed = left
        if step.destinations is not None:
            if step.certain and (more := set(left) - step.destinations):
                text = f"{step.pod} may land on {sorted(more)}, the plan says {sorted(step.destinations)}"
                here = here.blame("elsewhere", text)
            if not step.certain:
                allowed = [n for n in left if n in step.destinations] or left
        if flight.timing.as_predicted and step.predicted:
            if step.predicted not in left:
                here = here.blame("astray", f"{step.pod} cannot land on {step.predicted}, only on {left}")
            else:
                allowed = [step.predicted]
        for node in allowed:
            placed = replace(here, state=state.with_pods([assigned(new, node)]), moved=_with(here, new))
            if step.label:
                placed = _second(placed, step, new, everything)
            yield _returned(placed, step, victim, node, everything)


def _second(flight: Flight, step: Step, new: Json, everything: list[Group]) -> Flight:
    """The old pod of a step that replaces first is evicted; nothing was worse while both were there."""
    touched = [g for g in everything if g.matches(namespace_of(new), labels_of(new))]
    was, now = excesses(flight.before, touched), excesses(flight.state, touched)
    for g in touched:
        if now[g] > was[g]:
            flight = flight.blame("raised", f"{g}: excess {was[g]} -> {now[g]} with {step.pod} still there")
    old = flight.state.pods[step.pod]
    if why := Ledger(flight.state).evict(old):
        flight = flight.blame("budget", f"{step.pod}, released: {why}")
    return replace(flight, state=flight.state.with_pods([evicted(old)]), leaving=flight.leaving | {step.pod})


def _with(flight: Flight, pod: Json) -> tuple[Json, ...]:
    return (*flight.moved, pod)


def settle(state: State, priority: int, least: str = "") -> Iterator[State]:
    """The states in which Pending pods of at least this priority have taken what room they find."""
    for pod in sorted(state.pending(), key=lambda p: (-(p["spec"].get("priority") or 0), key_of(p))):
        own = pod["spec"].get("priority") or 0
        rank = f"{-own:+012d}{key_of(pod)}"
        if own < priority or rank <= least:
            continue
        if nodes := feasible(state, pod):
            for node in nodes:
                yield from settle(state.with_pods([assigned(pod, node)]), priority, rank)
            return
    yield state


def _fixed(step: Step, everything: list[Group], pod: Json) -> list[Group] | None:
    """The groups that the step names; None when the plan's description names none.

    A pod on a node that is not eligible is not counted, and helps by coming to where it is.
    """
    if step.fixes is None:
        return None
    named = [
        g for g in everything if meaning(g) in step.fixes and g.matches(namespace_of(pod), labels_of(pod))
    ]
    return [g for g in named if node_of(pod) in g.nodes] or named


def _domain(state: State, group: Group, node: str) -> str | None:
    return labels_of(state.nodes[node]).get(group.key)


def _kept_out(flight: Flight, step: Step, victim: Json, new: Json, everything: list[Group]) -> Flight:
    fixed = _fixed(step, everything, victim)
    if fixed is None:
        return flight
    if not fixed:
        return flight.blame("aimless", f"{step.pod} fixes no constraint that counts it")
    left = node_of(victim)
    for g in fixed:
        if left in g.nodes and _domain(flight.state, g, left) in kept_out_of(flight.state, new, g):
            return flight
        if left not in g.nodes and left not in feasible(flight.state, new):
            return flight
    return flight.blame("not-kept-out", f"{step.pod} may return to where it was by its own constraints")


def _returned(flight: Flight, step: Step, victim: Json, node: str, everything: list[Group]) -> Flight:
    fixed = _fixed(step, everything, victim)
    old = node_of(victim)
    if fixed and all(
        old in g.nodes and _domain(flight.state, g, old) == _domain(flight.state, g, node) for g in fixed
    ):
        return flight.blame("returned", f"{step.pod} went from {old} to {node}")
    return flight


def land(flight: Flight, everything: list[Group]) -> tuple[State, tuple[Problem, ...]]:
    """The end of a wave: victims are gone, excesses are compared with those that it began with."""
    state = flight.state.without(flight.leaving)
    return state, (*flight.problems, *_raised(flight, state, everything))


def _at_rest(flight: Flight, everything: list[Group]) -> Flight:
    """A moment at which no replacement is awaited: the runtime may stop here."""
    known = {p.text for p in flight.problems}
    state = flight.state.without(flight.leaving)
    found = [p for p in _raised(flight, state, everything) if p.text not in known]
    return replace(flight, problems=(*flight.problems, *found))


def _raised(flight: Flight, state: State, everything: list[Group]) -> list[Problem]:
    """What is worse in a state than when the wave began."""
    pods = [(namespace_of(p), labels_of(p)) for p in flight.moved]
    touched = [g for g in everything if any(g.matches(*p) for p in pods)]
    was, now = excesses(flight.before, touched), excesses(state, touched)
    return [Problem("raised", f"{g}: excess {was[g]} -> {now[g]}") for g in touched if now[g] > was[g]]
