"""The pod that takes an evicted one's place: its owner's template, and what admission had added."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.replacement import Replacements, edited
from tests.support.build import (
    OwnerBuilder,
    claim,
    deployment,
    node,
    nodes,
    objects,
    pod,
    replica_set,
    stateful_set,
    volume,
)
from tests.support.build import decoded as snapshot_of
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import patched

ZONE = "topology.kubernetes.io/zone"
NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}


def container(cpu: str) -> list[Json]:
    return [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]


def sized(**resources: Json) -> list[Json]:
    return [{"name": "c", "image": "i", "resources": resources}]


def spread(max_skew: int, **more: Any) -> list[Json]:
    written = {
        "maxSkew": max_skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return [{**written, **more}]


def anti(app: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def made(
    pod: Json | None = None, owner: Json | None = None, labels: Json | None = None, *, seen: bool = False
) -> tuple[PodTemplate, PodTemplate]:
    """A pod's template and its replacement's; `pod`, `owner`: changes to their specs. `seen`: what else is in
    the cluster counts."""
    things = patched("Pod", {"spec": pod or {}}, nodes(a=1), deployment("web").placed({"a-0": 1}))
    template = {"spec": owner or {}, "metadata": {"labels": labels or {}}}
    s = snapshot_of(patched("ReplicaSet", {"spec": {"template": template}}, things))
    (one,) = s.pods
    holder = s.owner_of(one.namespace, one.owner)
    assert holder is not None
    return one.template, Replacements(s if seen else None).of(one.template, holder)


AMD = {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}
ON_AMD = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [AMD]}}}
SOFT = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": AMD}]}
NAMED = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
ANYWHERE = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NAMED]}}
HASH = {"key": "pod-template-hash", "operator": "In"}

SAME: list[tuple[str, Json, Json]] = [
    ("pod and template agree", {}, {}),
    ("admission added a toleration", {"tolerations": [NOT_READY]}, {}),
    ("admission added a node selector", {"nodeSelector": {"pool": "a"}}, {}),
    ("admission added affinity that is preferred", {"affinity": {"nodeAffinity": SOFT}}, {}),
    ("admission added affinity that all nodes satisfy", {"affinity": {"nodeAffinity": ANYWHERE}}, {}),
    (
        "admission added a soft constraint to that of the template",
        {"topologySpreadConstraints": [*spread(1), *spread(1, whenUnsatisfiable="ScheduleAnyway")]},
        {"topologySpreadConstraints": spread(1)},
    ),
    ("admission named a scheduler", {"schedulerName": "stork"}, {}),
    (
        "admission injected a container",
        {"containers": [*container("100m"), {**container("50m")[0], "name": "proxy"}]},
        {},
    ),
    (
        "the template states limits alone, of which the API server makes a pod's requests",
        {
            "containers": sized(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2", "memory": "1Gi"}),
            "initContainers": sized(requests={"cpu": "3"}, limits={"cpu": "3"}),
            "resources": {"requests": {"cpu": "3", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
        },
        {
            "containers": sized(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi"}),
            "initContainers": sized(limits={"cpu": "3"}),
            "resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}},
        },
    ),
    ("both say the same affinity", {"affinity": anti("web")}, {"affinity": anti("web")}),
    (
        "both tolerate, the pod some more",
        {"tolerations": [{"key": "x", "operator": "Exists"}, NOT_READY]},
        {"tolerations": [{"key": "x", "operator": "Exists"}]},
    ),
]


@pytest.mark.parametrize(("pod", "owner"), [c[1:] for c in SAME], ids=[c[0] for c in SAME])
def test_where_nothing_differs_it_is_the_pods_own_template(pod: Json, owner: Json) -> None:
    template, replacement = made(pod, owner)
    assert replacement is template


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        ({"affinity": anti("web")}, {}),
        ({"affinity": ON_AMD | anti("web")}, {"affinity": anti("web")}),
        ({"topologySpreadConstraints": spread(1)}, {}),
        (
            {"topologySpreadConstraints": [*spread(1), *spread(2, topologyKey="rack")]},
            {"topologySpreadConstraints": spread(1)},
        ),
    ],
    ids=["anti-affinity", "affinity to nodes, beside the template's", "a constraint", "one more constraint"],
)
def test_what_only_admission_asks_of_nodes_may_not_come_again(pod: Json, owner: Json) -> None:
    template, replacement = made(pod, owner, seen=True)
    assert (replacement.affinity, replacement.spread) == (template.affinity, template.spread)
    assert replacement.unsettled


def test_merged_match_label_keys_are_no_difference() -> None:
    keys = {"matchLabelKeys": ["pod-template-hash"]}
    plain, _ = made()
    value = plain.labels["pod-template-hash"]
    merged = {"matchLabels": {"app": "web"}, "matchExpressions": [{**HASH, "values": [value]}]}
    template, replacement = made(
        {"topologySpreadConstraints": spread(1, **keys, labelSelector=merged)},
        {"topologySpreadConstraints": spread(1, **keys)},
    )
    assert replacement is template


@pytest.mark.parametrize(
    ("pod", "template", "less"),
    [("300m", "100m", {"cpu": 200}), ("100m", "100m", {}), ("100m", "300m", {})],
)
def test_a_pod_that_takes_more_than_its_template_may_come_back_smaller(
    pod: str, template: str, less: dict[str, int]
) -> None:
    """More nodes may be open to a smaller one."""
    _, replacement = made({"containers": container(pod)}, {"containers": container(template)})
    assert replacement.may_lack == less


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_what_the_api_server_merged_into_a_term_is_in_the_replacements_too(kind: str) -> None:
    term: Json = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
    asked = {**term, "matchLabelKeys": ["pod-template-hash"]}
    expression = {"key": "pod-template-hash", "operator": "In", "values": ["abc"]}
    merged = {**asked, "labelSelector": {**term["labelSelector"], "matchExpressions": [expression]}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    template, replacement = made(*({"affinity": {kind: {required: [one]}}} for one in (merged, asked)))
    assert replacement.affinity is template.affinity


def test_another_spelling_of_a_selector_is_no_difference() -> None:
    spelled = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    template, replacement = made(
        {"topologySpreadConstraints": spread(1)},
        {"topologySpreadConstraints": spread(1, labelSelector=spelled)},
    )
    assert replacement is template


def test_the_owners_constraints_win() -> None:
    template, replacement = made(
        {"topologySpreadConstraints": spread(1)}, {"topologySpreadConstraints": spread(3)}
    )
    assert [c.max_skew for c in template.spread] == [1]
    assert [c.max_skew for c in replacement.spread] == [3]


def test_the_owners_labels_win_and_the_pods_further_ones_stay() -> None:
    template, replacement = made(labels={"app": "other", "tier": "front"})
    assert template.labels["app"] == "web"
    assert replacement.labels["app"] == "other"
    assert replacement.labels["tier"] == "front"
    assert replacement.labels["owner"] == "web"


def test_the_owners_affinity_and_scheduler_win() -> None:
    _, replacement = made({"affinity": anti("web")}, {"affinity": anti("api"), "schedulerName": "mine"})
    assert replacement.scheduler_name == "mine"
    assert replacement.affinity is not None
    assert replacement.affinity.pod_anti_affinity is not None
    selector = replacement.affinity.pod_anti_affinity.required[0].label_selector
    assert selector is not None
    assert selector.match_labels == {"app": "api"}


def stays(pod: Json, template: Json, owner: OwnerBuilder, *, alike: bool = True) -> bool:
    """Whether a pod with this in its spec stays, for this in the spec of its owner's template."""
    things = patched("Pod", {"spec": pod}, nodes(a=1), owner.placed({"a-0": 1}))
    s = snapshot_of(patched("ReplicaSet", {"spec": {"template": {"spec": template}}}, things))
    (one,) = s.pods
    holder = s.owner_of(one.namespace, one.owner)
    assert holder is not None
    return edited(one.template, holder, alike=alike) is not None


MORE: list[tuple[Json, Json]] = [
    ({"schedulerName": "stork"}, {}),
    ({"topologySpreadConstraints": spread(1)}, {}),
    (
        {"topologySpreadConstraints": [*spread(1), *spread(2, topologyKey="rack")]},
        {"topologySpreadConstraints": spread(1)},
    ),
    ({"affinity": anti("web")}, {}),
    ({"affinity": ON_AMD | anti("web")}, {"affinity": anti("web")}),
]


@pytest.mark.parametrize(("pod", "template"), MORE)
def test_what_only_pods_have_is_admissions_if_all_have_it(pod: Json, template: Json) -> None:
    """A Deployment's template is not edited under its pods. Nobody rolls out that of a bare ReplicaSet."""
    assert not stays(pod, template, deployment("web"))
    assert stays(pod, template, deployment("web"), alike=False)
    assert stays(pod, template, replica_set("web"))
    assert not stays(template, template, deployment("web"), alike=False)


@pytest.mark.parametrize("all_have_it", [True, False])
def test_pods_of_which_some_only_were_given_a_scheduler_stay(all_have_it: bool) -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    things = patched(
        "Pod",
        {"spec": {"schedulerName": "stork"}},
        nodes(a=1, b=1),
        web,
        name="" if all_have_it else "web-13e-00000",
    )
    made = plan(snapshot_of(things), PlanOptions(certainty="likely"))
    moved = {m.pod.name for m in made.moves}
    assert moved
    assert ("web-13e-00000" in moved) is all_have_it
    assert not (all_have_it and any(m.certain for m in made.moves))


def test_a_pod_stays_that_was_not_given_the_scheduler_of_its_template() -> None:
    assert stays({}, {"schedulerName": "stork"}, deployment("web"))


def merged(*extra: Json) -> Json:
    """Anti-affinity to web, with more requirements in its selector."""
    found = anti("web")
    term = found["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["labelSelector"]["matchExpressions"] = list(extra)
    return found


@pytest.mark.parametrize(
    ("pod", "owner", "differs"),
    [
        ({}, {}, False),
        ({}, anti("web"), False),
        (anti("web"), anti("web"), False),
        (anti("web"), anti("api"), True),
        (ON_AMD | anti("web"), {"nodeAffinity": SOFT}, True),
        (merged({**HASH, "values": ["13e"]}), anti("web"), False),
        (anti("web"), merged({**HASH, "values": ["13e"]}), True),
    ],
    ids=[
        "neither has any", "the template's alone", "the same", "another", "a webhook's instead",
        "merged by matchLabelKeys", "a requirement of the template that the pod lacks",
    ],
)  # fmt: skip
def test_a_pod_stays_whose_affinity_is_not_its_templates(pod: Json, owner: Json, differs: bool) -> None:
    """What was edited is not known to have been there."""
    assert stays({"affinity": pod or None}, {"affinity": owner or None}, deployment("web")) is differs


@pytest.mark.parametrize(
    ("pod", "template", "claims", "differs"),
    [
        (["data"], [], ["data"], False),
        (["data"], ["data"], ["data"], False),
        (["shared"], ["shared"], [], False),
        ([], [], ["data"], True),
        (["data"], [], [], True),
        (["data"], [], ["data", "logs"], True),
    ],
)
def test_a_pod_stays_whose_stateful_set_was_made_anew_with_other_claims(
    pod: list[str], template: list[str], claims: list[str], differs: bool
) -> None:
    """`kubectl delete --cascade=orphan` leaves the pods to a set of the name, and no revision tells its
    claims."""

    def mounting(names: list[str]) -> Json:
        return {"volumes": [{"name": n, "persistentVolumeClaim": {"claimName": f"{n}-x"}} for n in names]}

    things = patched("Pod", {"spec": mounting(pod)}, nodes(a=1), stateful_set("web").placed({"a-0": 1}))
    spec = {
        "template": {"spec": mounting(template)},
        "volumeClaimTemplates": [{"metadata": {"name": n}} for n in claims],
    }
    s = snapshot_of(patched("StatefulSet", {"spec": spec}, things))
    (one,) = s.pods
    holder = s.owner_of(one.namespace, one.owner)
    assert holder is not None
    assert (edited(one.template, holder) is not None) is differs


def test_tolerations_and_node_selectors_are_joined() -> None:
    _, replacement = made(
        {"tolerations": [NOT_READY], "nodeSelector": {"pool": "a", "arch": "arm"}},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"pool": "b"}},
    )
    assert {t.key for t in replacement.tolerations} == {"gpu", "node.kubernetes.io/not-ready"}
    assert replacement.node_selector == {"pool": "b", "arch": "arm"}


def test_the_larger_requests_are_counted_on() -> None:
    _, replacement = made({"containers": container("100m")}, {"containers": container("250m")})
    assert replacement.requests["cpu"] == 250
    assert replacement.requests["memory"] == 64 << 20


def test_containers_have_the_larger_amounts_and_the_templates_further_ones_join() -> None:
    limited = {**container("100m")[0], "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}}
    proxy, helper = ({**container("50m")[0], "name": name} for name in ("proxy", "helper"))
    one, replacement = made({"containers": [limited, proxy]}, {"containers": [*container("150m"), helper]})
    shown = [(c.name, c.requests.get("cpu"), c.limits.get("cpu")) for c in replacement.containers]
    assert shown == [("c", 150, 200), ("proxy", 50, None), ("helper", 50, None)]
    assert replacement.containers[1] is one.containers[1]
    assert replacement.requests["cpu"] == 250, "all of them together"


STATED: dict[str, tuple[Json, Json, dict[str, int]]] = {
    "of a container": (
        {"containers": sized(limits={"cpu": "2", "gpu.io/a": 1})}, {}, {"cpu": 2000, "gpu.io/a": 1},
    ),
    "beside requests": (
        {"containers": sized(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "7"})},
        {},
        {"cpu": 1000, "memory": 7},
    ),
    "of an init container": (
        {"containers": sized(), "initContainers": sized(limits={"cpu": "2"})}, {}, {"cpu": 2000},
    ),
    "of the whole pod": (
        {"containers": sized()},
        {"limits": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
        {"cpu": 2000, "hugepages-2Mi": 4 << 20},
    ),
    "of the whole pod, whose containers ask for less": (
        {"containers": sized(requests={"cpu": "1", "hugepages-2Mi": "2Mi"})},
        {"limits": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
        {"cpu": 1000, "hugepages-2Mi": 4 << 20},
    ),
    "of the whole pod, which asks for less": (
        {"containers": sized()},
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "7"}},
        {"cpu": 1000, "memory": 7},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "level", "asked"), STATED.values(), ids=STATED)
def test_what_a_template_states_by_limits_alone_its_pods_will_request(
    spec: Json, level: Json, asked: dict[str, int]
) -> None:
    owner = deployment("web").placed({"a-0": 1})
    things = patched("ReplicaSet", {"spec": {"template": {"spec": {**spec, "resources": level}}}}, owner)
    (template,) = (w.template for w in snapshot_of(things).workloads if w.kind == "ReplicaSet")
    assert template is not None
    assert template.requests == asked


def test_one_template_has_one_replacement() -> None:
    s = snapshot_of(
        patched(
            "ReplicaSet",
            {"spec": {"template": {"spec": {"schedulerName": "mine"}}}},
            nodes(a=1),
            deployment("web").placed({"a-0": 2}),
        )
    )
    first, second = s.pods
    holder = s.owner_of(first.namespace, first.owner)
    assert holder is not None
    replacements = Replacements()
    assert replacements.of(first.template, holder) is replacements.of(second.template, holder)


def test_a_larger_request_of_the_owner_counts_in_the_scores_too() -> None:
    one, replacement = made(owner={"containers": container("700m")}, pod={"containers": container("300m")})
    assert (one.nonzero_cpu, one.scored_cpu) == (300, 300)
    assert (replacement.requests["cpu"], replacement.nonzero_cpu, replacement.scored_cpu) == (700, 700, 700)


def test_the_volume_that_admission_names_for_each_pod_makes_no_further_template() -> None:
    made = objects(nodes(a=1), replica_set("web").placed({"a-0": 2}))
    for n, one in enumerate(o for o in made if o["kind"] == "Pod"):
        token = f"kube-api-access-{n}"
        one["spec"]["volumes"] = [{"name": token, "projected": {"sources": []}}]
        one["spec"]["containers"][0]["volumeMounts"] = [{"name": token, "mountPath": "/token"}]
    first, second = snapshot_of(made).pods
    assert first.template is second.template


PAIR = {"node-role.kubernetes.io/worker": ""}
OWN_SELECTOR = {"openshift.io/node-selector": ""}


@pytest.mark.parametrize(
    ("placed", "settled"),
    [
        ({"default": (PAIR, {}), "other": (PAIR, {})}, True),
        ({"default": (PAIR, {})}, False),
        ({"default": (PAIR, {}), "other": (PAIR, PAIR)}, False),
        ({"default": (PAIR, {}), "other": (PAIR, {}), "third": ({}, {})}, False),
        ({"default": (PAIR, {}), "other": (PAIR, {}), "openshift-x": ({}, {})}, True),
    ],
    ids=["given in two", "in one", "one asks itself", "one has it not", "one says its own"],
)
def test_a_node_selector_that_a_cluster_gives_to_all(
    placed: dict[str, tuple[dict[str, str], dict[str, str]]], settled: bool
) -> None:
    things = objects(nodes(a=1, b=1))
    for namespace, (on_pods, asked) in placed.items():
        meta = {"name": namespace, "annotations": OWN_SELECTOR if namespace.startswith("openshift") else {}}
        made = objects(replica_set("web", namespace=namespace).placed({"a-0": 1}))
        for one in made:
            if one["kind"] == "Pod":
                one["spec"]["nodeSelector"] = on_pods
            elif one["kind"] == "ReplicaSet":
                one["spec"]["template"]["spec"]["nodeSelector"] = asked
        things += [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": meta},
            *(o for o in made if o["kind"] != "Namespace"),
        ]
    for one in things:
        if one["metadata"]["name"] == "a-0":
            one["metadata"]["labels"] |= PAIR
    cluster = snapshot_of(things)
    pod = next(p for p in cluster.pods if p.namespace == "default")
    owner = cluster.owner_of(pod.namespace, pod.owner)
    assert owner is not None
    assert bool(Replacements(cluster).of(pod.template, owner).unsettled) is not settled


def younger(change: Any, *beside: Any, at_the_same_time: bool = False) -> Any:
    """What is planned for web (3, 0; zone b has room for 500m a node), of whose pods the last one differs."""
    things = objects(
        *(node(f"{z}-{i}").zone(z).cpu(cpu) for z, cpu in (("a", "8"), ("b", "500m")) for i in range(2)),
        *beside,
        deployment("web").spread("zone").requests(cpu="200m").placed({"a-0": 2, "a-1": 1}),
    )
    last = [o for o in things if o["kind"] == "Pod"][-1]
    change(last["spec"])
    last["metadata"]["labels"] |= last["spec"].pop("labels", {})
    if not at_the_same_time:
        last["metadata"]["creationTimestamp"] = "2026-03-01T00:00:00Z"
    return plan(snapshot_of(things))


def more(cpu: str) -> Any:
    return lambda spec: spec["containers"].append(
        {"name": "proxy", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    )


def test_a_younger_pod_shows_what_admission_gives_new_ones() -> None:
    moves = younger(more("100m")).moves
    assert [(m.certain, m.replacement.requests["cpu"]) for m in moves] == [(True, 300)]
    full = younger(more("400m"))
    assert not full.moves, "600m find no node"
    assert {b.reason.code for b in full.blocked} == {ReasonCode.NO_FEASIBLE_NODE}


def test_a_younger_pod_that_takes_less_shows_how_small_the_next_one_may_be() -> None:
    (move,) = younger(lambda spec: spec["containers"][0]["resources"]["requests"].update(cpu="150m")).moves
    assert move.replacement.requests["cpu"] == 200
    assert move.replacement.may_lack == {"cpu": 50}


def test_one_that_is_as_old_shows_nothing() -> None:
    found = younger(more("400m"), at_the_same_time=True)
    assert [m.replacement.requests["cpu"] for m in found.moves] == [200]


def test_constraints_into_which_a_newer_api_server_has_merged_labels_are_no_others() -> None:
    """Rule: pkg/registry/core/pod/strategy.go, of 1.34: matchLabelKeys are merged into the selector."""
    (keyed,) = spread(1, matchLabelKeys=["pod-template-hash"])
    things = objects(
        *nodes(a=2, b=2),
        deployment("web").spread("zone", match_label_keys=("pod-template-hash",)).placed({"a-0": 5}),
    )
    last = [o for o in things if o["kind"] == "Pod"][-1]
    last["metadata"]["creationTimestamp"] = "2026-03-01T00:00:00Z"
    its = [last["metadata"]["labels"]["pod-template-hash"]]
    keyed["labelSelector"]["matchExpressions"] = [
        {"key": "pod-template-hash", "operator": "In", "values": its}
    ]
    last["spec"]["topologySpreadConstraints"] = [keyed]
    moves = plan(snapshot_of(things)).moves
    assert [m.certain for m in moves] == [True, True]


OF_WEBHOOKS = {
    "a node selector": {"nodeSelector": {"pool": "x"}},
    "another scheduler": {"schedulerName": "other"},
    "affinity": {"affinity": anti("web")},
    "a toleration": {"tolerations": [{"key": "x", "operator": "Exists"}]},
    "a host port": {"containers": [{**container("200m")[0], "ports": [{"containerPort": 1, "hostPort": 1}]}]},
    "a constraint less": {"topologySpreadConstraints": None},
}


@pytest.mark.parametrize("what", OF_WEBHOOKS)
def test_a_pod_stays_that_differs_from_a_younger_one(what: str) -> None:
    found = younger(lambda spec: spec.update(OF_WEBHOOKS[what]))
    older = [b.reason for b in found.blocked if "treats pods differently" in b.reason.message]
    assert older
    assert not any(m.pod.name.endswith(("0", "1")) for m in found.moves)


def test_what_older_pods_have_of_affinity_and_a_younger_one_lacks_may_not_come_again() -> None:
    web = deployment("web").spread("zone").placed({f"a-{i}": 1 for i in range(4)})
    things = patched("Pod", {"spec": {"affinity": anti("web")}}, nodes(a=4, b=4), web)
    for kind in ("ReplicaSet", "Deployment"):
        things = patched(kind, {"spec": {"template": {"spec": {"affinity": anti("web")}}}}, *things)
    assert plan(snapshot_of(things)).moves
    last = [o for o in things if o["kind"] == "Pod"][-1]
    del last["spec"]["affinity"]
    last["metadata"]["creationTimestamp"] = "2026-03-01T00:00:00Z"
    assert {m.pod.name for m in plan(snapshot_of(things)).moves} <= {last["metadata"]["name"]}


@pytest.mark.parametrize("selects", [True, False])
def test_a_label_that_a_younger_pod_was_given_counts_where_something_selects_by_it(selects: bool) -> None:
    gates = [
        pod(f"gate-{i}")
        .on(f"b-{i}")
        .requests(cpu="1m")
        .away_from("hostname", **{"mesh" if selects else "x": "v2"})
        for i in range(2)
    ]
    found = younger(lambda spec: spec.update(labels={"mesh": "v2"}), *gates)
    assert bool(found.moves) is not selects


SANDBOX = {"pool": "sandbox"}
KATA: Json = {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}


@pytest.mark.parametrize(
    ("classes", "asked", "said"),
    [
        ([], {}, "its RuntimeClass was not read"),
        ([KATA | {"scheduling": {"nodeSelector": SANDBOX}}], {}, ""),
        ([KATA | {"scheduling": {"nodeSelector": {"pool": "x"}}}], SANDBOX, "RuntimeClass kata has another"),
        ([KATA | {"metadata": {"name": "other"}}], SANDBOX, "names RuntimeClass kata, which does not exist"),
    ],
    ids=["not read", "it sends them there", "the template contradicts it", "it is gone"],
)
def test_pods_that_a_runtime_class_of_the_file_sends_to_nodes_of_its_own(
    classes: list[Json], asked: dict[str, str], said: str
) -> None:
    there = (*(node(f"{z}-0").zone(z).label("pool", "sandbox") for z in "ab"), node("c-0").zone("c"))
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    things = patched("Pod", {"spec": {"runtimeClassName": "kata", "nodeSelector": SANDBOX}}, *there, web)
    for kind in ("ReplicaSet", "Deployment"):
        template = {"spec": {"template": {"spec": {"runtimeClassName": "kata", "nodeSelector": asked}}}}
        things = patched(kind, template, *things)
    found = plan(snapshot_of([*things, *classes]))
    assert len(found.moves) == (0 if said else 2)
    assert all(said in b.reason.message for b in found.blocked)


STORAGE, DRIVER = "storage.k8s.io/v1", "csi.example"
ALLOWED = {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]}


def with_scratch(zone: str, of_class: Json, *, room: str = "") -> list[Json]:
    """Four pods in zone a, each with an ephemeral volume that is reached from `zone`, or from everywhere.
    `room`: the zones in which the driver has any, where it says so."""
    scratch = {"volumes": [{"name": "scratch", "ephemeral": {}}]}
    there = (node(f"{z}-0").zone(z) for z in "ab")
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    allowed = {"rebalancer.io/evict": "true"}
    things = patched("Pod", {"spec": scratch, "metadata": {"annotations": allowed}}, *there, web)
    for kind in ("ReplicaSet", "Deployment"):
        things = patched(kind, {"spec": {"template": {"spec": scratch}}}, *things)
    for one in [o["metadata"] for o in things if o["kind"] == "Pod"]:
        name = f"{one['name']}-scratch"
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": one["name"],
            "uid": one["uid"],
            "controller": True,
        }
        asked = claim(name, name).build()
        asked[0]["metadata"]["ownerReferences"] = [owner]
        things += [*asked, *volume(name, name, zone=zone).build()]
    waits = {"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}
    spec = {"attachRequired": True, "storageCapacity": bool(room)}
    return [
        *things,
        {"apiVersion": STORAGE, "kind": "StorageClass", "metadata": {"name": "zonal"}, **waits, **of_class},
        {"apiVersion": STORAGE, "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": spec},
        *(
            {
                "apiVersion": STORAGE,
                "kind": "CSIStorageCapacity",
                "metadata": {"name": z, "namespace": "kube-system"},
                "storageClassName": "zonal",
                "capacity": "9Gi",
                "nodeTopology": {"matchLabels": {ZONE: z}},
            }
            for z in room
        ),
    ]


def test_an_ephemeral_volume_ends_with_its_pod_and_the_replacement_gets_another() -> None:
    """A disk of one zone keeps nobody there whose replacement gets a new one."""
    found = plan(snapshot_of(with_scratch("a", {})))
    assert [(m.certain, m.destinations) for m in found.moves] == [(True, ("b-0",))] * 2


@pytest.mark.parametrize(
    ("limited", "stays"),
    [
        ("persistentvolumeclaims", True),
        ("count/persistentvolumeclaims", True),
        ("requests.storage", True),
        ("zonal.storageclass.storage.k8s.io/requests.storage", True),
        ("zonal.storageclass.storage.k8s.io/persistentvolumeclaims", True),
        ("requests.ephemeral-storage", False),
        ("count/secrets", False),
    ],
)
def test_pods_stay_whose_new_ephemeral_volumes_a_quota_may_refuse(limited: str, stays: bool) -> None:
    """Whatever it has free: how large the new claim is is not read."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {limited: "99Gi"}},
        "status": {"hard": {limited: "99Gi"}, "used": {limited: "0"}},
    }
    found = plan(snapshot_of([*with_scratch("a", {}), quota]))
    assert {b.reason.code for b in found.blocked} == ({ReasonCode.QUOTA} if stays else set())
    assert bool(found.moves) is not stays


@pytest.mark.parametrize(
    ("things", "code"),
    [
        (with_scratch("", ALLOWED), ReasonCode.PINNED_BY_VOLUME),
        (with_scratch("", {"volumeBindingMode": "Immediate"}), ReasonCode.PINNED_BY_VOLUME),
        (with_scratch("", {}, room="a"), ReasonCode.PINNED_BY_VOLUME),
        (with_scratch("", {}, room="ab"), ReasonCode.NOT_CERTAIN),
    ],
    ids=["made elsewhere", "made at once, anywhere", "no room", "room for who comes first"],
)
def test_pods_stay_whose_new_ephemeral_volume_may_not_be_had_elsewhere(
    things: list[Json], code: ReasonCode
) -> None:
    """That the old one is reached from everywhere says nothing of it."""
    found = plan(snapshot_of(things))
    assert not found.moves
    assert {b.reason.code for b in found.blocked} == {code}
