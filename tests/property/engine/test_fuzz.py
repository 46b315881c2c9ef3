"""Some seeds of the engine's fuzz; `python -m tests.property.sweep --engine` takes more."""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import numpy as np
import pytest

import rebalancer
from rebalancer.model.selectors import NodeSelectorRequirement, Requirement
from rebalancer.spread.arrays import Bools
from rebalancer.spread.nodes import NodeTable
from rebalancer.spread.tally import Tally
from tests.property.engine import fuzz as engine_fuzz

SEEDS, PARTS = 120, 4


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.nightly) for part in (2, 3))])
def test_drawn_clusters_keep_the_invariants(part: int) -> None:
    assert [f for seed in range(part, SEEDS, PARTS) for f in engine_fuzz.check(seed)] == []


def test_a_state_that_does_not_forget_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzz must be able to fail."""
    monkeypatch.setattr(Tally, "remove", lambda *_: None)
    broken = [f for seed in range(60) for f in engine_fuzz.check(seed)]
    assert {invariant for invariant, _ in broken} == {"order"}


def test_a_plugin_that_reads_labels_past_the_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def past(table: NodeTable, requirement: NodeSelectorRequirement | Requirement) -> Bools:
        return np.array([requirement.matches(n.labels) for n in table._nodes], dtype=np.bool_)

    monkeypatch.setattr(NodeTable, "requirement_mask", past)
    cases = [c for c in engine_fuzz._cases() if c["id"].startswith("node_affinity")]
    monkeypatch.setattr(engine_fuzz, "_cases", lambda: cases)
    broken = []
    for seed in range(300):
        rng = Random(seed)
        broken += engine_fuzz.followed(rng, *engine_fuzz.drawn(rng))
    assert broken


def test_no_plugin_gets_at_nodes_but_through_the_table() -> None:
    """A table is asked, so it remembers; the snapshot's nodes, or the table's own, would not."""
    root = Path(rebalancer.__file__).parent
    read = {
        f"{file.relative_to(root)}:{n.lineno}"
        for file in (root / "engine").rglob("*.py")
        for n in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(n, ast.Attribute)
        and n.attr in ("nodes", "_nodes")
        and _owner(n) in ("snapshot", "table")
    }
    assert {r.partition(":")[0] for r in read} == {"engine/state/pods_on_nodes.py"}, (
        "len(snapshot.nodes) only"
    )


def _owner(n: ast.Attribute) -> str:
    value = n.value
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
