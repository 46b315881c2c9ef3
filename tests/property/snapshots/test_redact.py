"""The plan for a redacted cluster is the plan for the cluster, under the pseudonyms: order and all."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.findings import plan_with_findings
from rebalancer.manifests import read_snapshot
from rebalancer.manifests.redacted_fields import KINDS as REDACTED
from rebalancer.manifests.writing import Pseudonyms, learn, of_object
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import KINDS
from rebalancer.planner.plan import Plan
from rebalancer.policy import owners
from rebalancer.spread.arrays import natural
from tests.support.build import NodeBuilder, ago, deployment, node, nodes, objects, workload
from tests.support.clusters.random_clusters import random_cluster
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.scheduler.plain import Json

Naming = Any


class AsIs:
    """The naming that renames nothing."""

    def name(self, text: str) -> str:
        return text

    def uid(self, text: str) -> str:
        return text

    def key(self, text: str) -> str:
        return text

    def value(self, _key: str, text: str) -> str:
        return text


def planned(objects: list[Json]) -> Plan:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    return plan_with_findings(read_snapshot(["-"], now=1.8e9, stdin=io.BytesIO(text)))


def told(made: Plan, naming: Naming) -> Any:
    """Everything that a plan says, with its names under a naming."""
    name, value = naming.name, naming.value

    def selector(found: Selector | None) -> Any:
        if found is None:
            return None
        return [
            (naming.key(r.key), r.operator, [value(r.key, v) for v in r.values]) for r in found.requirements
        ]

    def owned(text: str) -> str:
        return "/".join(p if i == 0 else name(p) for i, p in enumerate(text.split("/")))

    def figures(numbers: dict[str, int]) -> list[tuple[str, int]]:
        """Some are of a domain: "nodes a"."""
        named = (k.partition(" ") for k in numbers)
        return [
            (a + b + (name(d) if d else ""), n) for (a, b, d), n in zip(named, numbers.values(), strict=True)
        ]

    constraints = [
        (
            name(c.constraint.namespace),
            naming.key(c.constraint.topology_key),
            selector(c.constraint.selector),
            [owned(w) for w in c.workloads],
            [(value(c.constraint.topology_key, d), n, c.after[d]) for d, n in c.domains.items()],
            (c.skew, c.excess, c.residual_excess, c.status),
            [(r.code, figures(r.numbers)) for r in c.reasons],
        )
        for c in made.constraints
    ]
    moves = [
        (
            name(m.pod.namespace),
            name(m.pod.name),
            naming.uid(m.pod.uid),
            owned(m.owner.key),
            [name(n) for n in m.destinations],
            name(m.predicted),
            (m.certain, m.wave, m.fixes),
        )
        for m in made.moves
    ]
    blocked = [(name(b.pod.namespace), name(b.pod.name), b.reason.code) for b in made.blocked]
    return constraints, moves, blocked, made.lower_bound, made.optimal


def check(objects: list[Json]) -> None:
    naming = learn(objects)
    redacted = [o for o in (of_object(o, naming) for o in objects) if o is not None]
    assert told(planned(redacted), AsIs()) == told(planned(objects), naming)


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"random_cluster"}))
def test_a_scenario_is_planned_alike(name: str) -> None:
    check(scenario(name))


@pytest.mark.parametrize("seed", range(12))
def test_a_random_cluster_is_planned_alike(seed: int) -> None:
    check(random_cluster(Random(seed), "full" if seed in (0, 6, 9) else "small", pending=seed % 2 == 0))


REAL = (
    (r"\bapp\b", "team.example/component"),
    (r"\bw(\d)", r"payments-api-v\1"),
    (r"\bw(\d)", r"Ledger_\1x"),
    (r'"([abcd])-(\d+)"', r'"ip-10-0-\2-1\2.eu-west-1\1"'),
    (r'"default"', '"team-7"'),
)


@pytest.mark.parametrize("seed", range(6))
def test_so_is_one_with_names_as_people_give_them(seed: int) -> None:
    text = json.dumps(random_cluster(Random(100 + seed), "small", pending=True))
    for pattern, new in (REAL[0], REAL[1 + seed % 2], *REAL[3:]):
        text = re.sub(pattern, new, text)
    check(json.loads(text))


def in_a_gang(o: Json, part: str, key: str) -> Json:
    if o["kind"] == "Pod":
        o["metadata"].setdefault(part, {})[key] = "acme-ring"
    return o


@pytest.mark.parametrize(
    ("part", "key"),
    [*(("labels", k) for k in owners.LABELS), *(("annotations", k) for k in owners.ANNOTATIONS)],
)
def test_so_is_one_with_gangs(part: str, key: str) -> None:
    skewed = objects(nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    check([in_a_gang(o, part, key) for o in skewed])


@pytest.mark.parametrize(
    "there",
    [
        node("b-0").zone("b").label("karpenter.sh/nodepool", "acme"),
        node("b-0")
        .zone("b")
        .label("karpenter.sh/nodepool", "acme")
        .label("karpenter.sh/initialized", "true"),
        node("b-0").zone("b").taint("startup-taint.cluster-autoscaler.kubernetes.io/acme-disk"),
        node("b-0").zone("b").taint("DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),
    ],
    ids=["not initialized", "initialized", "with a startup taint", "a candidate for removal"],
)
def test_so_is_one_with_nodes_that_come_and_go(there: NodeBuilder) -> None:
    web = workload("web").spread("zone", 1)
    web._spec["tolerations"] = [{"operator": "Exists"}]
    check(objects(node("a-0").zone("a"), there, web.placed({"a-0": 4})))


@pytest.mark.parametrize("way", ["required", "preferred"])
@pytest.mark.parametrize(
    ("operator", "value"), [("NotIn", "acme"), ("NotIn", "acme bank"), ("Gt", "7"), ("Gt", "1.5")]
)
def test_so_is_one_with_affinity_that_the_scheduler_can_read_or_not(
    way: str, operator: str, value: str
) -> None:
    term = {"matchExpressions": [{"key": "team", "operator": operator, "values": [value]}]}
    web = workload("web").spread("zone", 1)
    terms: Any = {"nodeSelectorTerms": [term]} if way == "required" else [{"weight": 1, "preference": term}]
    web._spec["affinity"] = {"nodeAffinity": {f"{way}DuringSchedulingIgnoredDuringExecution": terms}}
    check(objects(nodes(a=1, b=1), web.placed({"a-0": 4})))


def test_so_is_one_in_which_a_webhook_does_not_answer() -> None:
    said = 'Internal error occurred: failed calling webhook "mutate.acme-bank.example"'
    fails = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": said}
    other = objects(deployment("api").placed({"a-0": 1}))
    for o in other:
        if o["kind"] == "Deployment":
            o["status"]["conditions"] = [fails | {"lastTransitionTime": ago(60)}]
    check(objects(nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}), other))


CONTROLLERS = [
    ("apps.acme-bank.example/v1alpha1", "CloneSet", False),
    ("acme-bank.example/v9-acme", "Fleet", False),
    ("argoproj.io/v1alpha1", "Rollout", True),
    ("batch.volcano.sh/v1alpha1", "Job", True),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", True),
    ("apps/v1", "ReplicaSet", True),
]


@pytest.mark.parametrize(("version", "kind", "kept"), CONTROLLERS, ids=[c[1] for c in CONTROLLERS])
@pytest.mark.parametrize("of", ["Pod", "ReplicaSet"])
def test_so_is_one_with_controllers_of_others(of: str, version: str, kind: str, kept: bool) -> None:
    there = objects(nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    reference = {"apiVersion": version, "kind": kind, "name": "web", "uid": "u", "controller": True}
    for o in there:
        if o["kind"] == of and not (of == "Pod" and kind == "ReplicaSet"):
            o["metadata"]["ownerReferences"] = [reference]
    check(there)
    naming = learn(there)
    text = json.dumps([of_object(o, naming) for o in there])
    assert "acme" not in text
    assert (version in text) is kept


PARTS = st.sampled_from(["web", "we", "kube", "kubelet", "zeta", "Ab", "a_b", "é", "-", ".", "/"])
NUMBERS = st.integers(0, 2000).map(str)
NAMES = st.lists(PARTS | NUMBERS, min_size=1, max_size=6).map("".join)


def order(names: list[str], by: Callable[[str], Any]) -> list[str]:
    return sorted(names, key=by)


@given(st.lists(NAMES, min_size=1, max_size=12, unique=True))
def test_pseudonyms_keep_identity_and_order(names: list[str]) -> None:
    names = [n for n in names if not re.search(r"(?<!\d)0\d", n)]
    renamed = Pseudonyms(names, ("kube-system",))
    assert len({renamed(n) for n in names}) == len(names)
    assert [renamed(n) for n in sorted(names)] == sorted(map(renamed, names))
    assert [renamed(n) for n in order(names, natural)] == order([renamed(n) for n in names], natural)


def test_ordinals_and_beginnings_stay() -> None:
    pods = [f"shop-{i}" for i in range(12)]
    renamed = Pseudonyms([*pods, "shop", "shop-7c9-x2k"])
    assert [renamed(p) for p in pods] == [f"{renamed('shop')}-{i}" for i in range(12)]
    assert renamed("shop-7c9-x2k").startswith(renamed("shop") + "-")


def test_addresses_show_only_as_far_as_all_of_them_are_in_use() -> None:
    renamed = Pseudonyms(["ip-10-132-77-201", "ip-10-132-77-9", "ip-10-132-80-4"])
    assert renamed("ip-10-132-77-201").partition("-")[2] == "10-100-10-100"
    assert renamed("ip-10-132-80-4").partition("-")[2] == "10-100-20-1"


def test_every_kind_that_is_read_has_its_fields() -> None:
    assert set(REDACTED) == KINDS
