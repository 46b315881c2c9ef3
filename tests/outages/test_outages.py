"""A few histories of an outage, small; `python -m tests.outages` plays all of them at any size."""

from __future__ import annotations

import logging

import pytest

from tests.outages.histories import HISTORIES
from tests.outages.world import World

QUICK = {
    "a zone is gone, and back": 0,
    "half a zone is silent": 1,
    "a third of the nodes is reclaimed": 0,
    "a third is reclaimed, with notice": 0,
    "no images in the zone that is back": 0,
    "an autoscaler buys late": 0,
}
"""With their seeds."""


def played(name: str, seed: int, *, nodes: int = 18, workloads: int = 6) -> World:
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    world = World(seed, most_nodes=nodes, most_workloads=workloads)
    HISTORIES[name](world)
    world.play()
    return world


@pytest.mark.parametrize("name", QUICK)
def test_an_outage_is_mended_without_harm(name: str) -> None:
    f = played(name, QUICK[name]).figures
    assert not f.bad, f
    if name == "a zone is gone, and back":
        assert f.evictions
        assert f.repair <= 120, f


@pytest.mark.nightly
@pytest.mark.parametrize(("seed", "nodes", "workloads"), [(1, 60, 30), (2, 60, 30), (5, 300, 200)])
@pytest.mark.parametrize("name", HISTORIES)
def test_every_history(name: str, seed: int, nodes: int, workloads: int) -> None:
    f = played(name, seed, nodes=nodes, workloads=workloads).figures
    assert not f.bad, f
