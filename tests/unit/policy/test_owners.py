"""Owners whose pods are left alone, because no replacement would come as expected."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.policy.circuit_breaker import UNASKED_FOR
from rebalancer.policy.evictable import Evictable, next_change
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.policy.owners import Owners
from tests.support.build import (
    NOW,
    OwnerBuilder,
    ago,
    decoded,
    deployment,
    nodes,
    objects,
    pod,
    replica_set,
    stateful_set,
)
from tests.support.build.base import reference
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import cluster, code, judged, merged, patched, web
from tests.unit.policy.test_evictable import namespace, priority_class
from tests.unit.policy.test_pod_security import GOOD as RESTRICTED

Case = tuple[str, Any, dict[str, Any], ReasonCode | None]
DELETED = {"metadata": {"deletionTimestamp": "2026-05-31T23:59:59Z"}}
CHANGED = {"metadata": {"generation": 2}}


def counted_from(start: int) -> Json:
    return {"spec": {"ordinals": {"start": start}}}


ROLLOUT = ReasonCode.ROLLOUT_IN_PROGRESS


def app() -> OwnerBuilder:
    return deployment("web").placed({"a-0": 2, "b-0": 1})


def db() -> OwnerBuilder:
    return stateful_set("web").placed({"a-0": 2, "b-0": 1})


def revised(things: Any) -> list[Json]:
    """A StatefulSet with two revisions."""
    return patched("StatefulSet", {"status": {"updateRevision": "web-2"}}, things)


def by_hand(things: Any, *, count: int = 3) -> list[Json]:
    """A StatefulSet with two revisions, of which so many pods were made again of the second one."""
    made = patched("StatefulSet", {"status": {"updatedReplicas": count}}, revised(things))
    for i in range(count):
        other = {"metadata": {"labels": {"controller-revision-hash": "web-2"}}}
        made = patched("Pod", other, made, name=f"web-{i}")
    return made


def taken_back(things: Any) -> list[Json]:
    """A StatefulSet whose template is the one before again: one name in status, and a pod of another."""
    other = {"metadata": {"labels": {"controller-revision-hash": "web-2"}}}
    return patched("Pod", other, things, name="web-2")


def waiting(seconds: int, since: str, things: Any = None) -> list[Json]:
    """A StatefulSet with minReadySeconds, one of whose pods has been Ready since then."""
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}}
    made = patched("StatefulSet", {"spec": {"minReadySeconds": seconds}}, things or db())
    return patched("Pod", ready, made, name="web-1")


def partitioned(things: Any, ordinal: int = 2) -> list[Json]:
    return patched(
        "StatefulSet", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": ordinal}}}}, things
    )


def second_revision(replicas: int, placed: int) -> list[Json]:
    """web, and another ReplicaSet of its Deployment."""
    other = replica_set("old").labels(app="web").replicas(replicas).placed({"b-0": placed})
    child = {"metadata": {"ownerReferences": [reference("apps/v1", "Deployment", "default", "web")]}}
    return patched("ReplicaSet", child, app(), other, name="old")


def born(*times: str, things: Any) -> list[Json]:
    """The pods with these times of creation, in order."""
    made = patched("Pod", {}, things)
    left = list(times)
    return [
        merged(o, {"metadata": {"creationTimestamp": left.pop(0)}}) if o["kind"] == "Pod" and left else o
        for o in made
    ]


ARGO = "argoproj.io/v1alpha1"


def foreign(owner: OwnerBuilder) -> list[Json]:
    """Pods of a controller of OpenKruise that has the name of a built-in kind, and is not read."""
    made = [o for o in owner.build() if o["kind"] == "Pod"]
    for o in made:
        o["metadata"]["ownerReferences"][0]["apiVersion"] = "apps.kruise.io/v1beta1"
    return made


def under(kind: str, *owners: OwnerBuilder, group: str = "example.com/v1") -> list[Json]:
    """Owners that belong to one object of a kind that is not read."""
    above = {"metadata": {"ownerReferences": [reference(group, kind, "default", "top")]}}
    return [
        merged(o, above) if o["kind"] in ("ReplicaSet", "ReplicationController", "StatefulSet") else o
        for o in patched("Pod", {}, owners)
    ]


def made_by(kind: str, owner: OwnerBuilder) -> list[Json]:
    """A Deployment that belongs to an object of a kind that is not read."""
    above = {"metadata": {"ownerReferences": [reference("example.com/v1", kind, "default", "top")]}}
    return patched("Deployment", above, owner)


CLONES = {"owner_kinds_allow": ("CloneSet",)}
TRUSTED = {"owner_kinds_allow": ("Rollout", "Cassandra")}
REFUSED = ReasonCode.REPLACEMENT_REFUSED
WAITS = ReasonCode.REPLACEMENT_NOT_READY
CANNOT = ("ReplicaFailure", "True", "FailedCreate")


def template(**changes: Json) -> list[Json]:
    """app, with changes to the templates of its Deployment and its ReplicaSet."""
    made = objects(app())
    for kind in ("Deployment", "ReplicaSet"):
        made = patched(kind, {"spec": {"template": changes}}, made)
    return made


def says(kind: str, type_: str, status: str, reason: str) -> list[Json]:
    """app, with a condition of its Deployment or its ReplicaSet."""
    condition = {"type": type_, "status": status, "reason": reason, "message": "pods are forbidden"}
    return patched(kind, {"status": {"conditions": [condition]}}, app())


def enforcing(level: str, *, version: str = "", how: str = "enforce") -> Json:
    """The namespace with a level of Pod Security."""
    labels = {f"pod-security.kubernetes.io/{how}": level}
    if version:
        labels[f"pod-security.kubernetes.io/{how}-version"] = version
    return merged(namespace(), {"metadata": {"labels": labels}})


def cloned(**changes: Json) -> list[Json]:
    """A pod of a kind that is not read, whose own template is all that is known of the next one."""
    return patched("Pod", changes, pod("web").on("a-0").owned_by("CloneSet", "web"))


def probing() -> list[Json]:
    """app, with a probe that names a host, which is forbidden from 1.34 on."""
    probe = {"httpGet": {"host": "10.0.0.1", "port": 80}}
    return template(spec={"containers": [{"name": "c", "livenessProbe": probe}]})


def filled_in(*pods: int) -> list[Json]:
    """app, whose pods have what the level restricted asks for: OpenShift fills it in, or a webhook."""
    whole = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    made = objects(app())
    there = [o for o in made if o["kind"] == "Pod"]
    for one in (there[i] for i in pods):
        one["spec"] |= {"securityContext": whole}
        one["spec"]["containers"][0]["securityContext"] = safe
    return [*made, enforcing("restricted")]


ALL_AWAY = {"in_flight_per_owner": Limit(percent=100)}
"""So that a pod that is not Ready does not keep the others for its own sake."""
OLD, NEW, LONG_AGO = "2026-01-01T00:00:00Z", "2026-05-31T23:59:00Z", "2026-05-31T23:50:00Z"
"""The snapshot's clock says 2026-06-01T00:00:00Z."""

STATED: list[tuple[str, Json, Json, ReasonCode | None]] = [
    ("a priority that its class gives", {"priorityClassName": "high", "priority": 5}, {}, None),
    ("one that it does not give now", {"priorityClassName": "high", "priority": 9}, {}, REFUSED),
    (
        "a preemptionPolicy that it does not give now",
        {"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"},
        {"preemptionPolicy": "Never"},
        REFUSED,
    ),
    ("a priority of no class", {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}, {}, None),
    ("one that a default class gave", {"priority": 5}, {}, REFUSED),
    ("one that a default class gives", {"priority": 5}, {"globalDefault": True}, None),
    ("one of before a default class", {"priority": 0}, {"globalDefault": True}, REFUSED),
]
"""What a template states itself, and what the class `high` says beside its value."""
CASES: list[Case] = [
    # Owners that are not there, or not for long.
    (
        "an owner that is not in the snapshot",
        pod("web").on("a-0").owned_by("ReplicaSet", "web"),
        {},
        ReasonCode.OWNER_UNKNOWN,
    ),
    (
        "an owner of a kind nobody knows",
        pod("web").on("a-0").owned_by("CloneSet", "web"),
        {},
        ReasonCode.OWNER_UNKNOWN,
    ),
    (
        "an owner of a kind that is trusted",
        pod("web").on("a-0").owned_by("CloneSet", "web"),
        {"owner_kinds_allow": ("CloneSet",)},
        None,
    ),
    (
        "a trusted kind whose pod has a PriorityClass",
        [cloned(spec={"priorityClassName": "high", "priority": 5}), priority_class("high", 5)],
        CLONES,
        None,
    ),
    (
        "a trusted kind whose pod has a PriorityClass that is gone",
        cloned(spec={"priorityClassName": "gone"}),
        CLONES,
        REFUSED,
    ),
    ("a trusted kind whose pod keeps the level", [cloned(), enforcing("baseline")], CLONES, None),
    (
        "a trusted kind whose pod is privileged, and the level forbids it by now",
        [
            cloned(spec={"containers": [{"name": "c", "securityContext": {"privileged": True}}]}),
            enforcing("baseline"),
        ],
        CLONES,
        REFUSED,
    ),
    *(
        (
            f"a trusted kind whose pod has {field}",
            [cloned(spec={field: True}), enforcing("baseline")],
            CLONES,
            REFUSED,
        )
        for field in ("hostNetwork", "hostPID", "hostIPC")
    ),
    (
        "a trusted kind whose pod names an AppArmor profile in an annotation",
        [
            cloned(
                metadata={"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}}
            ),
            enforcing("baseline"),
        ],
        CLONES,
        REFUSED,
    ),
    *(
        (
            f"a trusted kind whose pod mounts a volume of kind {kind} where restricted is enforced by now",
            [
                cloned(spec={**RESTRICTED["spec"], "volumes": [{"name": "v", kind: {}}]}),
                enforcing("restricted"),
            ],
            CLONES,
            refused,
        )
        for kind, refused in [
            *((kind, None) for kind in ("configMap", "secret", "projected", "downwardAPI", "csi")),
            *((kind, REFUSED) for kind in ("nfs", "cephfs", "glusterfs", "azureFile", "gitRepo", "rbd")),
        ]
    ),
    (
        "to trust ReplicaSets does not find a lost one",
        pod("web").on("a-0").owned_by("ReplicaSet", "web"),
        {"owner_kinds_allow": ("ReplicaSet",)},
        ReasonCode.OWNER_UNKNOWN,
    ),
    (
        "an owner of the same name and another uid",
        patched("ReplicaSet", {"metadata": {"uid": "another"}}, web()),
        {},
        ReasonCode.OWNER_UNKNOWN,
    ),
    (
        "an owner that is being deleted",
        patched("ReplicaSet", DELETED, web()),
        {},
        ReasonCode.OWNER_TERMINATING,
    ),
    (
        "a Deployment that is being deleted",
        patched("Deployment", DELETED, app()),
        {},
        ReasonCode.OWNER_TERMINATING,
    ),
    (
        "a Deployment that is gone",
        [o for o in patched("Pod", {}, app()) if o["kind"] != "Deployment"],
        {},
        ReasonCode.OWNER_UNKNOWN,
    ),
    # Owners of owners that are not read.
    # What other controllers make of the built-in kinds.
    ("a subset of a UnitedDeployment that is a Deployment", made_by("UnitedDeployment", app()), {}, None),
    (
        "a subset of a UnitedDeployment that is a StatefulSet",
        under("UnitedDeployment", db(), group="apps.kruise.io/v1alpha1"),
        {},
        ReasonCode.OWNER_UNKNOWN,
    ),
    (
        "the same, allowed",
        under("UnitedDeployment", db(), group="apps.kruise.io/v1alpha1"),
        {"owner_kinds_allow": ("UnitedDeployment",)},
        None,
    ),
    ("a Deployment of a Knative Revision", made_by("Revision", app()), {}, None),
    (
        "a Revision that its autoscaler scales up",
        patched("ReplicaSet", {"spec": {"replicas": 5}}, *made_by("Revision", app())),
        {},
        ReasonCode.OWNER_SCALING,
    ),
    (
        "a Deployment that KEDA wakes up",
        patched("ReplicaSet", {"spec": {"replicas": 4}}, app()),
        {},
        ReasonCode.OWNER_SCALING,
    ),
    ("a ReplicaSet of a kind nobody knows", under("Rollout", web()), {}, ReasonCode.OWNER_UNKNOWN),
    ("a ReplicaSet of a trusted kind", under("Rollout", web()), TRUSTED, None),
    ("a ReplicaSet of Argo's Rollout", under("Rollout", web(), group=ARGO), {}, None),
    (
        "Argo's Rollout at a step, paused, or with a canary or a preview: two ReplicaSets have pods",
        under("Rollout", web(), replica_set("zzz").placed({"b-0": 1}), group=ARGO),
        {},
        ROLLOUT,
    ),
    ("a StatefulSet of another group", foreign(db()), {}, ReasonCode.OWNER_UNKNOWN),
    (
        "a trusted kind between two revisions",
        under("Rollout", web(), replica_set("zzz").placed({"b-0": 1})),
        TRUSTED,
        ROLLOUT,
    ),
    (
        "a trusted kind of ReplicationControllers between two revisions",
        under(
            "Rollout", *(OwnerBuilder("ReplicationController", n).placed({"b-0": 1}) for n in ("web", "zzz"))
        ),
        TRUSTED,
        ROLLOUT,
    ),
    (
        "a trusted kind with an old, empty ReplicaSet",
        under("Rollout", web(), replica_set("zzz").replicas(0)),
        TRUSTED,
        None,
    ),
    (
        "a trusted kind with two StatefulSets, which are no revisions",
        under("Cassandra", db(), stateful_set("zzz").placed({"b-0": 1})),
        TRUSTED,
        None,
    ),
    # Scaling.
    ("more wanted than there", web().replicas(4), {}, ReasonCode.OWNER_SCALING),
    ("fewer wanted than there", web().replicas(2), {}, ReasonCode.OWNER_SCALING),
    ("a first ordinal that is as it was", patched("StatefulSet", counted_from(0), db()), {}, None),
    (
        "a first ordinal that was raised, and new pods cannot be made",
        patched("StatefulSet", counted_from(3), db()),
        {},
        ReasonCode.OWNER_SCALING,
    ),
    (
        "a terminating pod does not count",
        [
            web(),
            *patched(
                "Pod",
                {
                    **DELETED,
                    "metadata": {
                        **DELETED["metadata"],
                        "ownerReferences": [reference("apps/v1", "ReplicaSet", "default", "web")],
                    },
                },
                pod("zzz").on("a-0"),
            ),
        ],
        {},
        None,
    ),
    ("a change that its controller has not seen", patched("ReplicaSet", CHANGED, web()), {}, ROLLOUT),
    # Rollouts.
    ("a Deployment at rest", app(), {}, None),
    ("a Deployment with an old, empty ReplicaSet", second_revision(0, 0), {}, None),
    ("a Deployment between two revisions", second_revision(1, 1), {}, ROLLOUT),
    ("a Deployment whose new revision has no pods yet", second_revision(1, 0), {}, ROLLOUT),
    ("a Deployment whose old pods are not gone", second_revision(0, 1), {}, ROLLOUT),
    ("a Deployment whose change was not seen", patched("Deployment", CHANGED, app()), {}, ROLLOUT),
    (
        "a Deployment that has not updated all",
        patched("Deployment", {"status": {"updatedReplicas": 2}}, app()),
        {},
        ROLLOUT,
    ),
    ("a paused Deployment", patched("Deployment", {"spec": {"paused": True}}, app()), {}, ReasonCode.PAUSED),
    (
        "a paused Deployment, by setting",
        patched("Deployment", {"spec": {"paused": True}}, app()),
        {"protect_paused": False},
        None,
    ),
    # StatefulSets.
    ("a StatefulSet at rest", db(), {}, None),
    ("OnDelete with one revision", db().on_delete(), {}, None),
    ("OnDelete with two revisions", revised(db().on_delete()), {}, ReasonCode.ON_DELETE),
    ("OnDelete, updated by hand, as Kubernetes leaves its status", by_hand(db().on_delete()), {}, None),
    ("OnDelete, updated by hand in part", by_hand(db().on_delete(), count=2), {}, ReasonCode.ON_DELETE),
    ("all pods new, and its controller has yet to say that it is done", by_hand(db()), {}, ROLLOUT),
    ("a partition with one revision", partitioned(db()), {}, None),
    ("a partition with two revisions", partitioned(revised(db())), {}, ReasonCode.ON_DELETE),
    ("two revisions on their way", revised(db()), {}, ROLLOUT),
    ("OnDelete, taken back while one pod is new", taken_back(db().on_delete()), {}, ReasonCode.ON_DELETE),
    ("a partition, taken back", partitioned(taken_back(db())), {}, ReasonCode.ON_DELETE),
    ("taken back, and on its way", taken_back(db()), {}, ROLLOUT),
    (
        "a status that counts fewer of the revision",
        patched("StatefulSet", {"status": {"updatedReplicas": 2}}, db().on_delete()),
        {},
        ReasonCode.ON_DELETE,
    ),
    ("in order, one pod not Ready", db().unready(1), {}, ReasonCode.REPLACEMENT_NOT_READY),
    ("in order, one pod not Ready for minReadySeconds", waiting(60, "2026-05-31T23:59:01Z"), ALL_AWAY, WAITS),
    ("in order, one pod Ready for just so long", waiting(60, "2026-05-31T23:59:00Z"), ALL_AWAY, None),
    ("in order, one pod Ready for a second, which is enough", waiting(0, "2026-05-31T23:59:59Z"), {}, None),
    (
        "in parallel, one pod not Ready for minReadySeconds",
        waiting(60, "2026-05-31T23:59:01Z", db().parallel()),
        ALL_AWAY,
        None,
    ),
    ("in parallel, one pod not Ready for long", db().parallel().unready(1), ALL_AWAY, None),
    # Replacements that would not be made, or that the scheduler would not place.
    ("a template that names a node", template(spec={"nodeName": "a-0"}), {}, REFUSED),
    ("a PriorityClass that is gone", template(spec={"priorityClassName": "gone"}), {}, REFUSED),
    ("one that every cluster has", template(spec={"priorityClassName": "system-node-critical"}), {}, None),
    (
        "a PriorityClass that is there",
        [template(spec={"priorityClassName": "high"}), priority_class("high", 5)],
        {},
        None,
    ),
    *(
        (name, [template(spec=stated), priority_class("high", 5) | gives], {}, expected)
        for name, stated, gives, expected in STATED
    ),
    ("a ReplicaSet that cannot make pods", says("ReplicaSet", *CANNOT), {}, REFUSED),
    ("a Deployment that cannot make pods", says("Deployment", *CANNOT), {}, REFUSED),
    (
        "a rollout that did not end in time",
        says("Deployment", "Progressing", "False", "ProgressDeadlineExceeded"),
        {},
        ReasonCode.OWNER_DEGRADED,
    ),
    ("a rollout that did", says("Deployment", "Progressing", "True", "NewReplicaSetAvailable"), {}, None),
    ("a level that the template keeps", [app(), enforcing("baseline")], {}, None),
    ("a level that it does not keep", [app(), enforcing("restricted")], {}, REFUSED),
    (
        "a level that it does not keep any more",
        [template(spec={"hostNetwork": True}), enforcing("baseline")],
        {},
        REFUSED,
    ),
    ("an old version of a level", [probing(), enforcing("baseline", version="v1.33")], {}, None),
    ("what admission adds to all its pods, so that they keep the level", filled_in(0, 1, 2), {}, None),
    ("to some of them alone", filled_in(0, 1), {}, ReasonCode.REPLACEMENT_REFUSED),
    ("its latest version", [probing(), enforcing("baseline", version="latest")], {}, REFUSED),
    ("a level that only warns", [app(), enforcing("restricted", how="warn")], {}, None),
    # Replacements on their way.
    (
        "a new pod that is not Ready",
        born(OLD, NEW, things=web().unready(1)),
        {},
        ReasonCode.REPLACEMENT_NOT_READY,
    ),
    ("a new pod that is Ready", born(OLD, NEW, things=web()), {}, None),
    ("an old pod that is not Ready", born(OLD, OLD, things=web().unready(1)), ALL_AWAY, None),
    (
        "a pod not Ready for ten minutes no longer blocks, if a newer one is Ready",
        born(LONG_AGO, OLD, things=web().unready(1)),
        ALL_AWAY,
        None,
    ),
    (
        "the newest pod, not Ready for ten minutes",
        born(OLD, LONG_AGO, things=web().unready(1)),
        ALL_AWAY,
        ReasonCode.REPLACEMENT_NOT_READY,
    ),
    (
        "a new pod without a node",
        born(NEW, things=replica_set("web").placed({"": 1, "a-0": 2})),
        {},
        ReasonCode.NOT_RUNNING,
    ),
    (
        "in parallel, a new pod not Ready",
        born(NEW, things=db().parallel().unready(0)),
        {},
        ReasonCode.REPLACEMENT_NOT_READY,
    ),
    (
        "a new pod of another owner",
        [web(), born(NEW, things=replica_set("zzz").placed({"a-0": 1}).unready(0))],
        {},
        None,
    ),
    (
        "a trusted owner with a new pod",
        born(NEW, things=pod("web").on("a-0").owned_by("CloneSet", "web").unready()),
        {"owner_kinds_allow": ("CloneSet",)},
        ReasonCode.REPLACEMENT_NOT_READY,
    ),
]


@pytest.mark.parametrize(("things", "options", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_an_owner_is_left_alone_or_not(
    things: Any, options: dict[str, Any], expected: ReasonCode | None
) -> None:
    assert code(things, options=PolicyOptions(**options)) == expected


def attracted(kind: str, terms: Any) -> list[Json]:
    """web with terms of node affinity, in its pods and in their owner's template."""
    affinity = {"nodeAffinity": {f"{kind}DuringSchedulingIgnoredDuringExecution": terms}}
    spec = {"spec": {"affinity": affinity}}
    return patched("ReplicaSet", {"spec": {"template": spec}}, patched("Pod", spec, web()))


def wanting(operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": "gen", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("version", "operator", "value", "expected"),
    [
        ("v1.32.5", "NotIn", "bad value", None),
        ("v1.33.0", "NotIn", "bad value", REFUSED),
        ("", "In", "bad value", REFUSED),
        ("v1.36.2", "Gt", "-5", REFUSED),
        ("v1.36.2", "Gt", "1.5", None),
        ("v1.36.2", "In", "", None),
        ("v1.36.2", "In", "x" * 63, None),
        ("v1.36.2", "In", "x" * 64, REFUSED),
    ],
)
def test_a_required_value_that_no_label_can_have_is_refused_in_new_pods_from_1_33_on(
    version: str, operator: str, value: str, expected: ReasonCode | None
) -> None:
    terms = {"nodeSelectorTerms": [wanting("DoesNotExist"), wanting(operator, value)]}
    snapshot = replace(cluster(attracted("required", terms)), server_version=version)
    reason = Evictable(snapshot, PolicyOptions()).why_not(snapshot.pods[0])
    assert (reason and reason.code) == expected


@pytest.mark.parametrize(
    ("operator", "values", "weight", "expected"),
    [
        ("Gt", ["1.5"], 1, REFUSED),
        ("Lt", ["2Gi"], 100, REFUSED),
        ("Lt", ["-5"], 1, REFUSED),
        ("In", ["fine", "bad value!"], 1, REFUSED),
        ("NotIn", ["bad value!"], 1, REFUSED),
        ("NotIn", ["bad value!"], 0, None),
        ("Gt", ["7"], 1, None),
        ("In", ["fine"], 1, None),
        ("DoesNotExist", [], 1, None),
    ],
)
@pytest.mark.parametrize("version", ["v1.29.0", "v1.36.2"])
def test_a_preferred_term_that_the_scheduler_cannot_read_has_it_place_no_new_pod(
    operator: str, values: list[str], weight: int, expected: ReasonCode | None, version: str
) -> None:
    preferred = [
        {"weight": 1, "preference": {}},
        {"weight": weight, "preference": wanting(operator, *values)},
    ]
    snapshot = replace(cluster(attracted("preferred", preferred)), server_version=version)
    reason = Evictable(snapshot, PolicyOptions()).why_not(snapshot.pods[0])
    assert (reason and reason.code) == expected


def test_a_pending_replacement_blocks_its_running_siblings() -> None:
    things = born(OLD, OLD, NEW, things=replica_set("web").placed({"a-0": 2, "": 1}))
    assert code(things) is ReasonCode.REPLACEMENT_NOT_READY


def test_a_reason_says_how_many_are_waited_for_before_the_next_may_start() -> None:
    reason = judged(db().unready(1))
    assert reason is not None
    assert "starts its pods in order and 1 not Ready" in reason.message
    assert reason.numbers == {"notReady": 1}


def test_a_reason_names_the_pod_that_is_waited_for() -> None:
    reason = judged(born(OLD, NEW, things=web().unready(1)))
    assert reason is not None
    assert "web-00001" in reason.message
    assert reason.numbers == {"notReady": 1}


@pytest.mark.parametrize(
    ("started", "state", "expected"),
    [
        (False, "running", ReasonCode.REPLACEMENT_NOT_READY),
        (False, "waiting", None),
        (True, "running", None),
    ],
)
def test_an_old_pod_is_left_alone_while_its_startup_probe_runs(
    started: bool, state: str, expected: ReasonCode | None
) -> None:
    status = {"containerStatuses": [{"name": "c", "started": started, "state": {state: {}}}]}
    slow = replica_set("web").placed({"a-0": 3}).unready(0)
    assert code(patched("Pod", {"status": status}, slow, name="web-00000")) is expected


@pytest.mark.parametrize(("size", "missing"), [("1", 0), ("3", 2), ("²", 0), ("9" * 5000, 0)])
def test_a_group_of_a_leader_that_is_made_anew_is_left_alone(size: str, missing: int) -> None:
    lws = "leaderworkerset.sigs.k8s.io/"
    said = {"annotations": {lws + "size": size}, "labels": {lws + "name": "ring", lws + "group-index": "0"}}
    made = patched("Pod", {"metadata": said}, nodes(a=1), stateful_set("ring").placed({"a-0": 1}))
    there = decoded(made)
    reason = Owners(there, PolicyOptions()).restarting(there.pods[0])
    assert (reason is not None) is (missing > 0)
    if reason is not None:
        assert f"is made anew: {missing} of its pods are not Ready yet" in reason.message
        assert reason.numbers == {"notReady": missing}


UNASKED = [
    ('Internal error occurred: failed calling webhook "mutate.acme.example": refused', 120, True),
    ("Internal error occurred: etcd", 120, True),
    ('admission webhook "validate.acme.example" denied the request', 120, False),
    ("pods is forbidden: exceeded quota", 120, False),
]


def refused(message: str, seconds: float, kind: str = "Deployment", name: str = "api") -> list[Json]:
    """Another Deployment, in another namespace, that says so for so many seconds."""
    says = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    status = {"conditions": [says | {"lastTransitionTime": ago(seconds)}]}
    return patched(kind, {"status": status}, deployment(name, namespace="other").placed({"a-0": 1}))


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
@pytest.mark.parametrize(("message", "seconds", "stays"), UNASKED)
def test_while_the_api_server_cannot_make_the_pods_of_one_those_of_others_stay(
    message: str, seconds: float, stays: bool, kind: str
) -> None:
    things = [*objects(app()), *refused(message, seconds, kind)]
    reason = judged(*things)
    assert (reason is not None and reason.code is ReasonCode.CLUSTER_UNWELL) is stays
    assert reason is None or "Deployment other/api, as it" in reason.message
    changes = next_change(cluster(*things), PolicyOptions())
    assert changes == (NOW - seconds + UNASKED_FOR if stays else inf)


@pytest.mark.parametrize(
    ("who", "young", "stays"), [(("api",), 3300, False), (("api",), 3650, True), (("api", "b"), 3650, True)]
)
def test_what_is_refused_for_an_hour_is_one_owners_own_only_if_pods_have_been_made_since(
    who: tuple[str, ...], young: int, stays: bool
) -> None:
    """Its controller sets the condition once, and takes it back when it succeeds."""
    things = [*objects(app()), *(o for name in who for o in refused(UNASKED[0][0], 3600, name=name))]
    made = patched("Pod", {"metadata": {"creationTimestamp": ago(young)}}, *things)
    assert (judged(*made) is not None) is stays


@pytest.mark.parametrize(
    ("made_in", "says", "stays"),
    [("default", 3600, False), ("other", 3600, True), ("default", 1200, True)],
)
def test_what_two_say_for_months_holds_where_no_pod_was_made_since(
    made_in: str, says: int, stays: bool
) -> None:
    """A webhook that is gone is asked about namespaces with its label alone."""
    two = [o for name in ("x", "y") for o in refused(UNASKED[0][0], says, name=name)]
    things = [*objects(app()), *two]
    young = patched("Pod", {"metadata": {"creationTimestamp": ago(700)}}, *things)
    things = [y if y["metadata"]["namespace"] == made_in else t for y, t in zip(young, things, strict=True)]
    assert (judged(*things) is not None) is stays


@pytest.mark.parametrize(
    ("seconds", "stays"), [(600, False), (300, False), (3600, True), (1300, True), (2**31 - 1, False)]
)
def test_a_new_pod_may_take_as_long_as_its_deployment_says(seconds: int, stays: bool) -> None:
    """Of 20 min, and not Ready."""
    things = patched("Deployment", {"spec": {"progressDeadlineSeconds": seconds}}, app().unready(0))
    things = patched("Pod", {"metadata": {"creationTimestamp": ago(1200)}}, *things)
    reason = judged(*things)
    assert (reason is not None and reason.code is ReasonCode.REPLACEMENT_NOT_READY) is stays
    if stays:
        assert reason is not None
        assert f"or {seconds / 60:g} min old" in reason.remedy
        assert next_change(cluster(*things), PolicyOptions()) == NOW - 1200 + seconds
