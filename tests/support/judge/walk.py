"""Plays a plan against the plain scheduler: by chance, or through every chance there is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.support.judge.flight import PLAIN, Flight, Problem, Step, Timing, actions, begin, land, perform
from tests.support.scheduler.owners import replacement, waits_for_end
from tests.support.scheduler.plain import controller_of, key_of, node_of
from tests.support.scheduler.spread import Group, groups_of
from tests.support.scheduler.state import State, groups


@dataclass(frozen=True)
class Result:
    """Where a play ended, and its problems."""

    state: State
    problems: tuple[Problem, ...] = ()


def all_groups(state: State, waves: Sequence[Sequence[Step]]) -> list[Group]:
    """Groups of the cluster, and those that replacements bring."""
    found = set(groups(state))
    for step in (s for w in waves for s in w):
        if step.pod in state.pods:
            found.update(groups_of(replacement(state, state.pods[step.pod]), state.nodes))
    return sorted(found, key=repr)


def play(state: State, waves: Sequence[Sequence[Step]], rng: Random, timing: Timing = PLAIN) -> Result:
    """One play by chance; it goes on after a problem, so that all are seen."""
    everything = all_groups(state, waves)
    problems: list[Problem] = []
    for wave in waves:
        flight = begin(state, wave, timing)
        while not flight.over:
            action = rng.choice(actions(flight))
            flight = rng.choice(list(perform(flight, action, everything)))
        state, found = land(flight, everything)
        problems += found
    return Result(state, tuple(problems))


def play_all(
    state: State, waves: Sequence[Sequence[Step]], timing: Timing = PLAIN, limit: int = 2000
) -> tuple[list[Result], bool]:
    """Every end that chance can bring, and whether all were seen within `limit` moments a wave.

    States that hold the same number of each owner's pods on each node are one state.
    """
    everything = all_groups(state, waves)
    ends, complete = [Result(state)], True
    for wave in waves:
        following: dict[object, Result] = {}
        for end in ends:
            todo, seen = [begin(end.state, wave, timing)], set[object]()
            while todo and complete:
                flight = todo.pop()
                if flight.over:
                    state_after, found = land(flight, everything)
                    result = Result(state_after, tuple(sorted({*end.problems, *found})))
                    following.setdefault((signature(state_after), result.problems), result)
                    continue
                for action in actions(flight):
                    for after in perform(flight, action, everything):
                        mark = _mark(after)
                        if mark not in seen:
                            seen.add(mark)
                            todo.append(after)
                complete = complete and len(seen) + len(following) <= limit
        ends = list(following.values())
    return ends, complete


def _mark(flight: Flight) -> object:
    return (
        tuple(s.pod for s in flight.waiting),
        frozenset(s.pod for s, _ in flight.out),
        flight.leaving,
        signature(flight.state),
        flight.problems,
    )


def signature(state: State) -> object:
    """Equal for states that differ only in which of an owner's pods is where."""
    found: Counter[tuple[str, str, bool]] = Counter()
    for pod in state.pods.values():
        owner = controller_of(pod)
        name = key_of(pod) if owner is None or waits_for_end(pod) else json.dumps(owner, sort_keys=True)
        found[name, node_of(pod), "deletionTimestamp" in pod["metadata"]] += 1
    return frozenset(found.items())
