"""What a VerticalPodAutoscaler makes of a replacement, and what is promised of it then."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.replacement import Replacements
from tests.support.build import deployment, nodes, snapshot, stateful_set
from tests.support.scheduler.plain import Json

GIBI = 1 << 30
LIKELY = PlanOptions(certainty="likely")


def vpa(
    kind: str = "Deployment",
    name: str = "web",
    mode: str | None = "Recreate",
    *,
    namespace: str = "default",
    **target: str,
) -> Json:
    recommended = [{"containerName": "c", "target": target}] if target else []
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": f"{kind}-{name}", "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
            **({"updatePolicy": {"updateMode": mode}} if mode is not None else {}),
        },
        "status": {"recommendation": {"containerRecommendations": recommended}},
    }


def replaced(*things: Any, owner: Any = deployment) -> tuple[PodTemplate, PodTemplate]:
    """The template of a pod that requests 100m and 64Mi, and of its replacement."""
    s = snapshot(nodes(a=1), owner("web").requests(cpu="100m", memory="64Mi").placed({"a-0": 1}), *things)
    (pod,) = s.pods
    holder = s.owner_of(pod.namespace, pod.owner)
    assert holder is not None
    return pod.template, Replacements(s).of(pod.template, holder)


UNTOUCHED: dict[str, Json] = {
    "it only recommends": vpa(mode="Off", cpu="2"),
    "it is another's": vpa(name="api", cpu="2"),
    "it is another kind's": vpa(kind="StatefulSet", cpu="2"),
    "it is in another namespace": vpa(namespace="shop", cpu="2"),
    "it names nobody": {**vpa(cpu="2"), "spec": {}},
}


@pytest.mark.parametrize("autoscaler", UNTOUCHED.values(), ids=UNTOUCHED)
def test_a_replacement_that_nobody_sizes_is_as_ever(autoscaler: Json) -> None:
    template, replacement = replaced(autoscaler)
    assert replacement is template


MODES = ["Auto", "Recreate", "Initial", "InPlaceOrRecreate", "", None]


@pytest.mark.parametrize("mode", MODES)
def test_in_every_mode_but_off_the_recommendation_counts_where_it_is_more(mode: str | None) -> None:
    template, replacement = replaced(vpa(mode=mode, cpu="2", memory="1Mi"))
    assert template.requests["cpu"] == 100
    assert replacement.requests["cpu"] == 2000
    assert replacement.requests["memory"] == 64 << 20, "what becomes less is not relied on"
    assert replacement.containers[0].requests["cpu"] == 2000
    assert replacement.scored_cpu == 2000
    assert replacement.autosized


def test_of_several_the_largest_counts() -> None:
    own = vpa("ReplicaSet", "web-1", cpu="500m") | {"metadata": {"name": "own", "namespace": "default"}}
    _, replacement = replaced(vpa(cpu="300m", memory="1Gi"), own)
    assert replacement.requests["memory"] == GIBI


def test_a_stateful_set_is_found_by_itself() -> None:
    _, replacement = replaced(vpa("StatefulSet", cpu="1"), owner=stateful_set)
    assert replacement.requests["cpu"] == 1000


def test_before_there_is_a_recommendation_it_is_only_less_certain() -> None:
    template, replacement = replaced(vpa())
    assert replacement.requests == template.requests
    assert replacement.autosized


FOUR = {"cpu": {"type": "Factor", "factor": 4}}
HALF_MORE = {"cpu": {"type": "Quantity", "quantity": "500m"}}


def boosting(boost: Json, mode: str = "Off", *, policy: Json | None = None, **target: str) -> Json:
    made = vpa(mode=mode, **target)
    made["spec"] |= {"startupBoost": boost} if policy is None else {}
    made["spec"] |= {"resourcePolicy": {"containerPolicies": [policy]}} if policy is not None else {}
    return made


OF_C = {"containerName": "c", "startupBoost": FOUR}
BOOSTS = {
    "a factor, though the mode is Off": (boosting(FOUR, cpu="2"), 400),
    "a quantity": (boosting(HALF_MORE), 600),
    "on top of a recommendation": (boosting(FOUR, "Recreate", cpu="300m"), 1200),
    "of the container's own policy": (boosting({}, policy=OF_C), 400),
    "of the policy for all": (boosting({}, policy={**OF_C, "containerName": "*"}), 400),
    "a policy that leaves the container alone": (boosting({}, policy={**OF_C, "mode": "Off"}), 100),
    "of another container": (boosting({}, policy={**OF_C, "containerName": "d"}), 100),
}


@pytest.mark.parametrize(("autoscaler", "cpu"), BOOSTS.values(), ids=BOOSTS)
def test_a_replacement_asks_for_as_much_as_a_startup_boost_gives_it(autoscaler: Json, cpu: int) -> None:
    _, replacement = replaced(autoscaler)
    assert (replacement.requests["cpu"], replacement.autosized) == (cpu, True)


def test_a_pod_that_was_boosted_is_not_boosted_twice() -> None:
    s = snapshot(nodes(a=1), deployment("web").requests(cpu="100m").placed({"a-0": 1}), boosting(FOUR))
    (pod,) = s.pods
    holder = s.owner_of(pod.namespace, pod.owner)
    assert holder is not None
    boosted = Replacements(s).of(pod.template, holder)
    assert Replacements(s).of(boosted, holder).requests["cpu"] == 400


def test_a_boost_that_finds_no_room_keeps_the_pod_where_it_is() -> None:
    assert len(plan(skewed(boosting(FOUR)), LIKELY).moves) == 2
    assert plan(skewed(boosting(FOUR))).moves == (), "it is no certain move any more"
    assert plan(skewed(boosting({"cpu": {"type": "Factor", "factor": 90}})), LIKELY).moves == ()


def skewed(*more: Any) -> Snapshot:
    web = deployment("web").requests(cpu="100m").spread("zone", 1).placed({"a-0": 4})
    return snapshot(nodes(a=1, b=1), web, *more)


def test_under_certain_its_pods_stay_and_the_plan_says_why() -> None:
    made = plan(skewed(vpa(cpu="1")))
    assert made.moves == ()
    assert {r.reason.code for r in made.blocked} == {ReasonCode.NOT_CERTAIN}
    assert len(plan(skewed()).moves) == 2


def test_under_likely_they_go_as_likely_where_the_larger_pod_has_room() -> None:
    made = plan(skewed(vpa(cpu="1")), LIKELY)
    assert [m.certain for m in made.moves] == [False, False]
    # Of the 8 cpu of a node one such pod takes 5, and a second has no room.
    assert len(plan(skewed(vpa(cpu="5")), LIKELY).moves) == 1
    assert plan(skewed(vpa(cpu="9")), LIKELY).moves == ()


def test_where_they_are_there_and_may_not_be_read_nothing_is_certain() -> None:
    hidden = skewed()
    hidden = replace(
        hidden,
        kinds=hidden.kinds - {"VerticalPodAutoscaler"},
        refused=frozenset({"VerticalPodAutoscaler"}),
    )
    assert [m.certain for m in plan(hidden, LIKELY).moves] == [False, False]
    assert {r.reason.code for r in plan(hidden).blocked} == {ReasonCode.NOT_CERTAIN}


def test_a_file_without_any_is_believed() -> None:
    file = skewed()
    file = replace(file, kinds=file.kinds - {"VerticalPodAutoscaler", "NodeClaim"})
    assert [m.certain for m in plan(file).moves] == [True, True]
