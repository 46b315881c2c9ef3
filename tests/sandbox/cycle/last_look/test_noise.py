"""What happens elsewhere in the cluster costs nothing; what a move rests on stops it."""

from __future__ import annotations

import itertools
import time as real
from collections.abc import Callable

import pytest

from rebalancer.outcome import End
from tests.support.build import node, nodes, objects, pdb, workload
from tests.support.runs.one_cycle import Run
from tests.support.sandbox import ApiServer
from tests.support.servers.api import FakeTime

TWELVE = (
    *nodes(a=2, b=2, c=2),
    workload("web").spread("zone", 1).placed({"a-0": 9, "a-1": 9}),
    pdb("web", {"app": "web"}, max_unavailable=2),
)
"""Twelve evictions in six waves."""


class Noise:
    """Something that happens after each plan and in each wait of the cycle, at most `most` times."""

    def __init__(
        self, server: ApiServer, happen: Callable[[ApiServer, int], object], most: int = 200
    ) -> None:
        self._server, self._happen = server, happen
        self._numbers = itertools.count()
        self._most = most

    def __call__(self, _: object) -> None:
        if (number := next(self._numbers)) < self._most:
            self._happen(self._server, number)
            real.sleep(0.02)


def batch_node_joins(server: ApiServer, number: int) -> None:
    """Tainted for its own work, in a zone that there is."""
    made = objects(node(f"batch-{number}").zone("a").taint("batch", "NoSchedule"))[0]
    made["metadata"].pop("resourceVersion", None)
    server.store.create(made)


def batch_node_comes_and_goes(server: ApiServer, number: int) -> None:
    if number % 2 == 0:
        batch_node_joins(server, number)
    else:
        server.store.delete("Node", f"batch-{number - 1}", None, grace=0)


def elsewhere(change: Callable[[dict[str, object]], object]) -> Callable[[ApiServer, int], None]:
    """Changes a node that takes no pod of ours."""

    def happen(server: ApiServer, number: int) -> None:
        if number == 0:
            made = objects(node("far-0").zone("a").taint("batch", "NoSchedule"))[0]
            made["metadata"].pop("resourceVersion", None)
            server.store.create(made)

        def apply(o: dict[str, object]) -> None:
            change({"o": o, "n": number})

        server.store.modify("Node", "far-0", None, apply)

    return happen


def cordons(x: dict[str, object]) -> None:
    x["o"]["spec"]["unschedulable"] = x["n"] % 2 == 0  # type: ignore[index,operator]


def taints(x: dict[str, object]) -> None:
    x["o"]["spec"]["taints"] = [{"key": f"t{x['n']}", "effect": "NoSchedule"}]  # type: ignore[index]


def resizes(x: dict[str, object]) -> None:
    x["o"].setdefault("status", {}).setdefault("allocatable", {})["cpu"] = str(1 + x["n"])  # type: ignore[attr-defined,operator]


def patroni(server: ApiServer, number: int) -> None:
    """Every pod's status annotation, as an operator writes it every ten seconds."""
    for pod in server.store.list("Pod"):
        server.store.modify(
            "Pod",
            pod["metadata"]["name"],
            "default",
            lambda o: o["metadata"].setdefault("annotations", {}).update(status=f'{{"xlog": {number}}}'),
        )


NOISE: list[tuple[str, Callable[[ApiServer, int], object]]] = [
    ("a tainted batch node joins", batch_node_joins),
    ("a batch node comes and goes", batch_node_comes_and_goes),
    ("a node elsewhere is cordoned and uncordoned", elsewhere(cordons)),
    ("a node elsewhere is tainted", elsewhere(taints)),
    ("a node elsewhere is resized", elsewhere(resizes)),
    ("every pod's status annotation changes", patroni),
]


@pytest.mark.parametrize("happen", [n[1] for n in NOISE], ids=[n[0] for n in NOISE])
def test_noise_elsewhere_costs_no_eviction_and_no_plan(happen: Callable[[ApiServer, int], object]) -> None:
    with ApiServer(objects(*TWELVE), bookmark_every=0.1) as server:
        time = FakeTime()
        time.during = noise = Noise(server, happen)
        run = Run(server, time=time, after_plan=noise)
        assert run.report.end is End.COMPLETE, run.report.message
        assert run.zones() == [6, 6, 6]
    assert run.report.evicted == run.evictions() == 12
    assert run.report.mispredicted == 0
    quiet = 1 + sum(not o.as_planned for o in run.report.outcomes)
    assert run.report.plans <= 1 + quiet, "as many as in a quiet cluster"


KEYS = [
    ("rebalancer.io/evict", "false"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
    ("karpenter.sh/do-not-evict", "true"),
    ("descheduler.alpha.kubernetes.io/evict", "true"),
    ("descheduler.alpha.kubernetes.io/prefer-no-eviction", "true"),
    ("controller.kubernetes.io/pod-deletion-cost", "100"),
]


@pytest.mark.parametrize(("key", "value"), KEYS, ids=[k for k, _ in KEYS])
def test_an_annotation_by_which_people_steer_evictions_stops_one(key: str, value: str) -> None:
    with ApiServer(objects(*TWELVE), bookmark_every=0.1) as server:
        run = Run(server, after_plan=lambda n: annotate(server, key, value) if n == 1 else None)
    assert "has changed since the plan: its annotations" in run.report.outcomes[0].message


def annotate(server: ApiServer, key: str, value: str) -> None:
    for pod in server.store.list("Pod"):
        server.store.modify(
            "Pod",
            pod["metadata"]["name"],
            "default",
            lambda o: o["metadata"].setdefault("annotations", {}).update({key: value}),
        )
