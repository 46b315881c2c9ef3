"""Some seeds of the engine's fuzz; `python -m tests.property.sweep --engine` takes more."""

from __future__ import annotations

import pytest

from rebalancer.spread.tally import Tally
from tests.property.engine import fuzz as engine_fuzz

SEEDS, PARTS = 120, 4


@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_clusters_keep_the_invariants(part: int) -> None:
    assert [f for seed in range(part, SEEDS, PARTS) for f in engine_fuzz.check(seed)] == []


def test_a_state_that_does_not_forget_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzz must be able to fail."""
    monkeypatch.setattr(Tally, "remove", lambda *_: None)
    broken = [f for seed in range(60) for f in engine_fuzz.check(seed)]
    assert {invariant for invariant, _ in broken} == {"order"}
