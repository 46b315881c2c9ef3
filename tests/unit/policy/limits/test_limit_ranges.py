"""LimitRanges: which replacements they would refuse, and what they add before."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import Container, PodTemplate, Volume
from rebalancer.model.workload import LimitRange, Workload
from rebalancer.policy.new_pods import Admission, added, not_as_planned, out_of_range


def ranges(*limits: dict[str, Any]) -> list[LimitRange]:
    raw = {"metadata": {"name": "l", "namespace": "default"}, "spec": {"limits": limits}}
    return [msgspec.convert(raw, LimitRange)]


def template(*containers: Container, init: tuple[Container, ...] = ()) -> PodTemplate:
    return PodTemplate(
        namespace="default", labels={}, requests={}, containers=containers, init_containers=init
    )


def asks(cpu: int = 0, limit: int = 0, name: str = "c") -> Container:
    """In thousandths of a CPU; 0: says nothing. As it is decoded: a limit stands for the request."""
    request = cpu or limit
    return Container(
        name, requests={"cpu": request} if request else {}, limits={"cpu": limit} if limit else {}
    )


def whole(cpu: int, limit: int) -> PodTemplate:
    return replace(template(asks()), pod_level={"cpu": cpu or limit}, pod_level_limits={"cpu": limit})


def of(kind: str, **bounds: str | dict[str, str]) -> dict[str, Any]:
    return {"type": kind, **{k: v if isinstance(v, dict) else {"cpu": v} for k, v in bounds.items()}}


CASES: dict[str, tuple[dict[str, Any], PodTemplate, str]] = {
    "within": (of("Container", min="100m", max="1"), template(asks(200, 900)), ""),
    "requests too little": (of("Container", min="100m"), template(asks(50, 900)), "cpu is at least 100m"),
    "limit too low": (of("Container", min="100m"), template(asks(100, 50)), "cpu is at least 100m"),
    "limit too high": (of("Container", max="1"), template(asks(200, 1001)), "cpu is at most 1"),
    "requests too much, with the maximum as its limit": (
        of("Container", max="500m"), template(asks(1000)), "cpu is at most 500m",
    ),
    "says nothing and gets the maximum": (of("Container", max="500m"), template(asks()), ""),
    "says nothing and gets the minimum": (of("Container", min="500m"), template(asks()), ""),
    "says nothing and gets a default that is too high": (
        of("Container", max="500m", default="1"), template(asks()), "cpu is at most 500m",
    ),
    "a limit stands for the request": (of("Container", min="500m"), template(asks(0, 600)), ""),
    "an init container": (
        of("Container", max="500m"), template(asks(100, 100), init=(asks(600, 600, "i"),)), "container i ",
    ),
    "the ratio": (of("Container", maxLimitRequestRatio="1.5"), template(asks(200, 300)), ""),
    "above the ratio": (
        of("Container", maxLimitRequestRatio="1.5"), template(asks(200, 301)), "at most 1.5 times",
    ),
    "a ratio without a limit": (of("Container", maxLimitRequestRatio="2"), template(asks(200)), "2 times"),
    "the whole pod": (of("Pod", max="1"), template(asks(400, 500), asks(400, 500, "d")), ""),
    "the whole pod, too much": (
        of("Pod", max="1"), template(asks(400, 500), asks(400, 501, "d")), "all containers together",
    ),
    "the whole pod without limits": (of("Pod", max="1"), template(asks(400)), "cpu is at most 1"),
    "the whole pod, which says so itself": (of("Pod", min="1", max="2"), whole(1000, 2000), ""),
    "the whole pod, which says too much itself": (of("Pod", max="2"), whole(1000, 2001), "cpu is at most 2"),
    "the whole pod, which asks for too little itself": (
        of("Pod", min="1"), whole(999, 2000), "cpu is at least 1",
    ),
    "the whole pod, whose limit stands for its request": (of("Pod", min="2"), whole(0, 2000), ""),
    "a default limit above the whole pod's": (
        of("Container", default="500m"), whole(100, 200), "more cpu as its limit than the pod has",
    ),
    "a maximum above it, which is the default, too": (
        of("Container", max="500m"), whole(100, 200), "more cpu as its limit than the pod has",
    ),
    "a default limit that is the whole pod's": (of("Container", default="200m"), whole(100, 200), ""),
    "one above it of an init container alone": (
        of("Container", default="500m"),
        replace(whole(100, 200), containers=(asks(100, 200),), init_containers=(asks(0, 0, "i"),)),
        "",
    ),
    "claims": (of("PersistentVolumeClaim", max={"storage": "1Gi"}), template(asks()), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_a_limit_range_says_of_a_template(case: str) -> None:
    item, asked, said = CASES[case]
    reason = out_of_range(ranges(item), asked)
    assert (reason is not None) is bool(said)
    assert said in (reason.message if reason is not None else "")


def test_what_one_range_adds_counts_for_the_others() -> None:
    found = ranges(of("Container", default="2"), of("Pod", max="1"))
    reason = out_of_range(found, template(asks()))
    assert reason is not None
    assert "LimitRange default/l would refuse its replacement: cpu is at most 1" in reason.message
    assert out_of_range([], template(asks())) is None


ADDED: dict[str, tuple[dict[str, Any], PodTemplate, bool]] = {
    "a default, and the pod asks for nothing": (of("Container", defaultRequest="2"), template(asks()), True),
    "a default, and the pod asks for as much": (
        of("Container", defaultRequest="2"),
        template(asks(2000)),
        False,
    ),
    "of an init container": (of("Container", default="2"), template(asks(9), init=(asks(0, 0, "i"),)), True),
    "only bounds of the whole pod": (of("Pod", max="2"), template(asks()), False),
    "a limit, which quotas demand": (of("Container", default="2"), template(asks(100)), False),
    "a limit, which quotas only count": (
        of("Container", default={"ephemeral-storage": "2Gi"}), template(
            replace(asks(100), requests={"cpu": 100, "ephemeral-storage": 9 << 30})
        ), True,
    ),
    "a limit, and with it another class": (
        of("Container", defaultRequest="0", default="2"), template(asks()), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "asked", "more"), ADDED.values(), ids=ADDED)
def test_what_a_range_would_add_to_a_replacement(
    limits: dict[str, Any], asked: PodTemplate, more: bool
) -> None:
    assert (added(ranges(limits), asked) is not None) is more


@pytest.mark.parametrize(("kind", "stays"), [("ephemeral", True), ("emptyDir", False)])
def test_a_range_of_claims_may_refuse_those_that_are_made_for_a_pod(kind: str, stays: bool) -> None:
    owner = Workload(kind="ReplicaSet", metadata=ObjectMeta(name="o"), template=template(asks()))
    asked, found = (
        replace(template(asks()), volumes=(Volume("v", kind),)),
        tuple(ranges(of("PersistentVolumeClaim", max="9"))),
    )
    assert (not_as_planned(asked, owner, Admission(ranges=found)) is not None) is stays


ORDERS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "all give as much": ([of("Container", defaultRequest="1")] * 3, True),
    "one in the midst gives more": (
        [of("Container", defaultRequest=n) for n in ("1", "2", "1")], False,
    ),
    "a limit of one that is below the request of another, if a third does not come first": (
        [
            of("Container", defaultRequest="1"), of("Container", defaultRequest="1", default="4"),
            of("Container", default="500m"),
        ],
        False,
    ),
    "limits that differ, and none is below a request": (
        [of("Container", defaultRequest="1", default=n) for n in ("4", "3", "2")], True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("items", "admitted"), ORDERS.values(), ids=ORDERS)
def test_what_several_ranges_say_together_is_the_same_in_any_order(
    items: list[dict[str, Any]], admitted: bool
) -> None:
    owner = Workload(kind="ReplicaSet", metadata=ObjectMeta(name="o"), template=template(asks()))
    found = [r for item in items for r in ranges(item)]
    for order in permutations(found):
        reason = not_as_planned(template(asks(1000)), owner, Admission(ranges=order))
        assert (reason is None) is admitted


@pytest.mark.parametrize(("gives", "sized", "admitted"), [
    ("100m", True, True), ("100m", False, False), ("", True, False),
])  # fmt: skip
def test_what_an_autoscaler_made_of_a_ranges_default_is_not_taken_for_what_a_range_gave(
    gives: str, sized: bool, admitted: bool
) -> None:
    owner = Workload(kind="ReplicaSet", metadata=ObjectMeta(name="o"), template=template(asks()))
    asked = replace(template(asks(300)), autosized=sized)
    found = tuple(ranges(of("Container", defaultRequest=gives) if gives else of("Pod")))
    said = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container c"}
    reason = not_as_planned(asked, owner, Admission(pod=said, ranges=found))
    assert (reason is None) is admitted
