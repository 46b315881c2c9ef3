"""Whether two replacements that are placed at the same time can be in each other's way."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.pod import PodTemplate
from rebalancer.planner.cluster.groups import Conflicts
from tests.support.build import PodBuilder, pod, snapshot
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import merged


def template(built: Any) -> PodTemplate:
    return snapshot(built).pods[0].template


def affine(name: str, term: Json, *, kind: str = "podAntiAffinity", soft: bool = False) -> Json:
    """A pod with one term of inter-pod (anti-)affinity per node."""
    term = {"topologyKey": "kubernetes.io/hostname", **term}
    rule: Json = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if soft:
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    (o,) = pod(name).build()
    return merged(o, {"spec": {"affinity": {kind: rule}}})


def of(app: str, **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}, **more}


def port(name: str, number: int, protocol: str = "TCP") -> PodBuilder:
    return pod(name).host_port(number, protocol)


CASES: list[tuple[str, Any, Any, bool]] = [
    ("nothing in common", pod("web"), pod("api"), False),
    ("the same host port", port("web", 80), port("api", 80), True),
    ("different host ports", port("web", 80), port("api", 81), False),
    ("the same number, another protocol", port("web", 53), port("api", 53, "UDP"), False),
    ("anti-affinity to the other", affine("web", of("api")), pod("api"), True),
    ("anti-affinity to somebody else", affine("web", of("db")), pod("api"), False),
    ("affinity to the other", affine("web", of("api"), kind="podAffinity"), pod("api"), True),
    ("a preference only", affine("web", of("api"), soft=True), pod("api"), False),
    ("an empty selector is everybody", affine("web", {"labelSelector": {}}), pod("api"), True),
    ("an absent selector is nobody", affine("web", {}), pod("api"), False),
    ("the other in another namespace", affine("web", of("api")), pod("api", "shop"), False),
    ("its namespace is named", affine("web", of("api", namespaces=["shop"])), pod("api", "shop"), True),
    ("another namespace is named", affine("web", of("api", namespaces=["shop"])), pod("api"), False),
    (
        "namespaces by selector may be any",
        affine("web", of("api", namespaceSelector={"matchLabels": {"x": "y"}})),
        pod("api", "shop"),
        True,
    ),
    (
        "both mount claims: places to attach may run out",
        pod("web").mounts("one"),
        pod("api").mounts("two"),
        True,
    ),
    ("one mounts a claim", pod("web").mounts("one"), pod("api"), False),
]


@pytest.mark.parametrize(("one", "other", "meet"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_two_replacements(one: Any, other: Any, meet: bool) -> None:
    first, second = template(one), template(other)
    for member, newcomer in ((first, second), (second, first)):
        meeting = Conflicts()
        assert not meeting.any_with(newcomer)
        meeting.add(member)
        assert meeting.any_with(newcomer) is meet


def test_a_newcomer_is_held_against_all_members() -> None:
    meeting = Conflicts()
    for member in (pod("web"), port("db", 80), affine("cache", of("api"))):
        meeting.add(template(member))
    assert meeting.any_with(template(pod("api")))
    assert meeting.any_with(template(port("proxy", 80)))
    assert not meeting.any_with(template(pod("job")))
