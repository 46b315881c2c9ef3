"""Replace first beside everybody else: one Deployment whose pods are released, replaced, evicted, given back.

What comes next for a released pod is decided by the real `step`. The controllers see the pods as they were at
an earlier moment; anything can happen between a look and the request that it leads to; a process that is
killed is one that sends nothing more, which every state allows, as nothing is remembered. All states are
gone through, up to the names of pods.

python -m tests.loops.released [--most 3] [--who HPA,drain,rollout] [--looks 2 --marks 2] [--no-costs] ...

The promise: no request of ours lowers the Ready pods below the replicas now. What others take between our
look and what it leads to is counted apart (`floors`).

States that mean the same are taken together: they differ by the names of pods and processes, by what no rule
asks for, or by how strictly they are judged. `test_states_that_are_taken_together_mean_the_same` goes through
each one by one, and finds the same. Worlds without costs have all that the others have, and perhaps more
(`test_without_costs_nothing_is_missing`), so what is right in them is right; they are ten to a hundred times
smaller.

Gone through to the end, in states. Without costs, a second process and all others at once: three replicas,
which are four pods, without a rollout 99,216 (2,226,244 steps, 25 s of CPU); two replicas, which with a
rollout are four pods, 253,888 (5,440,557 steps, 70 s); one replica, which is three pods, 7,864. Two of two
replicas released at a time, which are four pods: 22,778; with a second process 94,410.
With costs, three replicas: 40,730. The rest as counted when the spread could not yet choose who goes: three
replicas 34,636; with a second process 514,064 (three minutes), with an HPA 451,020, with drains 79,602, with
a ledger that is lost 64,142. Two replicas with a rollout: 95,948; with an HPA 40,720 (three pods), and drains
too 57,736; drains and a lost ledger 21,312. One replica, with two processes and all others at once: 68,545.
Not tried to the end: four pods with costs and all the others at once.
"""

from __future__ import annotations

import argparse
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from operator import ge
from typing import NamedTuple

from rebalancer.policy.release import Do, Held, Mark, Own, Seen, step

GONE = -1
"""What a ReplicaSet wants that is not there."""
MARK = Mark(label="hash", value="1", replica_set="1", pod="x", at=0)


class Pod(NamedTuple):
    """`set`: the ReplicaSet that controls it, 1 or 2 (the new revision), 0: none; `label`: whose it has.
    `mark`: 1 where it is released, 2 where the ledger does not know that. `made`: since a release. `before`:
    an undo has changed its cost."""

    set: int = 1
    label: int = 1
    ready: bool = True
    cost: int = 0
    before: bool = False
    mark: int = 0
    made: bool = False


Request = tuple[str | int, int]
"""`evict`, `back`, or a cost, with the number of the process."""


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """A pod as it is and as the controllers have seen it (None: not there), and what is on its way to it. A
    patch that finds the pod changed is refused. Equal ones are one object, so `number` names them."""

    now: Pod | None
    seen: Pod | None
    sent: tuple[Request, ...]
    number: int


_ONE: dict[tuple[Pod | None, Pod | None, tuple[Request, ...]], Known] = {}


def known_as(now: Pod | None, seen: Pod | None, sent: tuple[Request, ...] = ()) -> Known:
    """The one object for it."""
    key = now, seen, sent
    return _ONE.get(key) or _ONE.setdefault(key, Known(*key, len(_ONE)))


class World(NamedTuple):
    """`most`: replicas. `who` acts beside controllers and kubelets: HPA, drain, rollout, ledger lost.

    `looks`: processes that look and send, one request each at a time (two: a second rebalancer); `marks`:
    pods released at a time; `history`: an empty ReplicaSet stays; `refused`: admission refuses the
    controller's own patch, of which it takes no notice; `lag`: of how many pods at a time the controllers may
    have an older state, and how many at a time others make a ReplicaSet delete.

    `costs`: without, none is written, and which Ready pod a ReplicaSet deletes is chance. Nothing is left out
    by that but that costs are restored: a label goes back wherever it would with a cost or after one, chance
    deletes what a cost would, no process is busy with a cost, and none keeps a patch away or a cache behind.
    """

    most: int = 3
    who: frozenset[str] = frozenset()
    looks: int = 1
    marks: int = 1
    history: bool = True
    refused: bool = False
    lag: int = 1
    costs: bool = True


class State(NamedTuple):
    """`wants`: by the two ReplicaSets.

    `back`: which processes (bits) gave a label back: what is deleted for it is theirs. `owed`: how many pods
    others made the first ReplicaSet delete that it has not yet deleted. `floors`: by process, the Ready pods
    that its request must leave, by its last look, without those that others took since, a second rebalancer
    too (9: none is on its way).
    """

    replicas: int
    wants: tuple[int, int]
    pods: tuple[Known, ...]
    rolled: bool = False
    back: int = 0
    owed: int = 0
    floors: tuple[int, ...] = (9,)


class BrokenError(AssertionError):
    """A request of ours took a Ready pod that had to stay, or a release is never ended."""


def first(world: World) -> State:
    """All is well."""
    pods = (known_as(Pod(), Pod()),) * world.most
    return State(world.most, (world.most, 0), pods, floors=(9,) * world.looks)


def ready(state: State) -> int:
    """How many pods are."""
    return sum(k.now is not None and k.now.ready for k in state.pods)


def controlled(state: State) -> int:
    """How many pods have a controller."""
    return sum(k.now is not None and k.now.set > 0 for k in state.pods)


def tidied(state: State) -> State:
    """The state without pods that are gone, and without what belonged to a request that is over. Only the
    order of costs matters: each undo may write a lower one, and there would be no end of states."""
    replicas, wants, there, rolled, back, owed, floors = state
    pods = [k for k in there if k.now is not None or k.seen is not None]
    costs = {c for k in pods for c in costs_of(k)}
    if min(costs, default=0) < -len(costs - {0}):
        rank = {cost: -n for n, cost in enumerate(sorted(costs | {0}, reverse=True))}
        pods = [ranked(k, rank) for k in pods]
    busy = {p for k in pods for _, p in k.sent}
    floors = tuple(
        min(floor, replicas) if p in busy or back >> p & 1 else 9 for p, floor in enumerate(floors)
    )
    return State(replicas, wants, tuple(pods), rolled, back, owed, floors)


def normal(state: State) -> State:
    """The state that stands for all that differ by names, or by what does not matter any more."""
    replicas, wants, pods, rolled, back, owed, floors = tidied(state)
    marked = any(k.now is not None and k.now.mark for k in pods)

    def alike(swap: bool) -> State:
        found = sorted((plain(k, marked, swap) for k in pods), key=lambda k: (bare(k).number, k.number))
        bits = (back & 1) << 1 | back >> 1 if swap else back
        return State(replicas, wants, tuple(found), rolled, bits, owed, floors[::-1] if swap else floors)

    if len(floors) == 1 or floors == (9, 9):
        return alike(False)
    # Two processes are interchangeable.
    return min(
        (alike(swap) for swap in (False, True)), key=lambda s: (s.back, *(k.number for k in s.pods), s.floors)
    )


@cache
def costs_of(known: Known) -> frozenset[int]:
    """Those that it has, has had or is to have."""
    had = [p.cost for p in (known.now, known.seen) if p]
    return frozenset([*had, *(c for c, _ in known.sent if isinstance(c, int))])


def ranked(known: Known, rank: Mapping[int, int]) -> Known:
    now, seen = (p and p._replace(cost=rank[p.cost]) for p in (known.now, known.seen))
    return known_as(now, seen, tuple((rank[c] if isinstance(c, int) else c, p) for c, p in known.sent))


@cache
def plain(known: Known, marked: bool, swap: bool) -> Known:
    """Without what does not matter, or with the processes exchanged. Who was made since a release matters
    until that one is over, as the next one begins anew."""
    now, seen = known.now, known.seen
    if now is not None:
        now = now._replace(made=now.made and marked)
    seen = seen and seen._replace(before=False, mark=0, made=False)
    sent = ((what, 1 - p if swap else p) for what, p in known.sent)
    return known_as(now, seen, tuple(sorted(sent, key=repr)))


@cache
def bare(known: Known) -> Known:
    """Without what is on its way to it."""
    return known_as(known.now, known.seen)


def put(state: State, i: int, now: Pod | None, by: int = -1) -> State:
    """One pod changed; `by`: the process. Ready no more: that was taken from all others."""
    known = state.pods[i]
    kept = tuple(s for s in known.sent if s[0] == "evict" and now is not None)
    pods = (*state.pods[:i], known_as(now, known.seen, kept), *state.pods[i + 1 :])
    lost = known.now is not None and known.now.ready and (now is None or not now.ready)
    return state._replace(pods=pods, floors=less(state.floors, {by: 0}, 1) if lost else state.floors)


def less(floors: tuple[int, ...], own: Mapping[int, int], taken: int) -> tuple[int, ...]:
    """The floors when so many pods were taken; `own`: by process, how many were taken from it."""
    return tuple(f if f == 9 else max(f - own.get(p, taken), 0) for p, f in enumerate(floors))


def check(before: State, after: State, what: str, by: int, theirs: int = 0) -> None:
    """The promise, for a request of a process between two states. `theirs`: pods that went for others."""
    floor = min(after.replicas, before.floors[by] - theirs)
    if ready(after) < min(ready(before), floor):
        raise BrokenError(f"{what} leaves {ready(after)} Ready of {floor}: {before}")


# -- the controllers


def replica_set(world: World, state: State, which: int) -> Iterator[State]:
    """One sync, by what it has seen: claim by label, then make or delete. Which of equal pods is chance."""
    want = state.wants[which - 1]
    if want == GONE:
        return
    claimed, before = [], state
    for i, known in enumerate(state.pods):
        pod, now = known.seen, state.pods[i].now
        if pod is None:
            continue
        if pod.set == which and pod.label != which:
            if now is not None and now.set == which and not world.refused:
                state = put(state, i, now._replace(set=0))
        elif pod.label == which and pod.set in (0, which):
            if pod.set == 0 and now is not None and now.set == 0:
                state = put(state, i, now._replace(set=which))
            claimed.append(i)
    surplus = len(claimed) - want
    if surplus < 0:
        new = Pod(which, which, ready=False, made=any(k.now is not None and k.now.mark for k in state.pods))
        # Not before it sees its own writes does it go on: so it sees them at once.
        yield informed(state._replace(pods=state.pods + (known_as(new, None),) * -surplus))
        return
    if surplus == 0:
        fresh = which == 1 and all(map(same, state.pods))
        yield state._replace(back=0, owed=0) if fresh else state
        return
    by_rank = sorted(claimed, key=lambda i: rank(before.pods[i].seen))
    edge = rank(before.pods[by_rank[surplus - 1]].seen)
    sure = [i for i in claimed if rank(before.pods[i].seen) < edge]
    alike = [i for i in claimed if rank(before.pods[i].seen) == edge]
    theirs = min(state.owed, surplus) if which == 1 else surplus
    gave = [p for p in (0, 1) if state.back >> p & 1] if surplus > theirs else []
    for chosen in combinations(alike, surplus - len(sure)):
        after = state
        for i in (*sure, *chosen):
            after = put(after, i, None)
        if gave:
            others = theirs + len(gave) - 1
            for p in set(gave) & set(range(len(state.floors))):
                check(state, after, "what is deleted for a label given back", p, others)
            taken = ready(state) - ready(after)
            after = after._replace(floors=less(state.floors, dict.fromkeys(gave, others), taken))
        yield informed(after._replace(owed=after.owed - theirs if which == 1 else after.owed))


@cache
def older(known: Known) -> Known:
    """A pod that was made before the release that begins."""
    return known_as(known.now and known.now._replace(made=False), known.seen, known.sent)


@cache
def same(known: Known) -> bool:
    """Whether the controllers have seen what concerns them."""
    now, seen = known.now, known.seen
    return now == seen if now is None or seen is None else now[:4] == seen[:4]


def rank(pod: Pod | None) -> tuple[bool, int]:
    assert pod is not None
    return pod.ready, pod.cost


def deployment(state: State) -> State:
    """One sync: a surge of one, and none unavailable."""
    old, new = state.wants
    if not state.rolled:
        changed = (state.replicas, 0)
    elif new != state.replicas and (new > state.replicas or max(old, 0) + new <= state.replicas):
        changed = (old, new + (1 if new < state.replicas else -1))
    else:
        there = [k.now for k in state.pods if k.now is not None and k.now.set]
        fresh = sum(p.ready and p.set == 2 for p in there)
        less = min(sum(p.ready for p in there), old + fresh) - state.replicas
        changed = (old if old == GONE else old - min(max(less, 0), old), new)
    owed = max(state.owed + old - changed[0], 0)
    return state._replace(wants=changed, owed=owed)


def informed(state: State) -> State:
    """The controllers see everything."""
    return state._replace(pods=tuple(map(caught_up, state.pods)))


@cache
def caught_up(known: Known) -> Known:
    return known_as(known.now, known.now, known.sent)


def others(world: World, state: State) -> Iterator[tuple[str, State]]:
    """What anybody else does."""
    yield "the cache follows", informed(state)
    for which in (1, 2):
        yield from (("ReplicaSet", s) for s in replica_set(world, state, which))
    yield "Deployment", deployment(state)
    empty = not any(k.now is not None and k.now.set == 1 for k in state.pods)
    if not world.history and state.rolled and state.wants[0] == 0 and empty:
        yield "old ReplicaSet gone", state._replace(wants=(GONE, state.wants[1]))
    for by in (-1, 1) if "HPA" in world.who else ():
        if 1 <= state.replicas + by <= world.most:
            yield "HPA", state._replace(replicas=state.replicas + by)
    if "rollout" in world.who and not state.rolled:
        yield "rollout", state._replace(rolled=True)
    for i, known in enumerate(state.pods):
        if known.now is not None:
            yield "kubelet", put(state, i, known.now._replace(ready=not known.now.ready))
            if "drain" in world.who:
                yield "drain", put(state, i, None)
            if known.now.mark == 1 and "ledger lost" in world.who:
                yield "ledger lost", put(state, i, known.now._replace(mark=2))


# -- ours


def settled(world: World, state: State) -> bool:
    """Whether the replacements have been Ready for a while. Of one release nothing depends on it. Of two, one
    pod may be evicted while what the undo of the other one makes too many is still to be deleted: then it is
    what lets the controllers see before that the replacements are Ready."""
    own = (k for k in state.pods if k.now is not None and k.now.set and k.now.ready)
    return world.marks == 1 or all(k.seen is not None and k.seen.ready for k in own)


def of(world: World, state: State, i: int, **more: object) -> Seen:
    """What is read of one release."""
    pod = state.pods[i].now
    assert pod is not None
    rest = [(n, k.now) for n, k in enumerate(state.pods) if n != i and k.now is not None and k.now.set]
    own = tuple(
        Own(uid=str(n), mine=p.set == 1, ready=p.ready, available=p.ready, made=p.made, cost=p.cost,
            before="" if p.before or not world.costs else None)
        for n, p in rest
    )  # fmt: skip
    old = state.wants[0]
    return Seen(
        ready=pod.ready, controller=str(pod.set or ""), mark=MARK,
        label=str(pod.label) if pod.label else None, known=pod.mark == 1,
        replicas=state.replicas, wanted=None if old == GONE else old, own=own,
        settled=settled(world, state), **more,  # type: ignore[arg-type]
    )  # fmt: skip


@cache
def steps(seen: Seen) -> frozenset[tuple[Do, str, int]]:
    """All that can come next, whatever the clock, the brake, the scheduler and the spread have said."""
    found = set()
    refused = [(held, "") for held in Held] + [(Held.NEVER, o.uid) for o in seen.own if o.mine]
    for failed, late, seconds, (held, rather), stopping, moved in product(
        ("", "failed"), (False, True), (0.0, 20.0), refused, (False, True), (False, True)
    ):
        at = Seen(**{f: getattr(seen, f) for f in seen.__struct_fields__} | {
            "failed": failed, "late": late, "seconds": seconds, "held": held, "rather": rather,
            "stopping": stopping, "moved_on": moved})  # fmt: skip
        next_ = step(at)
        found.add((next_.do, next_.of, next_.cost))
        if next_.do is Do.COST and not rather:
            # Among equals names decide, and a state stands for all names.
            chosen = seen.own[[o.uid for o in seen.own].index(next_.of)]
            alike = (o for o in seen.own if o.mine and o.made and o.cost == chosen.cost)
            found.update((next_.do, o.uid, next_.cost) for o in alike)
    return frozenset(found)


def sent(state: State, i: int, do: Do, of_: str, cost: int, by: int = 0) -> State:
    """A request is on its way."""
    at, what = (int(of_), cost) if do is Do.COST else (i, "evict" if do is Do.EVICT else "back")
    known = state.pods[at]
    known = known_as(known.now, known.seen, (*known.sent, (what, by)))
    pods = (*state.pods[:at], known, *state.pods[at + 1 :])
    floor = min(state.floors[by], state.replicas, ready(state))
    return state._replace(pods=pods, floors=(*state.floors[:by], floor, *state.floors[by + 1 :]))


def arrives(state: State, i: int, request: Request) -> State:
    """A request takes effect."""
    known, (what, by) = state.pods[i], request
    pod = known.now
    known = known_as(pod, known.seen, tuple(s for s in known.sent if s != request))
    state = state._replace(pods=(*state.pods[:i], known, *state.pods[i + 1 :]))
    if pod is None:
        return state
    if what == "evict":
        after = put(state, i, None, by)
        if by < len(state.floors):
            check(state, after, "an eviction", by)
        return after
    if what == "back":
        after = put(state, i, pod._replace(label=1, mark=0))
        return after._replace(back=state.back | 1 << by)
    return put(state, i, pod._replace(cost=int(what), before=True))


def restored(state: State) -> State:
    """Costs that an undo has changed, where none is under way."""
    if state.back or any(k.now is not None and k.now.mark for k in state.pods):
        return state
    for i, known in enumerate(state.pods):
        if known.now is not None and known.now.before:
            state = put(state, i, known.now._replace(cost=0, before=False))
    return state


def ours(world: World, state: State) -> Iterator[tuple[str, State]]:
    """What we do: look, send, release."""
    marked = [i for i, k in enumerate(state.pods) if k.now is not None and k.now.mark]
    busy = {p for k in state.pods for _, p in k.sent}
    for p in set(range(len(state.floors))) - busy:
        for i in marked:
            for do, of_, cost in steps(of(world, state, i)):
                if do in (Do.EVICT, Do.GIVE_BACK, Do.COST):
                    yield do.value, sent(state, i, do, of_, cost, p)
    steady = state.wants == (state.replicas, 0) == (controlled(state), 0) and len(marked) < world.marks
    for i, known in enumerate(state.pods):
        for request in set(known.sent):
            yield "sent", arrives(state, i, request)
        pod = known.now
        if steady and pod is not None and pod.set == pod.label == 1 and not pod.mark and pod.ready:
            released = put(state, i, pod._replace(label=0, mark=1))
            yield "release", released if marked else released._replace(pods=tuple(map(older, released.pods)))
    yield "costs", restored(state)


# -- all states


Way = tuple[tuple[int, ...], int, int]
"""How strictly a state is judged: floors, what is owed, whether the process that is not followed gave a label
back."""
Reached = dict[State, list[Way]]
"""The states, each with the ways in which it was gone through."""


def judged(state: State) -> tuple[State, Way]:
    """The state without what only judges, and that."""
    lax = state.back & 2 if len(state.floors) == 1 else 0
    return state._replace(floors=(), owed=0, back=state.back ^ lax), (state.floors, state.owed, lax)


def explored(world: World) -> tuple[int, int]:
    """How many states and steps there are. BrokenError where the promise is not kept."""
    found, count = reached(world)
    return len(found), count


def reached(world: World, *, reduced: bool = True) -> tuple[Reached, int]:
    """All states, and how many steps there are. `reduced`: else each state as it is.

    Floors and what is owed decide nothing, they only judge. So a state is gone through again only where it is
    reached with a higher floor, or with less owed: what is right then is right otherwise too.

    Where costs are left out, one of two processes is followed, and the other one may send whatever the
    followed one ever has on its way while the pods are the same. By induction each state of two processes is
    here twice, as each of them is followed: a step of anybody else is one in both; a look of one changes
    nothing for the other; a request that arrives is sent by the followed one in the one, and by the other one
    in the other, which knows it from the first. That the other one gave a label back only excuses the
    followed one. There may be more here than can be: two requests that are never on their way at once.
    """
    known: Reached = {}
    together = reduced and world.looks == 2 and not world.costs
    form = normal if reduced else tidied
    start = first(world)
    queue = deque([form(start._replace(floors=start.floors[:1]) if together else start)])
    count = 0
    for_ever: dict[State, bool] = {}
    others_send: dict[State, set[tuple[Known, Request]]] = defaultdict(set)
    beside: dict[State, list[State]] = defaultdict(list)

    def new(state: State) -> bool:
        there, strict = judged(state)
        ways = known.setdefault(there, [])
        if strict in ways or (reduced and any(covers(way, strict) for way in ways)):
            return False
        ways.append(strict)
        return True

    def arrivals(state: State) -> Iterator[tuple[str, State]]:
        """What the other one has on its way to this state, and what it has from this one to those before."""
        here = state._replace(pods=tuple(map(bare, state.pods)), back=0, owed=0, floors=())
        meets = [(state, request) for request in others_send[here]]
        beside[here].append(state)
        found = {(bare(k), (what, 1)) for k in state.pods for what, _ in k.sent} - others_send[here]
        others_send[here] |= found
        meets += [(other, request) for other in beside[here] for request in found]
        for other, (pod, request) in meets:
            for i, k in enumerate(other.pods):
                if bare(k) is pod:
                    yield "sent by the other one", arrives(other, i, request)

    new(queue[0])
    while queue:
        state = queue.popleft()
        ends(world, state, for_ever)
        for source in (others(world, state), ours(world, state), arrivals(state) if together else ()):
            for _, after in source:
                count += 1
                if after != state and within(world, after):
                    after = form(after)
                    if new(after):
                        queue.append(after)
    return known, count


def covers(way: Way, other: Way) -> bool:
    """Whether the first is at least as strict."""
    return way[1] <= other[1] and way[2] <= other[2] and all(map(ge, way[0], other[0]))


def within(world: World, state: State) -> bool:
    """Whether it is one of those that are looked at."""
    behind = sum(not same(k) for k in state.pods)
    return max(state.owed, behind) <= world.lag


def ends(world: World, state: State, good: dict[State, bool]) -> None:
    """From this state a process that runs again, with nobody interfering, comes to an end of all releases."""
    path = []
    for _ in range(60):
        state = normal(quiet(state))
        if state in good:
            break
        path.append(state)
        after = calm(world, state)
        if after == state:
            left = [k.now for k in state.pods if k.now is not None and (k.now.mark or k.now.before)]
            by_hand = state.wants[0] == GONE and all(p.mark == 2 for p in left)
            if left and not by_hand:
                raise BrokenError(f"released for ever: {state}")
            break
        state = after
    else:
        raise BrokenError(f"it comes to no end: {state}")
    good.update(dict.fromkeys(path, True))


def quiet(state: State) -> State:
    """Nothing is on its way, and all pods have become Ready."""
    return state._replace(pods=tuple(map(well, state.pods)), back=0, owed=0, floors=(9,) * len(state.floors))


@cache
def well(known: Known) -> Known:
    return known_as(known.now and known.now._replace(ready=True), known.seen)


def calm(world: World, state: State) -> State:
    """A round from a quiet state in which nobody interferes: controllers work, we look and send."""
    for which in (1, 2):
        state = next(replica_set(world, normal(informed(state)), which), state)
    state = normal(deployment(informed(state)))
    for i, known in enumerate(state.pods):
        if known.now is not None and known.now.mark:
            next_ = step(of(world, state, i, seconds=20.0))
            if next_.do in (Do.EVICT, Do.GIVE_BACK, Do.COST):
                state = sent(state, i, next_.do, next_.of, next_.cost)
                at = int(next_.of) if next_.do is Do.COST else i
                return normal(informed(arrives(state, at, state.pods[at].sent[0])))
    return normal(informed(restored(state)))


def main() -> None:
    """Goes through one world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("--who", default="")
    parser.add_argument("--looks", type=int, default=1)
    parser.add_argument("--marks", type=int, default=1)
    parser.add_argument("--no-history", action="store_true")
    parser.add_argument("--no-costs", action="store_true")
    o = parser.parse_args()
    who = frozenset(filter(None, o.who.split(",")))
    world = World(o.most, who, o.looks, o.marks, history=not o.no_history, costs=not o.no_costs)
    print(world, *explored(world))


if __name__ == "__main__":
    main()
