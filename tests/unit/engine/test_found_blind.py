"""For every change that decides which nodes take a pod: a scheduler that has it, and an engine that does not
know of it. The scheduler's decisions alone tell, and nothing that rests on it is certain from then on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.engine.config import Witness
from rebalancer.engine.framework import Framework, Frameworks
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.version import (
    BEST_EFFORT_UNBALANCED,
    CHANGE_OF_BALANCE,
    CHANGES,
    CLAIM_IN_USE_REASON,
    DECISIVE,
    EMPTY_SELECTORS,
    GATED_NOMINATIONS,
    IMAGE_VOLUMES,
    IMAGE_VOLUMES_SHARE,
    INIT_IMAGES,
    MISSING_DRIVERS,
    NEGATED_NAMESPACES,
    NODE_WITHOUT_LIMITS,
    POD_LEVEL_RESOURCES,
    RESIZES,
    RESIZES_OF_PODS,
    SIDECAR_PORTS,
    SIDECARS_IN_SCORES,
    STORAGE_SCORES,
    SUMS_OF_RESIZES,
    TAINTS_UNNAMED,
    TOO_SMALL_UNRESOLVABLE,
    VOLUME_AFFINITY_REASON,
    Change,
)
from rebalancer.model.pod import PodTemplate
from rebalancer.model.snapshot import Snapshot
from tests.support.build import claim, node, pod, snapshot, volume
from tests.support.build.base import Builder
from tests.support.build.pods import PodBuilder
from tests.support.scheduler.out_of_order import OutOfOrder, pods_like

MOST = 500
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Case = tuple[str, list[Any], list[PodBuilder]]
"""The server's version, what is there, and the pods that come, by their kinds."""


def four(**room: Any) -> list[Any]:
    return [node(f"{z}-{i}").zone(z).room(**room) for z in "ab" for i in range(2)]


def spec(made: PodBuilder, **fields: Any) -> PodBuilder:
    made._spec.update(fields)
    return made


def two_resized(name: str, on: str) -> Any:
    """One container is to become larger, the other smaller."""
    made = resized(name, on, "1", "3")
    (one,), (status,) = made["spec"]["containers"], made["status"]["containerStatuses"]
    made["spec"]["containers"].append({**one, "name": "d", "resources": {"requests": {"cpu": "3"}}})
    given = {"cpu": "1"}
    more = {"name": "d", "allocatedResources": given, "resources": {"requests": given}}
    made["status"]["containerStatuses"] = [status, more]
    return made


def resized(name: str, on: str, asked: str, status: str, *, whole: bool = False) -> Any:
    """A pod on a node whose status says something else than its spec."""
    made: Any = pod(name).on(on).requests(cpu="1" if whole else asked).build()[0]
    made["status"].setdefault("conditions", []).append({"type": "PodResizeInProgress", "status": "True"})
    given = {"cpu": "1" if whole else status}
    made["status"]["containerStatuses"] = [
        {"name": "c", "allocatedResources": given, "resources": {"requests": given}}
    ]
    if whole:
        made["spec"]["resources"] = {"requests": {"cpu": asked}}
        made["status"] |= {"allocatedResources": {"cpu": status}, "resources": {"requests": {"cpu": status}}}
    return made


def negated() -> Case:
    term = {
        "topologyKey": HOST,
        "labelSelector": {"matchLabels": {"app": "x"}},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
    }
    spaces = []
    for name in ("default", "a"):
        space = Builder("v1", "Namespace", name, namespace="")
        space.object["metadata"]["labels"] = {"team": name}
        spaces.append(space)
    there = [pod(f"x-{i}", "a").labels(app="x").on(f"a-{i}") for i in range(2)]
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    new = spec(pod("web").labels(app="x").requests(cpu="1"), affinity=rules)
    return "v1.33.13", [*four(cpu=4), *spaces, *there], [new]


def sidecars() -> Case:
    new = pod("web")
    proxy = {
        "name": "p",
        "image": "i",
        "restartPolicy": "Always",
        "ports": [{"hostPort": 80, "containerPort": 80}],
    }
    return "v1.33.0", four(cpu=4), [spec(new, initContainers=[proxy])]


def pod_level() -> Case:
    return "v1.38.0", four(cpu=4), [spec(pod("web").requests(cpu="1"), resources={"requests": {"cpu": "3"}})]


def volumes(version: str, *, limits: bool) -> Case:
    things: list[Any] = four(cpu=8, pods=2)
    if limits:
        things = [n.allocatable({"attachable-volumes-csi-csi.example": 1}) for n in things]
    for i, n in enumerate(four()):
        csi = Builder("storage.k8s.io/v1", "CSINode", n.object["metadata"]["name"], namespace="")
        csi.object["spec"] = {"drivers": [{"name": "csi.example", "nodeID": "n"}] if limits or i else []}
        things.append(csi)
    driver = Builder("storage.k8s.io/v1", "CSIDriver", "csi.example", namespace="")
    driver.object["spec"] = {"preventPodSchedulingIfMissing": not limits}
    names = [f"data-{i}" for i in range(8)]
    things += [driver, *(volume(n, n) for n in names), *(claim(n, n) for n in names)]
    return version, things, [pod(f"web{i}").mounts(n) for i, n in enumerate(names)]


def gated() -> Case:
    waits = spec(pod("gated").requests(cpu="3").priority(5), schedulingGates=[{"name": "g"}])
    made: Any = waits.build()[0]
    made["status"]["nominatedNodeName"] = "a-0"
    return "v1.36.2", [*four(cpu=4), made], [pod("web").requests(cpu="2")]


def empty() -> Case:
    return "v1.37.0", four(cpu=2)[:3], [pod("web").requests(cpu="700m").spread("zone", 1, selector={})]


CASES: dict[Change, Callable[[], Case]] = {
    NEGATED_NAMESPACES: negated,
    SIDECAR_PORTS: sidecars,
    POD_LEVEL_RESOURCES: pod_level,
    NODE_WITHOUT_LIMITS: lambda: volumes("v1.38.0", limits=True),
    RESIZES: lambda: (
        "v1.32.1",
        [*four(cpu=4), *(resized(f"r{i}", f"a-{i}", "1", "3") for i in range(2))],
        [pod("web").requests(cpu="2")],
    ),
    RESIZES_OF_PODS: lambda: (
        "v1.35.6",
        [*four(cpu=6), *(resized(f"r{i}", f"a-{i}", "2", "4", whole=True) for i in range(2))],
        [pod("web").requests(cpu="2")],
    ),
    SUMS_OF_RESIZES: lambda: (
        "v1.36.2",
        [*four(cpu=6), *(two_resized(f"r{i}", f"a-{i}") for i in range(2))],
        [pod("web").requests(cpu="1")],
    ),
    MISSING_DRIVERS: lambda: volumes("v1.36.2", limits=False),
    GATED_NOMINATIONS: gated,
    EMPTY_SELECTORS: empty,
}


def watched(change: Change) -> tuple[Snapshot, list[PodTemplate], list[Comparison]]:
    """Pods come one after the other, and go again, until a decision disagrees."""
    version, things, kinds = CASES[change]()
    cluster = snapshot(*things, *kinds, server_version=version)
    coming = {k.object["metadata"]["name"] for k in kinds}
    there = replace(cluster, pods=tuple(p for p in cluster.pods if p.name not in coming))
    new = [p for p in cluster.pods if p.name in coming]
    sees = without_pod_level if change is POD_LEVEL_RESOURCES else None
    scheduler = OutOfOrder(there, other=change if sees is None else None, sees=sees, seed=1)
    chance = random.Random(1)
    alive: list[str] = []
    for i in range(MOST):
        made = pods_like(chance.choice(new), 1)[0]
        made = replace(made, name=f"{made.name}-{i}", uid=f"{i}")
        scheduler.create([made], lambda _, i=i: i * 20.0)  # type: ignore[misc]
        alive.append(made.key)
        while len(alive) > chance.choice((4, 8, 12, 16)):
            victim = alive.pop(chance.randrange(len(alive)))
            scheduler.at(i * 20.0 + 10, lambda now, victim=victim: scheduler.delete(victim, now))  # type: ignore[misc]
    found = scheduler.run(until=lambda c: c.result is Result.DISAGREES)
    return there, [p.template for p in new], found


def without_pod_level(template: PodTemplate) -> PodTemplate:
    """As a scheduler with the feature gate off has it."""
    own = {r: sum(c.requests.get(r, 0) for c in template.containers) for r in template.requests}
    return msgspec.structs.replace(template, requests=own, pod_level={})


@pytest.mark.parametrize("change", CASES, ids=[c.source for c in CASES])
def test_it_is_found_and_nothing_that_rests_on_it_is_certain(change: Change) -> None:
    cluster, templates, found = watched(change)
    assert len(found) <= MOST
    last = found[-1]
    assert last.result is Result.DISAGREES
    assert last.branches
    state = ClusterState.of(cluster)
    state.witness = Witness(doubted={(last.profile, b): "otherwise" for b in last.branches})
    assert all("otherwise" in Framework(state).uncertainties(t) for t in templates)


SCORES = "which of the nodes that take a pod gets it is not predicted as certain, so that none disagrees"
WORDS = "the same nodes are rejected, for other reasons or with another code: no node is taken or refused"
NOT_FOUND = {
    CHANGE_OF_BALANCE: SCORES,
    BEST_EFFORT_UNBALANCED: SCORES,
    SIDECARS_IN_SCORES: SCORES,
    IMAGE_VOLUMES: SCORES,
    IMAGE_VOLUMES_SHARE: SCORES,
    STORAGE_SCORES: SCORES,
    INIT_IMAGES: SCORES,
    TOO_SMALL_UNRESOLVABLE: WORDS,
    TAINTS_UNNAMED: WORDS,
    CLAIM_IN_USE_REASON: WORDS,
    VOLUME_AFFINITY_REASON: WORDS,
}
"""Changes that no decision shows, and why."""


def test_there_is_a_case_for_each_change_that_a_decision_can_show() -> None:
    assert set(CASES) == set(DECISIVE)
    assert {*CASES, *NOT_FOUND} == set(CHANGES)


@pytest.mark.parametrize("change", NOT_FOUND, ids=[c.source for c in NOT_FOUND])
def test_what_no_decision_shows_takes_no_node_away_and_opens_none(change: Change) -> None:
    for version, things, kinds in (case() for case in CASES.values()):
        cluster = snapshot(*things, *kinds, server_version=version)
        ours, theirs = (Frameworks(OutOfOrder(cluster, other=other).state) for other in (None, change))
        for t in (p.template for p in cluster.pods):
            assert (ours.of(t).feasible(t) == theirs.of(t).feasible(t)).all()
