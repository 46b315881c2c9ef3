"""Which of several pods goes first: each criterion beats all that come after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from rebalancer.model.pod import Pod
from rebalancer.planner.moves import victim_order
from rebalancer.policy.budgets import Budgets
from tests.support.build import NodeBuilder, deployment, node, pdb, pod, snapshot
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import merged, patched


@dataclass(frozen=True)
class Traits:
    """A pod as victims are chosen by; as given: the better choice in everything."""

    ready: bool = False
    node: str = "cordoned"
    word: str = "prefer"
    priority: int = -1
    cost: str = "-1"
    budget: str = "wide"
    created: str = "2026-03-01T00:00:00Z"
    name: str = "a"


WORSE = Traits(
    ready=True,
    node="stays",
    word="avoid",
    priority=1,
    cost="1",
    budget="narrow",
    created="2026-02-01T00:00:00Z",
    name="b",
)
CRITERIA = ("ready", "node", "word", "priority", "cost", "budget", "created", "name")
"""In their order."""


def built(t: Traits) -> Json:
    made = pod(t.name).on(t.node).labels(budget=t.budget).priority(t.priority)
    made.annotated({"rebalancer.io/evict": t.word, "controller.kubernetes.io/pod-deletion-cost": t.cost})
    (o,) = (made if t.ready else made.unready()).build()
    return merged(o, {"metadata": {"creationTimestamp": t.created}})


def order(*traits: Traits) -> list[str]:
    """Names, the best victim first."""
    others = [pod(f"more-{i}").on("stays").labels(budget="wide") for i in range(4)]
    others += [pod(f"few-{i}").on("stays").labels(budget="narrow") for i in range(4)]
    s = snapshot(
        node("cordoned").cordoned(),
        node("stays"),
        others,
        [built(t) for t in traits],
        pdb("wide", {"budget": "wide"}, min_available=0),
        pdb("narrow", {"budget": "narrow"}, min_available=3),
    )
    names = {t.name for t in traits}
    key = victim_order(s, Budgets(s))
    found: list[Pod] = sorted((p for p in s.pods if p.name in names), key=key)
    return [p.name for p in found]


@pytest.mark.parametrize("criterion", CRITERIA[:-1])
def test_a_criterion_beats_all_that_follow(criterion: str) -> None:
    at = CRITERIA.index(criterion)
    later = {c: getattr(WORSE, c) for c in CRITERIA[at + 1 :]}
    best = replace(Traits(), **later)
    rival = replace(Traits(), **{criterion: getattr(WORSE, criterion)})
    assert order(best, rival) == ["b", "a"], "b is better in the criterion alone, a in all that follow"


def test_ties_go_by_name() -> None:
    assert order(replace(Traits(), name="z"), Traits()) == ["a", "z"]


def test_the_only_ready_pod_of_an_owner_goes_after_those_of_others() -> None:
    canary, stable = deployment("canary").placed({"n": 1}), deployment("stable").placed({"n": 2}).unready(1)
    s = snapshot(node("n"), canary, stable, deployment("web").placed({"n": 2}))
    ready = sorted((p for p in s.pods if p.ready), key=victim_order(s, Budgets(s)))
    assert [p.name.split("-")[0] for p in ready] == ["web", "web", "canary", "stable"]


STABLE: dict[str, Json] = {
    "a lower priority": {"spec": {"priority": 1}},
    "a lower deletion cost": {
        "metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1"}}
    },
    "no budget": {},
}
"""In what a canary is the better choice, and what the pods of its stable Deployment have instead."""


@pytest.mark.parametrize("criterion", STABLE)
def test_the_only_ready_pod_of_an_owner_goes_last_though_it_has(criterion: str) -> None:
    stable = patched("Pod", STABLE[criterion], deployment("stable").placed({"n": 2}))
    budget = pdb("stable", {"app": "stable"}, min_available=1)
    s = snapshot(node("n"), deployment("canary").placed({"n": 1}), stable, budget)
    last = max(s.pods, key=victim_order(s, Budgets(s)))
    assert last.name.startswith("canary")


def test_a_pod_that_is_not_ready_is_not_its_owners_only_ready_one() -> None:
    half = deployment("half").placed({"n": 2}).unready(1)
    down = deployment("down").placed({"n": 2}).unready(2)
    s = snapshot(node("n"), half, patched("Pod", {"spec": {"priority": 1}}, down))
    first = min(s.pods, key=victim_order(s, Budgets(s)))
    assert first.name.startswith("half")


LADDER = [
    ("a deletion cost that is no number is 0", Traits(cost="-1"), Traits(cost="cheap"), Traits(cost="1")),
    ("no word is between prefer and avoid", Traits(word="prefer"), Traits(word="true"), Traits(word="avoid")),
    (
        "the pod without a budget has the most headroom",
        Traits(budget="none"),
        Traits(budget="wide"),
        Traits(budget="narrow"),
    ),
    (
        "youngest first",
        Traits(created="2026-03-02T00:00:00Z"),
        Traits(created="2026-03-01T00:00:00Z"),
        Traits(created="2025-03-01T00:00:00Z"),
    ),
]


@pytest.mark.parametrize("steps", [c[1:] for c in LADDER], ids=[c[0] for c in LADDER])
def test_a_ladder(steps: tuple[Traits, ...]) -> None:
    for better, worse in pairwise(steps):
        assert order(replace(better, name="z"), replace(worse, name="a")) == ["z", "a"]


GOING: list[tuple[str, NodeBuilder, bool]] = [
    ("a node as it should be", node("n"), False),
    ("a cordoned one", node("n").cordoned(), True),
    ("one that the cluster autoscaler removes", node("n").taint("ToBeDeletedByClusterAutoscaler", "1"), True),
    ("one that karpenter disrupts", node("n").taint("karpenter.sh/disrupted"), True),
    (
        "one that karpenter before its v1 disrupts",
        node("n").taint("karpenter.sh/disruption", "disrupting"),
        True,
    ),
    ("one with a taint of its own", node("n").taint("dedicated", "gpu"), False),
]


@pytest.mark.parametrize(("built_node", "going"), [c[1:] for c in GOING], ids=[c[0] for c in GOING])
def test_nodes_about_to_go_are_left_first(built_node: NodeBuilder, going: bool) -> None:
    s = snapshot(built_node, node("stays"), pod("a").on("stays"), pod("z").on("n"))
    first = min(s.pods, key=victim_order(s, Budgets(s)))
    assert first.name == ("z" if going else "a")
