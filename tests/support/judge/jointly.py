"""One joint move as it may go: its evictions one after the other, everything else in any order in between.

Judged by the plain filter, not by the engine. The set may end after any of its evictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from rebalancer.planner.plan import Move, Plan, together
from tests.support.scheduler.owners import assigned, evicted, replacement, waits_for_end
from tests.support.scheduler.plain import Json
from tests.support.scheduler.spread import Group
from tests.support.scheduler.state import State, excesses, feasible, groups


@dataclass(frozen=True)
class Set:
    """A joint move: its victims in the order of their evictions, and what the plan says of it."""

    pods: tuple[str, ...]
    waiting: int
    gain: int
    destinations: tuple[frozenset[str], ...]


def sets_of(plan: Plan, state: State) -> list[tuple[State, Set]]:
    """Each joint move of the plan, with the state in which it begins if all before it landed as predicted."""
    found, seen = [], set[int]()
    for move in sorted(plan.moves, key=lambda m: m.wave):
        joint = move.joint
        if joint is not None and joint.number not in seen:
            seen.add(joint.number)
            where = tuple(frozenset(m.destinations) for m in together(plan, move))
            found.append((state, Set(joint.pods, joint.waiting, joint.gain, where)))
        state = _made(state, move)
    return found


def _made(state: State, move: Move) -> State:
    key = f"{move.pod.namespace}/{move.pod.name}"
    new = assigned(replacement(state, state.pods[key]), move.predicted)
    return state.without([key]).with_pods([new])


def problems(state: State, joint: Set, sent: int, rng: Random) -> list[str]:
    """What goes wrong if so many of its evictions are sent, and everything happens in some order."""
    before = excesses(state, groups(state))
    out, ending = 0, list[str]()
    waiting: dict[str, Json] = {}
    found: list[str] = []
    while True:
        places = [
            (key, new, node)
            for key, new in waiting.items()
            if not (waits_for_end(new) and key in ending)
            for node in feasible(state, new)
        ]
        send, end = int(out < sent), len(ending)
        if not (send or end or places):
            break
        event = rng.randrange(send + end + len(places))
        if event < send:
            key = joint.pods[out]
            waiting[key] = replacement(state, state.pods[key])
            state, out = state.with_pods([evicted(state.pods[key])]), out + 1
            ending.append(key)
        elif event < send + end:
            state = state.without([ending.pop(event - send)])
        else:
            key, new, node = places[event - send - end]
            del waiting[key]
            state = state.with_pods([assigned(new, node)])
            if node not in joint.destinations[joint.pods.index(key)]:
                found.append(f"{key} lands on {node}, which is not planned")
    return [*found, *_ended(state, joint, sent, len(waiting), before)]


def _ended(state: State, joint: Set, sent: int, waiting: int, before: Mapping[Group, int]) -> list[str]:
    now = excesses(state, before)
    found = [f"{g}: excess {before[g]} -> {now[g]}" for g in before if now[g] > before[g]]
    whole = sent == len(joint.pods)
    if waiting > (0 if whole else joint.waiting):
        found.append(f"{waiting} replacements wait after {sent} of {len(joint.pods)}")
    if whole and sum(before.values()) - sum(now.values()) < joint.gain:
        found.append(f"the excess falls by less than {joint.gain}")
    return found


def play(state: State, joint: Set, rng: Random) -> list[str]:
    """One way in which it can go: as a whole in every other, else broken off somewhere."""
    sent = len(joint.pods) if rng.random() < 0.5 else rng.randint(1, len(joint.pods))
    return problems(state, joint, sent, rng)
