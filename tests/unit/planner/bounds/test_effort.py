"""Every search ends: one place asks the solver, and each loop of a search has a bound that is a count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import highspy
import pytest

from rebalancer.planner import objective as efforts
from rebalancer.planner.bounds.one_key import NodeBuckets
from rebalancer.planner.bounds.program import Program, least_excess, run
from rebalancer.planner.objective import TREE_NODES, Effort, for_advice, tree_nodes
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed

PACKAGE = Path(efforts.__file__).parents[1]
SEARCHING = ("planner", "room", "prevention")

SOLVER = "planner/bounds/program.py"
"""The only file that makes a solver, and the only one that sets its options."""

CUT_SHORT = {
    "planner/search/orders.py": {"effort"},
    "planner/search/problem.py": {"effort"},
    "planner/hard.py": {"Effort"},
    "planner/soft.py": {"Effort"},
    "planner/waves/interleavings.py": {"MOMENTS"},
    "planner/least.py": {"Effort"},
    "planner/bounds/program.py": {"Effort"},
    "planner/bounds/added_nodes.py": {"Effort"},
    "room/search.py": {"for_advice", "Effort"},
    "prevention/scale_in.py": {"EFFORT"},
}
"""Files that search, and the counts that end it."""

LOOPS = {
    "planner/bounds/one_key.py:_let_in": "each turn lowers a ceiling",
    "planner/bounds/one_key.py:least_excess": "halves a range",
    "planner/cluster/pod_classes.py:coupled": "each group is gone through once",
    "planner/cluster/components.py:root": "up a tree",
    "planner/cluster/simulation.py:_back_to": "each turn undoes a move",
    "planner/cluster/placing.py:_again": "each turn follows a placement",
    "planner/cluster/let_in.py:_opened": "each turn leaves fewer kinds",
    "planner/cluster/placing.py:_some": "each turn places a pod",
    "planner/planner.py:plan_view": "each turn leaves an owner alone",
    "planner/soft.py:scheduled": "each turn makes a move, or ends a component",
    "planner/soft.py:_held": "each turn leaves a move out",
    "planner/soft.py:improved": "each turn leaves a move out",
    "planner/pace.py:root": "up a tree",
    "planner/search/orders.py:_run": "PATIENCE",
    "planner/search/orders.py:guaranteed": "effort",
    "planner/soft.py:run": "Effort",
    "planner/waves/interleavings.py:ends": "each turn makes a move",
    "planner/waves/interleavings.py:follow": "MOMENTS",
    "planner/waves/schedule.py:drop": "each turn drops a move",
    "planner/waves/schedule.py:_arranged": "each turn makes a move, or drops one",
    "planner/waves/schedule.py:_wave": "LARGEST",
    "planner/cluster/preemptors.py:_find": "each turn has lower priorities",
    "planner/waves/interleavings.py:together": "halves a range",
    "prevention/scale_in.py:settle": "each turn passes an end",
    "prevention/scale_in.py:_values": "back along a way",
    "prevention/scale_in.py:_order": "back along a way",
    "prevention/scale_in.py:take": "each turn lowers a count",
}
"""Every `while` of what searches, by file and function: the count that ends it, or why it ends by itself."""


def _sources(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for file in sorted((PACKAGE / folder).rglob("*.py")):
            yield file.relative_to(PACKAGE).as_posix(), file.read_text()


def _names(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def _whiles(tree: ast.AST, function: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.While):
            yield function
        yield from _whiles(child, child.name if isinstance(child, ast.FunctionDef) else function)


def test_one_file_makes_the_solver_and_sets_its_options() -> None:
    asking = {
        path
        for path, text in _sources(".")
        if not {"Highs", "setOptionValue", "passModel"}.isdisjoint(_names(text))
    }
    assert asking == {SOLVER}


def test_every_model_run_takes_its_tree_from_the_one_place() -> None:
    for path, text in _sources("planner/bounds"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run":
                assert "tree_nodes" in ast.unparse(node.args[1]), f"{path}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", sorted(CUT_SHORT))
def test_a_search_has_a_count_that_ends_it(path: str) -> None:
    assert CUT_SHORT[path] <= _names((PACKAGE / path).read_text())


def test_every_loop_of_a_search_is_known_to_end() -> None:
    texts = dict(_sources(*SEARCHING))
    found = {f"{path}:{f}" for path, text in texts.items() for f in _whiles(ast.parse(text))}
    assert found == set(LOOPS), "name the count that ends a new loop"
    for loop, why in LOOPS.items():
        if " " not in why:
            assert why in _names(texts[loop.split(":")[0]]), loop


def test_a_larger_program_gets_a_smaller_tree_and_the_largest_none() -> None:
    trees = [tree_nodes(10**power) for power in range(2, 8)]
    assert trees[0] == TREE_NODES
    assert trees == sorted(trees, reverse=True)
    assert trees[-1] == 0


def test_what_is_left_of_an_effort_bounds_a_tree() -> None:
    effort = Effort(1000)
    assert effort.tree_nodes(100) == TREE_NODES
    assert 0 < effort.tree_nodes(4_000) < tree_nodes(4_000)
    assert not effort.fell_short
    assert effort.tree_nodes(20_000) == 0
    assert effort.fell_short


def test_advice_takes_a_share_of_what_the_plan_took() -> None:
    little, much = for_advice(10), for_advice(1_000_000)
    little.candidates(10_000)
    much.candidates(10_000)
    assert little.gone
    assert not much.gone


def test_a_program_that_is_not_asked_proves_nothing() -> None:
    web = workload("web").spread("zone").spread("hostname", 2)
    posed = Posed(nodes(a=2, b=2, c=2), web.placed({"a-0": 2, "a-1": 2, "b-0": 1}))
    component = posed.components[0]
    cells = NodeBuckets(component).buckets(component.start)
    program = Program(component, component.start, cells, None, only=range(len(component.groups)))
    found = run(program, 0)
    assert (found.values, found.optimal, found.steps) == (None, False, 0)
    assert least_excess(program, Effort(0)).excess == 0
    assert not least_excess(program, Effort(0)).exact
    assert least_excess(program, Effort(1000)).exact


def test_the_solver_is_quiet_before_it_could_say_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 1.16 on it greets on standard output as soon as it has callbacks: in front of a report's JSON."""
    loud: list[bool] = []

    def enabled(solver: highspy.Highs) -> None:
        loud.append(solver.getOptionValue("output_flag")[1])

    monkeypatch.setattr(highspy.Highs, "enableCallbacks", enabled)
    web = workload("web").spread("zone").spread("hostname", 2)
    component = Posed(nodes(a=2, b=2), web.placed({"a-0": 2, "a-1": 2, "b-0": 1})).components[0]
    cells = NodeBuckets(component).buckets(component.start)
    run(Program(component, component.start, cells, None, only=range(len(component.groups))), 1)
    assert loud == [False]
