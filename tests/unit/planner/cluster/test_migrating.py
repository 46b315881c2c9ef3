"""A virtual machine that is moved is on both nodes: its target is placed with the source counted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.options import PolicyOptions
from tests.support.build import nodes, pod, snapshot

ALLOWED = PolicyOptions(owner_kinds_allow=("VirtualMachineInstance",))
LIKELY = PlanOptions(policy=ALLOWED, certainty="likely")


def machine(name: str, on: str, api: str = "kubevirt.io/v1") -> Any:
    """A virt-launcher pod, each with an owner of its own."""
    made = pod(name).labels(app="vm").spread("zone", 1).on(on).requests(cpu="1")
    return made.owned_by("VirtualMachineInstance", name, api)


def test_it_moves_only_where_policy_says_so_and_never_for_certain() -> None:
    world = snapshot(*nodes(a=2, b=1), *(machine(f"vm-{i}", "a-0") for i in range(3)))
    assert plan(world).moves == ()
    assert plan(world, PlanOptions(policy=ALLOWED)).moves == ()
    for least in (0, 2):  # one machine is one pod
        options = replace(LIKELY, policy=replace(ALLOWED, min_replicas=least))
        assert [(m.destinations, m.certain) for m in plan(world, options).moves] == [(("b-0",), False)]


@pytest.mark.parametrize(
    ("api", "open_"),
    [("kubevirt.io/v1", ["b-0", "c-0"]), ("example.com/v1", ["a-0", "a-1", "b-0", "c-0"])],
    ids=["a virtual machine", "a pod that ends first"],
)
def test_the_scheduler_counts_the_source_while_it_places_the_target(api: str, open_: list[str]) -> None:
    """Zones of 2, 1 and 1: with the source counted, a third in its zone is too many."""
    machines = [machine(f"vm-{i}", on, api) for i, on in enumerate(("a-0", "a-1", "b-0", "c-0"))]
    world = snapshot(*nodes(a=2, b=1, c=1), *machines)
    simulation = Simulation(world, None)
    [source] = [p for p in world.pods if p.name == "vm-0"]
    landing = simulation.landing(source, source.template, after_gone=False)
    names = simulation.state.table.names
    assert [n for n, there in zip(names, landing.anywhere, strict=True) if there] == open_
