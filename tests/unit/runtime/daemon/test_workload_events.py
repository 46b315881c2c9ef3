"""Which changes of workloads and budgets are worth a cycle: those that let a pod go."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from rebalancer.planner import plan
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.daemon.events import WorkloadEvents
from tests.support.build import deployment, node, nodes, objects, pdb, snapshot, stateful_set, workload
from tests.unit.runtime.daemon.moments import Moments

NODES = nodes(a=1, b=1)
WEB = {"a-0": 3, "b-0": 1}


def web(placed: dict[str, int] | None = None) -> Any:
    return workload("web").spread("zone", 1).placed(placed or WEB)


def ordered() -> Any:
    return stateful_set("web").spread("zone", 1).placed(WEB)


class Watch:
    """What is told, moment after moment; a plan was made from the first one."""

    def __init__(self, *things: Any, policy: PolicyOptions | None = None) -> None:
        self.moments = Moments(snapshot(*NODES, *things))
        self._times = (float(n) * 100 for n in count())
        chosen = policy or PolicyOptions()
        self.events = WorkloadEvents(self.moments, self.moments.violated, lambda: chosen, wall=lambda: 0.0)
        self.planned()

    def planned(self) -> None:
        self.events.on_plan(self.moments.current, plan(self.moments.current))

    def told(self) -> list[str]:
        return [h.what.partition(" ")[0] for h in self.events.news(next(self._times))]

    def then(self, *things: Any) -> list[str]:
        self.moments.show(snapshot(*NODES, *things))
        return self.told()


BEFORE_AND_AFTER: list[tuple[str, list[Any], list[Any]]] = [
    ("a scaling ends", [web().replicas(5)], [web()]),
    ("a new pod is Ready", [ordered().unready(0)], [ordered()]),
    (
        "a budget opens",
        [web(), pdb("web", {"app": "web"}, max_unavailable=0)],
        [web(), pdb("web", {"app": "web"}, max_unavailable=1)],
    ),
    (
        "one of two budgets goes",
        [web(), pdb("web", {"app": "web"}, max_unavailable=1), pdb("x", {"app": "web"}, max_unavailable=1)],
        [web(), pdb("web", {"app": "web"}, max_unavailable=1)],
    ),
]


@pytest.mark.parametrize(
    ("before", "after"), [c[1:] for c in BEFORE_AND_AFTER], ids=[c[0] for c in BEFORE_AND_AFTER]
)
def test_what_kept_a_move_back_is_over(before: list[Any], after: list[Any]) -> None:
    watch = Watch(*before)
    assert watch.then(*before, node("c-0")) == [], "it is not over yet"
    (told,) = watch.then(*after)
    assert told.endswith("Set/default/web")
    assert watch.then(*after, node("c-0")) == [], "told once"


def test_a_scale_down_that_breaks_the_spread_is_told_of_when_it_has_ended() -> None:
    watch = Watch(web({"a-0": 3, "b-0": 3}))
    assert watch.then(web({"a-0": 3, "b-0": 2})) == [], "it still holds"
    assert watch.then(web({"a-0": 3, "b-0": 1}).replicas(3)) == [], "one more is to go"
    assert watch.then(web({"a-0": 3})) == ["ReplicaSet/default/web"]


def test_what_the_plan_could_do_or_never_can_is_no_event() -> None:
    watch = Watch(web(), workload("api", "Bare").spread("zone", 1).placed(WEB))
    assert watch.told() == []
    assert watch.then(web(), workload("api", "Bare").spread("zone", 1).placed(WEB), node("c-0")) == []


def test_other_workloads_do_not_matter() -> None:
    busy = web().replicas(5)
    watch = Watch(busy, workload("batch").placed({"a-0": 2}))
    assert watch.then(busy, workload("batch").placed({"a-0": 1})) == []
    assert watch.then(busy, stateful_set("db").spread("zone", 1).placed({"a-0": 1, "b-0": 1})) == []


def test_a_namespace_that_is_not_in_view_does_not_matter() -> None:
    watch = Watch(web({"a-0": 3, "b-0": 3}), policy=PolicyOptions(namespaces_include=("shop",)))
    assert watch.then(web()) == []


def test_a_crash_loop_is_told_of_again_and_again_under_one_key() -> None:
    """`Reaction` makes fewer and fewer cycles of it."""
    watch = Watch(ordered().unready(0))
    keys = set()
    for _ in range(3):
        watch.moments.show(snapshot(*NODES, ordered()))
        keys |= {h.key for h in watch.events.news(next(watch._times))}
        watch.moments.show(snapshot(*NODES, ordered().unready(0)))
        watch.planned()
    assert len(keys) == 1


def test_the_end_of_a_rollout_is_told_of_although_the_pods_are_others() -> None:
    after = deployment("web").spread("zone", 1).placed(WEB)
    before = objects(after)
    for o in before:
        if o["kind"] == "Deployment":
            o["status"]["updatedReplicas"] = 1
        elif o["kind"] == "Pod":
            o["metadata"].update(name=f"old-{o['metadata']['name']}", uid=f"old-{o['metadata']['uid']}")
    watch = Watch(before)
    assert watch.told() == []
    assert watch.then(after) == ["Deployment/default/web"]
