"""Replace first: in every state of small worlds, and in random histories over HTTP, no promise is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import pytest

from rebalancer.policy.release import Do, Seen, Step, step
from rebalancer.runtime.cycle import releases
from rebalancer.runtime.cycle.released_seen import Glance
from rebalancer.runtime.cycle.releases import Releases
from tests.loops import released
from tests.loops.histories import History
from tests.loops.interleavings import Interleaving
from tests.loops.released import (
    BrokenError,
    Pod,
    Reached,
    State,
    World,
    check,
    covers,
    explored,
    first,
    judged,
    known_as,
    normal,
    ours,
    reached,
    steps,
)

EVERYBODY = frozenset({"HPA", "drain", "rollout", "ledger lost"})


@pytest.mark.parametrize(
    ("world", "states"),
    [
        (World(1, EVERYBODY), 6_000),
        (World(1, frozenset({"HPA", "drain", "rollout"}), history=False), 5_000),
        (World(1, frozenset({"rollout"}), looks=2), 10_000),
        (World(2), 6_000),
        (World(2, refused=True), 2_500),
        (World(1, EVERYBODY, looks=2, costs=False), 7_500),
        (World(3, looks=2, costs=False), 5_500),
    ],
    ids=[
        "one replica, and everybody acts",
        "without history",
        "a second rebalancer",
        "two replicas, kubelets and controllers",
        "its controller's patch is refused",
        "a second rebalancer, and everybody acts",
        "a second rebalancer, four pods",
    ],
)
def test_every_state_keeps_the_promise_and_leads_to_an_end(world: World, states: int) -> None:
    """A share of what `python -m tests.loops.released` goes through: three replicas, which are four pods."""
    assert explored(world)[0] > states


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "states"),
    [
        (World(3), 34_000),
        (World(3, looks=2), 500_000),
        (World(3, frozenset({"HPA"})), 450_000),
        (World(3, frozenset({"drain"})), 79_000),
        (World(3, frozenset({"ledger lost"})), 60_000),
        (World(2, frozenset({"rollout"})), 95_000),
        (World(2, frozenset({"HPA"})), 40_000),
        (World(2, frozenset({"HPA"}), refused=True), 18_000),
        (World(2, frozenset({"HPA", "drain"})), 57_000),
        (World(2, frozenset({"drain", "ledger lost"})), 21_000),
        (World(1, frozenset({"drain", "rollout"}), looks=2), 38_000),
        (World(1, EVERYBODY, looks=2), 68_000),
        (World(3, EVERYBODY - {"rollout"}, looks=2, costs=False), 99_000),
        (World(2, EVERYBODY, looks=2, costs=False), 253_000),
        (World(2, marks=2, costs=False), 22_000),
        (World(2, looks=2, marks=2, costs=False), 94_000),
    ],
    ids=[
        "nobody else",
        "a second rebalancer",
        "an HPA beside four pods",
        "drain",
        "ledger lost",
        "rollout",
        "HPA",
        "HPA, and its controller's patch is refused",
        "HPA and drain",
        "drain and ledger lost",
        "a second rebalancer, drain and rollout",
        "a second rebalancer, and everybody acts",
        "four pods, a second rebalancer, and everybody but a rollout",
        "four pods, a second rebalancer, and everybody acts",
        "two released at a time",
        "two released at a time, and a second rebalancer",
    ],
)
def test_every_state_of_larger_worlds_keeps_the_promise(world: World, states: int) -> None:
    """What `tests.loops.released` counts."""
    assert explored(world)[0] > states


@pytest.mark.parametrize(
    "world",
    [
        World(1, frozenset({"drain"})),
        pytest.param(World(1, EVERYBODY), marks=pytest.mark.nightly),
        pytest.param(World(2), marks=pytest.mark.nightly),
        pytest.param(World(1, frozenset({"rollout"}), looks=2), marks=pytest.mark.nightly),
    ],
    ids=["drain", "everybody", "two replicas", "a second rebalancer"],
)
@pytest.mark.parametrize("defect", [False, True], ids=["as it is", "evicted too early"])
def test_states_that_are_taken_together_mean_the_same(
    monkeypatch: pytest.MonkeyPatch, world: World, *, defect: bool
) -> None:
    """Gone through one by one, the same states are reached, and the same requests are wrong."""
    if defect:
        monkeypatch.setattr(released, "steps", hasty)
    together, of_them = seen_and_wrong(monkeypatch, world)
    apart, wrong = seen_and_wrong(monkeypatch, world, reduced=False)
    images = Counter[State]()
    for state in each(apart):
        it, way = judged(normal(state))
        images[it] += 1
        assert any(covers(w, way) for w in together[it])
    assert images.total() > len(together) == len(images)
    assert {(what, judged(normal(before))[0]) for what, before, _ in of_them} == {
        (what, judged(normal(before))[0]) for what, before, _ in wrong
    }
    assert bool(wrong) is defect


@pytest.mark.parametrize(
    "world",
    [
        World(1, frozenset({"drain"})),
        World(1, looks=2),
        pytest.param(World(1, EVERYBODY), marks=pytest.mark.nightly),
        pytest.param(World(2), marks=pytest.mark.nightly),
        pytest.param(World(2, looks=2), marks=pytest.mark.nightly),
        pytest.param(World(1, EVERYBODY, looks=2), marks=pytest.mark.nightly),
        pytest.param(World(3, frozenset({"drain"})), marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("defect", [False, True], ids=["as it is", "evicted too early"])
def test_without_costs_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch, world: World, *, defect: bool
) -> None:
    """Each state is there as each process has it, and as strictly; each wrong request is found; no others."""
    if defect:
        monkeypatch.setattr(released, "steps", hasty)
    without, of_them = seen_and_wrong(monkeypatch, world._replace(costs=False))
    apart, wrong = seen_and_wrong(monkeypatch, world)
    assert len(apart) > len(without)
    for state in each(apart):
        for p in range(world.looks):
            it, way = judged(normal(followed(state, p)))
            assert any(covers(w, way) for w in without[it])
    assert {(what, judged(normal(followed(b, p)))[0]) for what, b, p in wrong} <= {
        (what, judged(normal(before))[0]) for what, before, _ in of_them
    }
    assert {what for what, *_ in wrong} == {what for what, *_ in of_them}
    assert bool(wrong) is defect


Wrong = set[tuple[str, State, int]]


def seen_and_wrong(
    monkeypatch: pytest.MonkeyPatch, world: World, *, reduced: bool = True
) -> tuple[Reached, Wrong]:
    """All states, and before which ones a request of a process is wrong."""
    wrong: Wrong = set()

    def noted(before: State, after: State, what: str, by: int, theirs: int = 0) -> None:
        try:
            check(before, after, what, by, theirs)
        except BrokenError:
            wrong.add((what, before, by))

    monkeypatch.setattr(released, "check", noted)
    return reached(world, reduced=reduced)[0], wrong


def each(found: Reached) -> Iterator[State]:
    """Each state in each of the ways in which it was gone through."""
    for state, ways in found.items():
        for floors, owed, lax in ways:
            yield state._replace(floors=floors, owed=owed, back=state.back | lax)


def followed(state: State, p: int) -> State:
    """The state as one process has it, without costs."""

    def cheap(pod: Pod | None) -> Pod | None:
        return pod and pod._replace(cost=0, before=False)

    pods = tuple(
        known_as(
            cheap(k.now), cheap(k.seen), tuple((w, 0) for w, by in k.sent if by == p and isinstance(w, str))
        )
        for k in state.pods
    )
    back = state.back if p == 0 else (state.back & 1) << 1 | state.back >> 1
    return state._replace(pods=pods, back=back, floors=(state.floors[p],))


def hasty(seen: Seen) -> frozenset[tuple[Do, str, int]]:
    return steps(seen) | {(Do.EVICT, "", 0)}


def test_an_eviction_too_early_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "steps", hasty)
    with pytest.raises(BrokenError, match="an eviction leaves 1 Ready of 2"):
        explored(World(2))


@pytest.mark.parametrize("costs", [True, False])
def test_two_processes_together_may_take_one_more(monkeypatch: pytest.MonkeyPatch, *, costs: bool) -> None:
    """The window that docs/operations.md names, where what the other one took is not counted apart."""
    apart = released.less

    def together(floors: tuple[int, ...], own: Mapping[int, int], taken: int) -> tuple[int, ...]:
        return apart(
            floors, {p: min(own.values()) for p in range(2)} if -1 not in own and own else own, taken
        )

    monkeypatch.setattr(released, "less", together)
    with pytest.raises(BrokenError, match="an eviction leaves 0 Ready of 1"):
        explored(World(1, looks=2, costs=costs))


def test_of_two_released_pods_one_is_not_evicted_before_replacements_have_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the ReplicaSet may still delete one that it has not yet seen Ready, for the other's label."""
    monkeypatch.setattr(released, "settled", lambda *_: True)
    with pytest.raises(BrokenError, match="an eviction leaves 1 Ready of 2"):
        explored(World(2, marks=2, costs=False))


def test_a_release_that_nobody_ends_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "of", lambda *_, **__: Seen(there=False))
    with pytest.raises(BrokenError, match="released for ever"):
        explored(World(2))


def test_what_we_do_is_among_the_steps() -> None:
    state: State = first(World(2))
    names = {name for name, _ in ours(World(2), state)}
    assert names == {"release", "costs"}


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 12), marks=pytest.mark.nightly)], ids=["a few", "more"]
)
def test_histories_with_kills_and_others_keep_the_promise(seeds: range) -> None:
    """Over HTTP; a share of what `python -m tests.loops.histories` plays, which waits most of the time."""
    with ThreadPoolExecutor(6) as pool:
        wrong = {seed: found for seed, found in zip(seeds, pool.map(played, seeds), strict=True) if found}
    assert not wrong


def played(seed: int) -> list[str]:
    history = History(seed)
    return [*found, *history.told] if (found := history.play()) else []


def test_interleavings_with_kills_and_others_keep_the_promise() -> None:
    """A share of what `python -m tests.loops.interleavings` plays: one thread, and time passes by itself.

    Named ones: a status that lagged said how many were Ready at the release; what the ReplicaSet wants was
    read before the pods, of which a rollout took one between the two."""
    seeds = (*range(60), 206990, 200171, 200319, 202573, 203949)
    assert not {seed: found for seed in seeds if (found := Interleaving(seed).play())}


def given_back_at_once(seen: Seen) -> Step:
    """Not only where enough are Ready without those that it takes."""
    found = step(seen)
    return Step(do=Do.GIVE_BACK, why=found.why) if "goes back once" in found.why else found


def read_slowly(self: Releases, o: Any, source: Any) -> Any:
    """More time passes over it than may, once the pod is released."""
    found = SEEN(self, o, source)
    if o.move.pod.uid in self._open:
        self._clock.wait(2.0)
    return found


SEEN = Releases._seen


@pytest.mark.parametrize(
    ("where", "rule", "off", "says"),
    [
        (releases, "step", given_back_at_once, "5 left of 6"),
        (Releases, "_seen", lambda self, o, _: SEEN(self, o, Glance(self._parts.watched)), "a look of"),
        (Releases, "_seen", read_slowly, "a look of"),
    ],
    ids=["enough have to be Ready", "it is read anew", "what was read is new"],
)
def test_each_rule_that_is_switched_off_breaks_an_interleaving(
    monkeypatch: pytest.MonkeyPatch, where: object, rule: str, off: object, says: str
) -> None:
    """So what others take is no excuse where our request could have known it."""
    monkeypatch.setattr(where, rule, off)
    monkeypatch.setattr(releases, "FRESH", inf)
    assert any(says in wrong for seed in range(400) for wrong in Interleaving(seed).play())


def test_a_release_that_no_later_process_takes_up_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Releases, "take_up_marked", lambda *_: None)
    assert any(Interleaving(seed).play() for seed in range(60))
