"""For every change that decides which nodes take a pod: a scheduler that has it, and an engine that does not
know of it. The scheduler's decisions alone tell, and nothing that rests on it is certain from then on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.engine.branches import Touched
from rebalancer.engine.config import Witness
from rebalancer.engine.framework import Framework, Frameworks
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.version import (
    ATTACHMENTS,
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
from rebalancer.model.node import Toleration
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.history import ledger
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle import scheduler_decisions
from rebalancer.runtime.cycle.memory import Memory
from tests.support.build import claim, node, pod, snapshot, volume
from tests.support.build.base import Builder
from tests.support.build.pods import PodBuilder
from tests.support.build.volumes import attachment, csi_node
from tests.support.scheduler.out_of_order import OutOfOrder, pods_like
from tests.support.servers.api import FakeTime

MOST = 500
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Then = Callable[[float], None]
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


def attached() -> Case:
    """Each node takes two volumes, and has one whose pod is gone."""
    names = [n.object["metadata"]["name"] for n in four()]
    left = ((csi_node(n, 2), volume(f"old-{n}", "gone"), attachment(f"old-{n}", n)) for n in names)
    _, things, new = volumes("", limits=False)
    there = [o for o in things if o.object["kind"] not in ("CSINode", "CSIDriver")]
    return "v1.31.14", [*there, *(o for each in left for o in each)], new


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
    ATTACHMENTS: attached,
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
    there, new = started(*CASES[change]())
    scheduler = of_another_version(there, change)
    come_and_go(scheduler, new, MOST)
    found = scheduler.run(until=lambda c: c.result is Result.DISAGREES)
    return there, [p.template for p in new], found


def started(version: str, things: list[Any], kinds: list[PodBuilder]) -> tuple[Snapshot, list[Pod]]:
    """What is there, and the pods that come."""
    cluster = snapshot(*things, *kinds, server_version=version)
    coming = {k.object["metadata"]["name"] for k in kinds}
    there = replace(cluster, pods=tuple(p for p in cluster.pods if p.name not in coming))
    return there, [p for p in cluster.pods if p.name in coming]


def of_another_version(there: Snapshot, change: Change) -> OutOfOrder:
    sees = without_pod_level if change is POD_LEVEL_RESOURCES else None
    return OutOfOrder(there, other=change if sees is None else None, sees=sees, seed=1)


def come_and_go(
    scheduler: OutOfOrder,
    new: list[Pod],
    number: int,
    quiet: Then = lambda _: None,
    at_a_time: Sequence[int] = (4, 8, 12, 16),
) -> None:
    """`quiet` is called when a decision was judged, and nothing is under way."""
    chance = random.Random(1)
    alive: list[str] = []
    for i in range(number):
        made = pods_like(chance.choice(new), 1)[0]
        made = replace(made, name=f"{made.name}-{i}", uid=f"{i}")
        scheduler.create([made], lambda _, i=i: i * 20.0)  # type: ignore[misc]
        alive.append(made.key)
        while len(alive) > chance.choice(at_a_time):
            victim = alive.pop(chance.randrange(len(alive)))
            scheduler.at(i * 20.0 + 10, lambda now, victim=victim: scheduler.delete(victim, now))  # type: ignore[misc]
        scheduler.at(i * 20.0 + 19, quiet)


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


class _Everything(frozenset[Any]):
    def __contains__(self, _: object) -> bool:
        return True


@pytest.mark.parametrize("change", CASES, ids=[c.source for c in CASES])
def test_no_number_of_decisions_makes_certain_what_rests_on_it(change: Change) -> None:
    """Before it is found, too: were everything covered that decisions can show, no verdict would be certain
    that is another one than the scheduler's."""
    there, new = started(*CASES[change]())
    scheduler = of_another_version(there, change)
    otherwise = Differing(scheduler, new, lambda: _Everything())
    come_and_go(scheduler, new, 60, otherwise)
    scheduler.run()
    assert otherwise.seen, "the verdicts differ at times"
    assert not +otherwise.certain


class Differing:
    """Where engine and scheduler differ: how often was that seen, and for which pods was it certain?"""

    def __init__(
        self, scheduler: OutOfOrder, new: list[Pod], covered: Callable[[], Collection[tuple[str, str]]]
    ) -> None:
        self._scheduler, self._new, self._covered = scheduler, new, covered
        self.seen = self.known = 0
        self.certain = Counter[str]()

    def __call__(self, now: float) -> None:
        del now
        s, covered = self._scheduler, self._covered()
        ours, theirs = Frameworks(s.agreement.state), Frameworks(s.state)
        for one in self._new:
            framework, its = ours.of(one.template), s.its(one).template
            certain = Touched(framework, one.template).covered(covered)
            self.known += certain
            if (framework.feasible(one.template) != theirs.of(its).feasible(its)).any():
                self.seen += 1
                self.certain[one.name] += certain


def skewed(by: int) -> Callable[[PodTemplate], PodTemplate]:
    def sees(t: PodTemplate) -> PodTemplate:
        spread = tuple(msgspec.structs.replace(c, max_skew=c.max_skew + by) for c in t.spread)
        return msgspec.structs.replace(t, spread=tuple(c for c in spread if c.max_skew > 0))

    return sees


def asking(share: float) -> Callable[[PodTemplate], PodTemplate]:
    def sees(t: PodTemplate) -> PodTemplate:
        return msgspec.structs.replace(t, requests={r: int(n * share) for r, n in t.requests.items()})

    return sees


def having(**fields: Any) -> Callable[[PodTemplate], PodTemplate]:
    return lambda t: msgspec.structs.replace(t, **fields)


OF_1_39: dict[str, Callable[[PodTemplate], PodTemplate]] = {
    "it does not filter by spread": having(spread=()),
    "it lets the skew be one more": skewed(1),
    "it does not filter by taints": having(tolerations=(Toleration(operator="Exists"),)),
    "it knows no tolerations": having(tolerations=()),
    "it does not filter by selectors": having(node_selector={}),
    "it wants twice the room": asking(2.0),
    "it keeps a tenth of the room": asking(1.1),
    "it wants a tenth less room": asking(0.9),
    "it wants half the room": asking(0.5),
}
"""Changes of plain rules that no version has made; four of them reject fewer nodes, and no others."""


def plainly() -> Case:
    things: list[Any] = [
        node(f"{z}-{i}").zone(z).room(cpu=2 + 2 * i, pods=20) for z in "abc" for i in range(2)
    ]
    tainted = node("t-0").zone("a").room(cpu=8, pods=20)
    tainted.object["spec"]["taints"] = [{"key": "x", "value": "y", "effect": "NoSchedule"}]
    kinds = [
        pod("web").labels(app="web").requests(cpu="500m").spread("zone", 1),
        pod("api").labels(app="api").requests(cpu="1").spread("hostname", 2),
        pod("plain").requests(cpu="700m"),
        spec(pod("chosen").requests(cpu="300m"), nodeSelector={ZONE: "a"}),
        spec(pod("tolerant").requests(cpu="300m"), tolerations=[{"key": "x", "operator": "Exists"}]),
    ]
    return "v1.39.0", [*things, tainted], kinds


def witnessed(
    case: Case,
    sees: Callable[[PodTemplate], PodTemplate] | None,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[OutOfOrder], None] = lambda _: None,
    at_a_time: Sequence[int] = (8, 16, 24, 36),
) -> Differing:
    """What decisions have shown, ten in a row being enough, and where that is not so."""
    for module in (ledger, scheduler_decisions):
        monkeypatch.setattr(module, "COVERED", 10)
    there, new = started(*case)
    scheduler, shown = OutOfOrder(there, sees=sees, seed=1), Memory(FakeTime(), HistoryRules())
    shown.begin()
    shown.scheduler = lambda: "holder"
    told, number = shown.listen(), 0
    prepare(scheduler)

    def covered() -> Collection[tuple[str, str]]:
        nonlocal number
        for c in scheduler.found[number:]:
            told(replace(c, scheduler="holder"))
        number = len(scheduler.found)
        return shown.witness(there.server_version).covered

    otherwise = Differing(scheduler, new, covered)
    come_and_go(scheduler, new, 300, otherwise, at_a_time)
    scheduler.run()
    return otherwise


@pytest.mark.parametrize("sees", OF_1_39.values(), ids=OF_1_39)
def test_decisions_cover_no_rule_that_is_another_one(
    sees: Callable[[PodTemplate], PodTemplate], monkeypatch: pytest.MonkeyPatch
) -> None:
    otherwise = witnessed(plainly(), sees, monkeypatch)
    assert otherwise.seen, "the verdicts differ at times"
    assert not +otherwise.certain


def test_decisions_cover_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    otherwise = witnessed(plainly(), None, monkeypatch)
    assert not otherwise.seen
    assert otherwise.known > 100


def preferring(zone: str, there: int) -> Case:
    """Pods that like one zone, of which so many are in zone a."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    liking = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]
        }
    }
    made = [pod(f"old-{i}").labels(app="web").on("a-0") for i in range(there)]
    return (
        "v1.39.0",
        [*four(cpu=8), *made],
        [spec(pod("web").labels(app="web").requests(cpu="500m").spread("zone", 1), affinity=liking)],
    )


def not_for_one(t: PodTemplate) -> PodTemplate:
    return msgspec.structs.replace(t, tolerations=()) if t.labels.get("app") == "other" else t


def with_another() -> Case:
    version, things, kinds = plainly()
    other = spec(
        pod("other").labels(app="other").requests(cpu="300m"),
        tolerations=[{"key": "x", "operator": "Exists"}],
    )
    return version, things, [kinds[-1], other]


def half_full(node_name: str) -> Case:
    things = [*four(cpu=8), pod("large").requests(cpu="4").on(node_name)]
    return "v1.39.0", things, [pod("web").requests(cpu="500m")]


def without(node_name: str) -> Callable[[OutOfOrder], None]:
    """The scheduler leaves a node out for something that is not read here."""

    def prepare(s: OutOfOrder) -> None:
        full = pod("full").requests(cpu="8", memory="1Gi").on(node_name)
        s.state.put(snapshot(*four(cpu=8), full).pods[0], "full")

    return prepare


def fewer_later(s: OutOfOrder) -> None:
    for i in range(3):
        s.at(3000.0 + i, lambda now, i=i: s.delete(f"default/old-{i}", now))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("case", "sees", "prepare", "at_a_time"),
    [
        (preferring("b", 2), having(spread=()), lambda _: None, [1]),
        (preferring("a", 6), skewed(1), fewer_later, [2]),
        (half_full("b-1"), None, without("b-1"), [8, 16, 24, 36]),
        (("v1.39.0", four(cpu=8), [pod("web").requests(cpu="1")]), None, without("b-1"), [0]),
        (with_another(), not_for_one, lambda _: None, [8, 16, 24, 36]),
    ],
    ids=[
        "a rejection of nodes that nothing is drawn to",
        "a rejection by more than one too many",
        "nodes that are emptier than the one that is left out",
        "nodes that are as good as the one that is left out",
        "the same of other pods",
    ],
)
def test_decisions_that_would_have_been_the_same_show_nothing(
    case: Case,
    sees: Callable[[PodTemplate], PodTemplate] | None,
    prepare: Callable[[OutOfOrder], None],
    at_a_time: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    otherwise = witnessed(case, sees, monkeypatch, prepare, at_a_time)
    assert otherwise.seen, "the verdicts differ at times"
    assert not +otherwise.certain


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
