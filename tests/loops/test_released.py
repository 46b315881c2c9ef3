"""Replace first: in every state of small worlds, and in random histories over HTTP, no promise is broken."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from rebalancer.policy.release import Do, Seen
from rebalancer.runtime.cycle.releases import Releases
from tests.loops import released
from tests.loops.histories import History
from tests.loops.interleavings import Interleaving
from tests.loops.released import BrokenError, State, World, explored, first, ours, steps

EVERYBODY = frozenset({"HPA", "drain", "rollout", "ledger lost"})


@pytest.mark.parametrize(
    ("world", "states"),
    [
        (World(1, EVERYBODY), 6_000),
        (World(1, frozenset({"HPA", "drain", "rollout"}), history=False), 5_000),
        (World(1, frozenset({"HPA", "drain", "rollout"}), looks=2), 20_000),
        (World(2), 5_000),
        (World(2, frozenset({"HPA"}), refused=True), 500),
    ],
    ids=[
        "one replica, and everybody acts",
        "without history",
        "a second rebalancer",
        "two replicas, kubelets and controllers",
        "its controller's patch is refused",
    ],
)
def test_every_state_keeps_the_promise_and_leads_to_an_end(world: World, states: int) -> None:
    """A share of what `python -m tests.loops.released` goes through: three replicas, which are four pods."""
    assert explored(world)[0] > states


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "states"),
    [
        (World(3), 50_000),
        (World(3, frozenset({"drain"})), 300_000),
        (World(3, frozenset({"ledger lost"})), 70_000),
        (World(2, frozenset({"rollout"})), 150_000),
        (World(2, frozenset({"HPA"})), 120_000),
        (World(2, frozenset({"HPA", "drain"})), 150_000),
        (World(2, frozenset({"drain", "ledger lost"})), 45_000),
    ],
    ids=["nobody else", "drain", "ledger lost", "rollout", "HPA", "HPA and drain", "drain and ledger lost"],
)
def test_every_state_of_larger_worlds_keeps_the_promise(world: World, states: int) -> None:
    """What `tests.loops.released` counts."""
    assert explored(world)[0] > states


def test_an_eviction_too_early_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(seen: Seen) -> frozenset[tuple[Do, str, int]]:
        return steps(seen) | {(Do.EVICT, "", 0)}

    monkeypatch.setattr(released, "steps", hasty)
    with pytest.raises(BrokenError, match="an eviction leaves 1 Ready of 2"):
        explored(World(2))


def test_two_processes_together_may_take_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window that docs/operations.md names, where what the other one took is not counted apart."""
    apart = released.less

    def together(floors: tuple[int, ...], own: Mapping[int, int], taken: int) -> tuple[int, ...]:
        return apart(
            floors, {p: min(own.values()) for p in range(2)} if -1 not in own and own else own, taken
        )

    monkeypatch.setattr(released, "less", together)
    with pytest.raises(BrokenError, match="an eviction leaves 0 Ready of 1"):
        explored(World(1, looks=2))


def test_a_release_that_nobody_ends_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "of", lambda *_, **__: Seen(there=False))
    with pytest.raises(BrokenError, match="released for ever"):
        explored(World(2))


def test_what_we_do_is_among_the_steps() -> None:
    state: State = first(World(2))
    names = {name for name, _ in ours(World(2), state)}
    assert names == {"release", "costs"}


def test_histories_with_kills_and_others_keep_the_promise() -> None:
    """Over HTTP; a share of what `python -m tests.loops.histories` plays, which waits most of the time."""
    with ThreadPoolExecutor(6) as pool:
        wrong = {seed: found for seed, found in enumerate(pool.map(played, range(12))) if found}
    assert not wrong


def played(seed: int) -> list[str]:
    history = History(seed)
    return [*found, *history.told] if (found := history.play()) else []


def test_interleavings_with_kills_and_others_keep_the_promise() -> None:
    """A share of what `python -m tests.loops.interleavings` plays: one thread, and time passes by itself."""
    wrong = {seed: found for seed in range(60) if (found := Interleaving(seed).play())}
    assert not wrong


def test_a_release_that_no_later_process_takes_up_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Releases, "take_up_marked", lambda *_: None)
    assert any(Interleaving(seed).play() for seed in range(60))
