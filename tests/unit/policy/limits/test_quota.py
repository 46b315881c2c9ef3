"""ResourceQuotas: whether a replacement is admitted beside its terminating victim."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.planner.planner import plan
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.quota import Charged, Quotas
from tests.support.build import nodes, pdb, pod, snapshot, stateful_set, workload
from tests.support.build.base import metadata
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import cluster, code, judged, merged, patched, pods, web


def quota(
    hard: dict[str, str],
    used: dict[str, str],
    *,
    scopes: tuple[str, ...] = (),
    where: tuple[Json, ...] = (),
    namespace: str = "default",
) -> Json:
    spec: Json = {"hard": hard}
    if scopes:
        spec["scopes"] = list(scopes)
    if where:
        spec["scopeSelector"] = {"matchExpressions": list(where)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata("ResourceQuota", namespace, "q"),
        "spec": spec,
        "status": {"hard": hard, "used": used},
    }


def contained(resources: Json, things: Any, template: Json | None = None) -> list[Json]:
    """The pods with these resources in their container; in their owner's template the same, or others."""

    def of(what: Json) -> Json:
        return {"spec": {"containers": [{"name": "c", "image": "i", "resources": what}]}}

    made = patched("Pod", of(resources), things)
    for kind in ("ReplicaSet", "StatefulSet"):
        made = patched(kind, {"spec": {"template": of(resources if template is None else template)}}, made)
    return made


APART = {
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": {}}}
            ]
        }
    }
}


def db() -> Any:
    return stateful_set("web").placed({"a-0": 2, "b-0": 1})


def classed(name: str) -> list[Json]:
    return patched("Pod", {"spec": {"priorityClassName": name}}, web())


def scope(name: str, operator: str, *values: str) -> Json:
    return {"scopeName": name, "operator": operator, **({"values": list(values)} if values else {})}


def whole(resources: Json) -> list[Json]:
    """Pods with these resources in their container, and others of the pod as a whole."""
    level = {"spec": {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}}
    return patched("Pod", level, contained(resources, web()))


def heavy() -> list[Json]:
    """Pods that ask for nothing, with overhead."""
    return patched("Pod", {"spec": {"overhead": {"cpu": "1"}}}, contained({}, web()))


DEFAULT_CLASS: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "usual", "uid": "usual"},
    "value": 0,
    "globalDefault": True,
}
OF_THE_SYSTEM = merged(
    DEFAULT_CLASS, {"metadata": {"name": "system-node-critical", "uid": "s"}, "globalDefault": False}
)
LIMITED = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
NONE: Json = {"requests": None}
FULL = ({"pods": "3"}, {"pods": "3"})

CASES: list[tuple[str, Any, Json, bool]] = [
    # What is counted. A pod of web asks for 100m and 64Mi.
    ("room for one more pod", web(), quota({"pods": "4"}, {"pods": "3"}), True),
    ("no room for one more pod", web(), quota(*FULL), False),
    ("count/pods is full", web(), quota({"count/pods": "3"}, {"count/pods": "3"}), False),
    ("cpu has just room", web(), quota({"cpu": "400m"}, {"cpu": "300m"}), True),
    ("cpu lacks a millicore", web(), quota({"cpu": "0.399"}, {"cpu": "300m"}), False),
    ("requests.cpu is full", web(), quota({"requests.cpu": "1"}, {"requests.cpu": "1"}), False),
    ("memory has just room", web(), quota({"memory": "256Mi"}, {"memory": "192Mi"}), True),
    (
        "requests.memory lacks room",
        web(),
        quota({"requests.memory": "255Mi"}, {"requests.memory": "192Mi"}),
        False,
    ),
    ("one of two is full", web(), quota({"pods": "9", "cpu": "300m"}, {"pods": "3", "cpu": "300m"}), False),
    (
        "limits.cpu has room",
        contained(LIMITED, web()),
        quota({"limits.cpu": "800m"}, {"limits.cpu": "600m"}),
        True,
    ),
    (
        "limits.cpu is full",
        contained(LIMITED, web()),
        quota({"limits.cpu": "799m"}, {"limits.cpu": "600m"}),
        False,
    ),
    ("a gpu quota, the pod asks for none", web(), quota({"requests.gpu": "1"}, {"requests.gpu": "1"}), True),
    ("a full quota of Services", web(), quota({"services": "1"}, {"services": "1"}), True),
    ("a full quota of storage", web(), quota({"requests.storage": "1Gi"}, {"requests.storage": "1Gi"}), True),
    (
        "cpu is limited and the pod states none",
        contained(NONE, web()),
        quota({"cpu": "9"}, {"cpu": "1"}),
        False,
    ),
    (
        "limits are limited and the pod states none",
        web(),
        quota({"limits.cpu": "9"}, {"limits.cpu": "1"}),
        False,
    ),
    # Whose quota it is.
    ("another namespace's quota is full", web(), quota(*FULL, namespace="shop"), True),
    ("what is used is not known yet", web(), quota({"pods": "9"}, {}), False),
    ("the quota was not observed yet", web(), merged(quota(*FULL), {"status": None}), False),
    (
        "the quota was not observed yet, a StatefulSet",
        db(),
        merged(quota({"pods": "2"}, {}), {"status": None}),
        False,
    ),
    (
        "a full quota of Services was not observed yet",
        web(),
        merged(quota({"services": "1"}, {}), {"status": None}),
        True,
    ),
    # A StatefulSet replaces when the charge was given back.
    ("a full quota, a StatefulSet", db(), quota(*FULL), True),
    ("a quota lowered below its use, a StatefulSet", db(), quota({"pods": "2"}, {"pods": "3"}), False),
    (
        "a quota that was lowered just now",
        web(),
        merged(quota({"pods": "9"}, {"pods": "3"}), {"spec": {"hard": {"pods": "3"}}}),
        False,
    ),
    (
        "a StatefulSet whose pods get a new default class, which has a quota of its own",
        (db(), DEFAULT_CLASS),
        quota({"pods": "0"}, {"pods": "0"}, where=(scope("PriorityClass", "In", "usual"),)),
        False,
    ),
    (
        "the default class that the pods have is gone",
        (classed("gone"), OF_THE_SYSTEM),
        quota(*FULL, where=(scope("PriorityClass", "DoesNotExist"),)),
        False,
    ),
    (
        "a class that no template names, a webhook's",
        (classed("usual"), merged(DEFAULT_CLASS, {"globalDefault": False})),
        quota(*FULL, where=(scope("PriorityClass", "Exists"),)),
        False,
    ),
    (
        "the same, which may have been the default",
        (classed("usual"), merged(DEFAULT_CLASS, {"globalDefault": False})),
        quota(*FULL, where=(scope("PriorityClass", "DoesNotExist"),)),
        False,
    ),
    (
        "the same, and the template names it",
        (
            patched(
                "ReplicaSet",
                {"spec": {"template": {"spec": {"priorityClassName": "usual"}}}},
                classed("usual"),
            ),
            merged(DEFAULT_CLASS, {"globalDefault": False}),
        ),
        quota(*FULL, where=(scope("PriorityClass", "DoesNotExist"),)),
        True,
    ),
    # What the replacement asks for, where the owner's template says other than the pod.
    (
        "the template asks for more than there is room for",
        contained({"requests": {"cpu": "100m"}}, web(), {"requests": {"cpu": "300m"}}),
        quota({"cpu": "500m"}, {"cpu": "300m"}),
        False,
    ),
    (
        "the template asks for more, and there is just room",
        contained({"requests": {"cpu": "100m"}}, web(), {"requests": {"cpu": "200m"}}),
        quota({"cpu": "500m"}, {"cpu": "300m"}),
        True,
    ),
    (
        "the template asks for less, as an autoscaler raised the pod",
        contained({"requests": {"cpu": "200m"}}, web(), {"requests": {"cpu": "100m"}}),
        quota({"cpu": "799m"}, {"cpu": "600m"}),
        False,
    ),
    (
        "the template has the larger limit",
        contained({"limits": {"memory": "64Mi"}}, web(), {"limits": {"memory": "128Mi"}}),
        quota({"limits.memory": "319Mi"}, {"limits.memory": "192Mi"}),
        False,
    ),
    (
        "the template states what the pod does not",
        contained({}, web(), {"requests": {"cpu": "100m"}}),
        quota({"cpu": "100m"}, {"cpu": "0"}),
        True,
    ),
    (
        "a LimitRange had added what the template does not state",
        contained({"requests": {"cpu": "100m"}}, web(), {}),
        quota({"cpu": "400m"}, {"cpu": "300m"}),
        True,
    ),
    (
        "a StatefulSet that asks for more than its pods have, with room for the difference",
        contained({"requests": {"cpu": "100m"}}, db(), {"requests": {"cpu": "150m"}}),
        quota({"cpu": "350m"}, {"cpu": "300m"}),
        True,
    ),
    (
        "a StatefulSet that asks for more than its pods have, without",
        contained({"requests": {"cpu": "100m"}}, db(), {"requests": {"cpu": "151m"}}),
        quota({"cpu": "350m"}, {"cpu": "300m"}),
        False,
    ),
    # Scopes.
    (
        "NotTerminating is what a ReplicaSet's pods are",
        web(),
        quota(*FULL, scopes=("NotTerminating",)),
        False,
    ),
    ("Terminating is for pods with a deadline", web(), quota(*FULL, scopes=("Terminating",)), True),
    ("NotBestEffort, the pod has requests", web(), quota(*FULL, scopes=("NotBestEffort",)), False),
    ("NotBestEffort, the pod has none", contained({}, web()), quota(*FULL, scopes=("NotBestEffort",)), True),
    ("BestEffort, the pod has requests", web(), quota(*FULL, scopes=("BestEffort",)), True),
    ("NotBestEffort, the whole pod has", whole({}), quota(*FULL, scopes=("NotBestEffort",)), False),
    ("BestEffort, the whole pod has", whole({}), quota(*FULL, scopes=("BestEffort",)), True),
    ("BestEffort, with overhead", heavy(), quota(*FULL, scopes=("BestEffort",)), False),
    ("NotBestEffort, with overhead", heavy(), quota(*FULL, scopes=("NotBestEffort",)), True),
    (
        "the whole pod's limit has room",
        whole(LIMITED),
        quota({"limits.cpu": "8"}, {"limits.cpu": "6"}),
        True,
    ),
    (
        "the whole pod's limit lacks room",
        whole(LIMITED),
        quota({"limits.cpu": "7999m"}, {"limits.cpu": "6"}),
        False,
    ),
    ("no term names another namespace", web(), quota(*FULL, scopes=("CrossNamespacePodAffinity",)), True),
    (
        "an affinity term names another namespace",
        patched(
            "Pod", {"spec": APART}, patched("ReplicaSet", {"spec": {"template": {"spec": APART}}}, web())
        ),
        quota(*FULL, scopes=("CrossNamespacePodAffinity",)),
        False,
    ),
    ("a scope nobody knows", web(), quota(*FULL, scopes=("Lunar",)), True),
    (
        "the class matches",
        classed("gold"),
        quota(*FULL, where=(scope("PriorityClass", "In", "gold"),)),
        False,
    ),
    (
        "the class is another",
        classed("iron"),
        quota(*FULL, where=(scope("PriorityClass", "In", "gold"),)),
        True,
    ),
    (
        "not in, and the pod has no class",
        web(),
        quota(*FULL, where=(scope("PriorityClass", "NotIn", "gold"),)),
        False,
    ),
    (
        "not in, and it is",
        classed("gold"),
        quota(*FULL, where=(scope("PriorityClass", "NotIn", "gold"),)),
        True,
    ),
    (
        "any class, the pod has one",
        classed("iron"),
        quota(*FULL, where=(scope("PriorityClass", "Exists"),)),
        False,
    ),
    ("any class, the pod has none", web(), quota(*FULL, where=(scope("PriorityClass", "Exists"),)), True),
    (
        "no class, the pod has none",
        web(),
        quota(*FULL, where=(scope("PriorityClass", "DoesNotExist"),)),
        False,
    ),
    (
        "one scope of two matches",
        web(),
        quota(*FULL, scopes=("NotTerminating",), where=(scope("PriorityClass", "Exists"),)),
        True,
    ),
]


@pytest.mark.parametrize(("things", "limit", "free"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_replacement_is_admitted_or_not(things: Any, limit: Json, free: bool) -> None:
    assert code(things, limit) is (None if free else ReasonCode.QUOTA)


USUAL = merged(DEFAULT_CLASS, {"globalDefault": False})


@pytest.mark.parametrize(
    ("classes", "certain"),
    [
        ([DEFAULT_CLASS], True),
        ([USUAL], True),
        ([USUAL, merged(DEFAULT_CLASS, {"metadata": {"name": "another", "uid": "another"}})], False),
        ([OF_THE_SYSTEM], False),
    ],
    ids=["the default", "no default", "beside a default", "gone"],
)
def test_who_gave_a_pod_the_class_that_its_template_does_not_name(classes: list[Json], certain: bool) -> None:
    made = workload("web").spread("zone", 1).placed({"a-0": 3})
    spec = {"spec": {"priorityClassName": "usual"}}
    found = plan(snapshot(*nodes(a=1, b=1), patched("Pod", spec, made), *classes))
    assert bool(found.moves) is certain
    stays = {b.reason.code for b in found.blocked}
    assert stays == (set() if certain else {ReasonCode.NOT_CERTAIN})


def test_best_effort_is_a_pod_that_states_nothing() -> None:
    limit = quota(*FULL, scopes=("BestEffort",))
    assert code(contained({}, web()), limit) is ReasonCode.QUOTA
    assert code(contained({"limits": {"cpu": "1"}}, web()), limit) is None
    assert code(contained({}, web()), quota(*FULL, scopes=("NotBestEffort",))) is None


@pytest.mark.parametrize(
    ("spec", "which", "covered"),
    [
        ({}, "NotTerminating", True),
        ({}, "Terminating", False),
        ({"activeDeadlineSeconds": 60}, "NotTerminating", True),
        ({"activeDeadlineSeconds": 60}, "Terminating", True),
    ],
    ids=str,
)
def test_a_pod_of_a_kind_that_is_not_read_is_charged_under_each_scope_that_may_be_its(
    spec: Json, which: str, covered: bool
) -> None:
    options = PolicyOptions(owner_kinds_allow=("CloneSet",))
    clone = patched("Pod", {"spec": spec}, pod("web").on("a-0").owned_by("CloneSet", "web"))
    found = code(clone, quota(*FULL, scopes=(which,)), options=options)
    assert found is (ReasonCode.QUOTA if covered else None)


def test_the_reason_has_the_figures() -> None:
    reason = judged(web(), quota({"requests.cpu": "350m"}, {"requests.cpu": "0.3"}))
    assert reason is not None
    assert reason.numbers == {"used": 300, "hard": 350, "needed": 100}
    assert "requests.cpu 300m used of 350m, 100m needed" in reason.message


def test_the_pods_own_word_does_not_make_room() -> None:
    asked = patched("Pod", {"metadata": {"annotations": {"rebalancer.io/evict": "true"}}}, web())
    assert code(asked, quota(*FULL)) is ReasonCode.QUOTA


def test_the_room_left_is_for_the_whole_wave() -> None:
    s = cluster(web(), stateful_set("db").placed({"a-0": 1}), quota({"pods": "6"}, {"pods": "4"}))
    owners = Evictable(s, PolicyOptions()).owners
    charged = Charged(Quotas(s))
    first, second, third = pods(s, "web")
    (stateful,) = pods(s, "db")
    for p in (first, stateful, second):
        assert charged.fits(p, owners.of(p))
        charged.spend(p, owners.of(p))
    assert not charged.fits(third, owners.of(third))
    assert charged.fits(stateful, owners.of(stateful))


@pytest.mark.parametrize("lacks", [0, 1])
@pytest.mark.parametrize(
    ("kind", "part", "wants"),
    [
        ("ReplicaSet", "spec", "replicas"),
        ("Job", "spec", "parallelism"),
        ("DaemonSet", "status", "desiredNumberScheduled"),
    ],
)
def test_what_a_stateful_set_gives_back_goes_to_an_owner_that_lacks_pods(
    kind: str, part: str, wants: str, lacks: int
) -> None:
    said = {part: {wants: 2 + lacks, "completions": None}}
    short = patched(kind, said, workload("api", kind).placed({"b-0": 2}))
    s = cluster(db(), short, quota({"pods": "5"}, {"pods": "5"}))
    reason = Evictable(s, PolicyOptions()).why_not(pods(s, "web")[0])
    assert (reason is not None and reason.code) is (ReasonCode.QUOTA if lacks else False)


@pytest.mark.parametrize(
    ("kind", "stays"), [("DaemonSet", False), ("StatefulSet", False), ("ReplicaSet", True)]
)
def test_an_owner_whose_next_pod_comes_when_the_former_is_gone_has_the_room_of_that(
    kind: str, stays: bool
) -> None:
    ends = {"metadata": {"deletionTimestamp": "2026-06-01T00:00:00Z"}}
    other = workload("api", kind).placed({"a-0": 1, "b-0": 1})
    last = [o for o in other.build() if o["kind"] == "Pod"][-1]["metadata"]["name"]
    s = cluster(db(), patched("Pod", ends, other, name=last), quota({"pods": "5"}, {"pods": "5"}))
    reason = Evictable(s, PolicyOptions()).why_not(pods(s, "web")[0])
    assert (reason is not None and reason.code) is (ReasonCode.QUOTA if stays else False)


@pytest.mark.parametrize(("room", "waves"), [(1, [1, 2]), (2, [1, 1])])
def test_a_plans_waves_keep_the_quota(room: int, waves: list[int]) -> None:
    apps = [workload(n).spread("zone", 1).placed({"a-0": 3, "b-0": 0, "b-1": 1}) for n in ("api", "web")]
    s = snapshot(nodes(a=1, b=2), apps, quota({"pods": str(8 + room)}, {"pods": "8"}))
    assert sorted(m.wave for m in plan(s).moves) == waves


def test_without_room_nothing_is_planned_and_the_quota_is_named() -> None:
    s = snapshot(
        nodes(a=1, b=1),
        workload("web").spread("zone", 1).placed({"a-0": 3}),
        pdb("web", {"app": "web"}, max_unavailable=1),
        quota(*FULL),
    )
    made = plan(s)
    assert not made.moves
    assert {b.reason.code for b in made.blocked} == {ReasonCode.QUOTA}


@pytest.mark.parametrize(("hard", "fits"), [("1400m", True), ("1399m", False)])
def test_limits_have_the_overhead_of_the_runtime_class_too(hard: str, fits: bool) -> None:
    """Rule: k8s.io/component-helpers/resource, ``PodLimits``."""
    limits = quota({"limits.cpu": hard}, {"limits.cpu": "200m"})
    heavy = patched("Pod", {"spec": {"overhead": {"cpu": "1"}}}, contained(LIMITED, web()))
    found = cluster(heavy, limits)
    one = found.pods[0]
    assert (Quotas(found).why_not(one, found.owner_of(one.namespace, one.owner)) is None) is fits


PROXY = {"requests": {"cpu": "10m"}, "limits": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("own", "proxy", "limit"),
    [
        (LIMITED, PROXY, quota({"limits.cpu": "4"}, {"limits.cpu": "2600m"})),
        (LIMITED, {"requests": {"cpu": "10m"}}, quota({"limits.cpu": "40"}, {"limits.cpu": "600m"})),
        ({}, PROXY, quota({"pods": "1"}, {"pods": "1"}, scopes=("NotBestEffort",))),
    ],
    ids=["its limits", "that it states none", "its class"],
)
def test_a_proxy_that_a_younger_pod_was_given_is_charged_for_an_older_ones_replacement(
    own: Json, proxy: Json, limit: Json
) -> None:
    things = [*contained(own, web()), limit]
    assert code(things) is None
    last = [o for o in things if o["kind"] == "Pod"][-1]
    last["spec"]["containers"].append({"name": "proxy", "image": "i", "resources": proxy})
    last["metadata"]["creationTimestamp"] = "2026-03-01T00:00:00Z"
    assert code(things) is ReasonCode.QUOTA


def test_a_replacement_that_was_planned_larger_is_charged_as_planned() -> None:
    found = cluster(web(), quota({"cpu": "400m"}, {"cpu": "300m"}))
    one = found.pods[0]
    owner, larger = found.owner_of(one.namespace, one.owner), replace(one.template, requests={"cpu": 101})
    assert Quotas(found).why_not(one, owner) is None
    assert Quotas(found).why_not(one, owner, replacement=larger) is not None
