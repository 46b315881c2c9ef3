"""Nothing that others do makes the rebalancer evict for ever: every state of small clusters leads to rest."""

from __future__ import annotations

import pytest

from tests.loops.explore import Explorer, LoopError
from tests.loops.model import State, World, alike, by_others, rebalanced


@pytest.mark.parametrize("keys", [("zone",), ("zone", "hostname")], ids=" and ".join)
def test_every_state_of_four_nodes_and_five_pods_becomes_quiet(keys: tuple[str, ...]) -> None:
    """A share of what runs every night (`python -m tests.loops.explore`)."""
    found = Explorer(World(keys, nodes=4, pods=5)).visit(alike([(1,)]))
    assert found.states > 150
    assert found.steps > 1000
    assert set(found.added) == {"scale up", "scale down", "eviction", "node removed", "node added"}
    assert found.longest <= 3, "evictions until it is quiet, from any state"
    assert max(found.added.values()) <= 3, "evictions that one action of somebody else can cost"


def test_a_loop_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = alike([(1, 2), (0,)]), alike([(1, 1), (1,)])
    back_and_forth = {one: frozenset({other}), other: frozenset({one})}

    def swings(_: World, state: State) -> frozenset[State]:
        return back_and_forth.get(state, frozenset())

    monkeypatch.setattr("tests.loops.explore.rebalanced", swings)
    with pytest.raises(LoopError, match="comes again"):
        Explorer(World()).longest(one)


def test_the_states_are_kept_up_to_symmetry() -> None:
    assert alike([(2, 0), (), (1,)]) == alike([(1,), (0, 2)]) == State(((0, 2), (1,)))


def test_a_skewed_state_is_mended_and_a_balanced_one_left() -> None:
    world = World()
    assert rebalanced(world, alike([(3, 0), (0,)])) == {alike([(2, 0), (1,)])}
    assert rebalanced(world, alike([(1, 1), (2,)])) == frozenset()


def test_others_do_what_they_are_said_to_do() -> None:
    seen = {kind for kind, _ in by_others(World(), alike([(2, 0), (1,)]))}
    assert seen == {"scale up", "scale down", "eviction", "node removed", "node added"}
