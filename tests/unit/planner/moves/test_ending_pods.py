"""What pods that end by themselves make of an excess ends with them: nobody else goes for that."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.options import PolicyOptions
from tests.support.build import deployment, nodes, pod, snapshot, workload

ZONES = ("a-0", "b-0", "c-0")


def counted(name: str, kind: str, placed: tuple[int, ...]) -> object:
    built = workload(name, kind).labels(app="x").placed(dict(zip(ZONES, placed, strict=True)))
    return built.spread("zone", 1, selector={"app": "x"}) if kind != "Job" else built


CASES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "none without them": ((3, 3, 3), (3, 0, 0), 0),
    "some without them": ((5, 1, 1), (2, 0, 0), 2),
    "as much without them": ((5, 1, 1), (1, 1, 1), 2),
    "hidden by them": ((4, 1, 1), (0, 3, 3), 0),
    "some without them, and elsewhere": ((2, 5, 1), (4, 0, 0), 2),
    "one that is already the opposite": ((1, 3, 3), (5, 0, 0), 0),
}


@pytest.mark.parametrize(("web", "jobs", "moves"), CASES.values(), ids=CASES)
def test_an_excess_of_which_there_is(web: tuple[int, ...], jobs: tuple[int, ...], moves: int) -> None:
    there = counted("web", "ReplicaSet", web), counted("batch", "Job", jobs)
    made = plan(snapshot(*nodes(a=1, b=1, c=1), *there))
    assert len(made.moves) == moves
    if made.residual_excess:
        said = [b.reason.message for b in made.blocked if b.pod.name.startswith("web")]
        assert said
        assert all("pods of Jobs" in message for message in said)
        assert not made.optimal


STEP = ("Workflow", "wf", "argoproj.io/v1alpha1")
MACHINE = ("VirtualMachineInstance", "vm", "kubevirt.io/v1")


@pytest.mark.parametrize(
    ("owner", "restarts", "deadline", "allowed", "moves"),
    [
        (STEP, "Never", None, (), 0),
        (STEP, "OnFailure", None, (), 0),
        (None, "Never", None, (), 0),
        (None, "Always", None, (), 1),
        (None, "Always", 600, (), 0),
        (STEP, "Never", None, ("Workflow",), 1),
        (MACHINE, "Never", None, (), 1),
    ],
    ids=str,
)
def test_a_pod_ends_that_is_not_always_started_again(
    owner: tuple[str, str, str] | None,
    restarts: str,
    deadline: int | None,
    allowed: tuple[str, ...],
    moves: int,
) -> None:
    steps = [pod(f"step{i}").labels(app="web").on("a-0").restarts(restarts) for i in range(2)]
    for step in steps:
        step._spec |= {"activeDeadlineSeconds": deadline} if deadline else {}
        if owner is not None:
            step.owned_by(*owner)
    web = deployment("web").spread("zone").placed({"a-0": 1, "b-0": 1})
    options = PlanOptions(policy=PolicyOptions(owner_kinds_allow=allowed))
    assert len(plan(snapshot(*nodes(a=1, b=1), web, *steps), options).moves) == moves
