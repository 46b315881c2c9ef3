"""What admission makes of new pods now, where the pods that are there were made before it: whole cycles."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.runtime.live.once import Reviewed, ReviewedEviction
from tests.sandbox.cycle.limits.test_owners import later, reasons
from tests.support.build import deployment, node, nodes, objects, workload
from tests.support.runs.one_cycle import Run
from tests.support.sandbox import ApiServer, Reply
from tests.support.scheduler.plain import Json
from tests.support.servers.hands import Hands

WEB = deployment("web").spread("zone", 1).requests(cpu="100m", memory="64Mi").placed({"a-0": 4})
SKEWED = (node("a-0").zone("a").label("pool", "old"), node("b-0").zone("b").label("pool", "new"), WEB)
KEY = "scheduler.alpha.kubernetes.io/node-selector"
SELECTORS = [KEY, "openshift.io/node-selector"]
TOLERATIONS = "scheduler.alpha.kubernetes.io/defaultTolerations"
ALLOWED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
GPU = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}


def specs(made: list[Json], *, pods: bool = True, templates: bool = True) -> list[Json]:
    found = [o["spec"] for o in made if o["kind"] == "Pod" and pods]
    return found + [
        o["spec"]["template"]["spec"] for o in made if "template" in o.get("spec", {}) and templates
    ]


def annotate(server: ApiServer, **said: str) -> None:
    server.store.modify("Namespace", "default", None, lambda o: o["metadata"].update(annotations=dict(said)))


def cycle(made: list[Json], change: Callable[[ApiServer], object], when: str = "before the plan") -> Run:
    """A cycle over these objects, with a change before the plan or between it and the look."""
    with ApiServer(made) as server:
        if when == "before the plan":
            change(server)
        after = lambda n: change(server) if n == 1 and when != "before the plan" else None  # noqa: E731
        return Run(server, time=later(), after_plan=after)


def says(run: Run) -> str:
    """Why its pods stay."""
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.REPLACEMENT_REFUSED}
    (said,) = {b.reason.message for b in run.story.plans[-1].blocked}
    return said


def held(run: Run) -> set[ReasonCode]:
    """Why moves of its plans were not made."""
    return {o.reason.code for o in run.story.outcomes if o.reason is not None}


WHEN = pytest.mark.parametrize("when", ["before the plan", "after it"])


@WHEN
@pytest.mark.parametrize("key", SELECTORS)
@pytest.mark.parametrize("value", ["pool=old", "pool = old,", "pool in (old)"])
def test_a_node_selector_of_the_namespace_that_the_pods_lack(key: str, value: str, when: str) -> None:
    run = cycle(objects(SKEWED), lambda s: annotate(s, **{key: value}), when)
    assert key in says(run)


@pytest.mark.parametrize(
    ("has", "asks", "value", "evicted"),
    [
        ("all", None, "pool=all", 2),
        ("all", "all", "pool=all", 2),
        ("all", None, "pool=old", 0),
        ("all", "all", "pool=old", 0),
        (None, None, "", 2),
    ],
)
def test_pods_that_have_it_go_and_others_stay(
    has: str | None, asks: str | None, value: str, evicted: int
) -> None:
    made = objects(
        node("a-0").zone("a").label("pool", "all"), node("b-0").zone("b").label("pool", "all"), WEB
    )
    for spec in specs(made, templates=asks is not None):
        spec["nodeSelector"] = {"pool": has} if has else {}
    run = cycle(made, lambda s: annotate(s, **{KEY: value}))
    assert run.evictions() == evicted


def test_a_node_selector_that_no_longer_comes_from_the_namespace_makes_no_certain_move() -> None:
    made = objects(
        node("a-0").zone("a").label("pool", "all"), node("b-0").zone("b").label("pool", "all"), WEB
    )
    for spec in specs(made, templates=False):
        spec["nodeSelector"] = {"pool": "all"}
    run = cycle(made, lambda s: annotate(s, **{KEY: ""}))
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.NOT_CERTAIN}


@pytest.mark.parametrize(
    ("third", "certain"),
    [(node("c-0").zone("c").cpu("50m"), False), (node("c-0").zone("c").label("pool", "all"), True)],
    ids=["a node lacks it", "all nodes have it"],
)
def test_a_node_selector_of_which_nobody_says_where_it_comes_from(third: Any, certain: bool) -> None:
    """An annotation that the namespace had, or a webhook."""
    made = objects(
        node("a-0").zone("a").label("pool", "all"), node("b-0").zone("b").label("pool", "all"), third, WEB
    )
    for spec in specs(made, templates=False):
        spec["nodeSelector"] = {"pool": "all"}
    run = cycle(made, lambda _: None)
    assert (run.evictions() > 0) is certain
    assert certain or reasons(run) == {ReasonCode.NOT_CERTAIN}


@pytest.mark.parametrize(("taint", "certain"), [("gpu", False), ("other", True)])
def test_a_toleration_of_which_nobody_says_where_it_comes_from(taint: str, certain: bool) -> None:
    nowhere = node("c-0").zone("b").cpu("10m").taint(taint)
    made = objects(node("a-0").zone("a"), node("b-0").zone("b"), nowhere, WEB)
    for spec in specs(made, templates=False):
        spec["tolerations"] = [GPU]
    run = cycle(made, lambda _: None)
    assert (run.evictions() > 0) is certain
    assert certain or reasons(run) == {ReasonCode.NOT_CERTAIN}


def test_one_that_is_taken_away_after_the_plan_ends_it() -> None:
    made = objects(
        node("a-0").zone("a").label("pool", "all"), node("b-0").zone("b").label("pool", "all"), WEB
    )
    for spec in specs(made, templates=False):
        spec["nodeSelector"] = {"pool": "all"}
    with ApiServer(made) as server:
        annotate(server, **{KEY: "pool=all"})
        run = Run(server, time=later(), after_plan=lambda n: annotate(server) if n == 1 else None)
    assert ReasonCode.CHANGED_SINCE_PLAN in held(run)


@WHEN
@pytest.mark.parametrize(
    ("key", "value"),
    [(TOLERATIONS, [GPU]), (TOLERATIONS, "nonsense"), (ALLOWED, [{**GPU, "effect": "NoExecute"}])],
)
def test_tolerations_that_the_namespace_adds_or_forbids(key: str, value: Any, when: str) -> None:
    made = objects(SKEWED)
    for spec in specs(made) if key == ALLOWED else ():
        spec["tolerations"] = [GPU]
    run = cycle(made, lambda s: annotate(s, **{key: json.dumps(value)}), when)
    assert "annotation" in says(run)


def test_pods_that_tolerate_what_the_namespace_says_go() -> None:
    made = objects(SKEWED)
    for spec in specs(made, templates=False):
        spec["tolerations"] = [GPU]
    said = json.dumps([GPU])
    assert cycle(made, lambda s: annotate(s, **{TOLERATIONS: said, ALLOWED: said})).evictions() == 2


def kata(cpu: str = "", **scheduling: Any) -> Json:
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}}
    over = {"overhead": {"podFixed": {"cpu": cpu}}} if cpu else {}
    return {**made, "handler": "kata", **over, **({"scheduling": scheduling} if scheduling else {})}


def on_kata(overhead: str = "") -> list[Json]:
    made = objects(SKEWED)
    for spec in specs(made):
        spec["runtimeClassName"] = "kata"
    for spec in specs(made, templates=False) if overhead else ():
        spec["overhead"] = {"cpu": overhead}
    return made


RUNS: dict[str, tuple[Json, str, int]] = {
    "as ever": (kata("1"), "1", 2),
    "raised": (kata("2"), "1", 2),
    "raised beyond every node": (kata("64"), "1", 0),
    "come anew": (kata("64"), "", 0),
    "lowered": (kata(), "1", 2),
    "on other nodes": (kata("1", nodeSelector={"pool": "old"}), "1", 0),
}


@pytest.mark.parametrize("case", RUNS)
def test_the_overhead_and_nodes_of_a_runtime_class_that_changed_after_the_pods_were_made(case: str) -> None:
    now, had, evicted = RUNS[case]
    with ApiServer([*on_kata(had), now]) as server:
        run = Run(server, time=later())
    assert run.evictions() == evicted
    asked = {m.replacement.requests["cpu"] for m in run.story.plans[0].moves}
    takes = 1000 * int(now.get("overhead", {}).get("podFixed", {}).get("cpu", 0))
    assert asked == ({100 + takes} if evicted else set())


SANDBOX = {"pool": "sandbox"}


@pytest.mark.parametrize(("known", "approved"), [(True, False), (False, False), (True, True)])
def test_pods_that_a_runtime_class_sends_to_nodes_of_its_own(known: bool, approved: bool) -> None:
    """Their class has to be known before anything is planned: without it, no move of them is certain."""
    made = objects(
        *(node(f"{z}-0").zone(z).label("pool", "sandbox") for z in "ab"), node("c-0").zone("c"), WEB
    )
    for spec in specs(made):
        spec["runtimeClassName"] = "kata"
    for spec in specs(made, templates=False):
        spec["nodeSelector"] = SANDBOX
    with ApiServer([*made, kata(nodeSelector=SANDBOX)]) as server:
        if not known:
            server.faults.add(Reply(403), verb="get", resource="runtimeclasses")
        metas = [pod["metadata"] for pod in server.store.list("Pod")]
        every = Reviewed(tuple(ReviewedEviction(m["namespace"], m["name"], m["uid"]) for m in metas))
        hands = Hands(server, choose=lambda *_: "b-0")
        run = Run(server, hands=hands, time=later(), reviewed=every if approved else None)
    assert run.evictions() == (2 if known else 0)
    said = {b.reason.message for b in run.story.plans[0].blocked}
    assert any("its RuntimeClass was not read" in one for one in said) is not known


def test_a_quota_counts_the_overhead_that_the_runtime_class_has_now() -> None:
    status = {"hard": {"requests.cpu": "7"}, "used": {"requests.cpu": "4400m"}}
    meta = {"name": "small", "namespace": "default"}
    small = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "status": status}
    made = [*on_kata("1"), kata("3"), small]
    with ApiServer(made) as server:
        run = Run(server, time=later())
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.QUOTA}


@pytest.mark.parametrize(
    "now", [kata("64"), kata("1", nodeSelector={"pool": "old"})], ids=["overhead", "nodes"]
)
def test_a_runtime_class_that_is_changed_after_the_plan(now: Json) -> None:
    with ApiServer([*on_kata("1"), kata("1")]) as server:

        def change(plans: int) -> None:
            if plans == 1:
                server.store.modify("RuntimeClass", "kata", None, lambda o: o.update(now))

        run = Run(server, time=later(), after_plan=change)
    assert run.evictions() == 0
    assert ReasonCode.REPLACEMENT_REFUSED in held(run)


def has_handlers(server: ApiServer, *names: str) -> None:
    listed = {"runtimeHandlers": [{"name": name} for name in names]}
    change = lambda o: o["status"].update(listed)  # noqa: E731
    server.store.modify("Node", "b-0", None, change, subresource="status")


@WHEN
@pytest.mark.parametrize(("names", "evicted"), [(("", "runc"), 0), (("", "runc", "kata"), 2)])
def test_a_node_whose_runtime_lacks_the_handler_of_the_class(
    names: tuple[str, ...], evicted: int, when: str
) -> None:
    run = cycle([*on_kata(), kata()], lambda s: has_handlers(s, *names), when)
    assert run.evictions() == evicted
    if not evicted:
        assert reasons(run) == {ReasonCode.NODE_UNFIT}


@WHEN
@pytest.mark.parametrize(("architecture", "evicted"), [("arm64", 0), ("amd64", 2)])
def test_a_node_of_an_architecture_on_which_the_image_was_not_seen_to_run(
    architecture: str, evicted: int, when: str
) -> None:
    key = "kubernetes.io/arch"
    here = node("a-0").zone("a").label(key, "amd64")
    change = lambda o: o["metadata"]["labels"].update({key: architecture})  # noqa: E731
    run = cycle(
        objects(here, node("b-0").zone("b"), WEB), lambda s: s.store.modify("Node", "b-0", None, change), when
    )
    assert run.evictions() == evicted
    if not evicted:
        assert reasons(run) == {ReasonCode.NODE_UNFIT}


def limits(**item: Any) -> Json:
    meta = {"name": "defaults", "namespace": "default"}
    spec = {"limits": [{"type": "Container", **item}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": spec}


def sized(pod: Json, template: Json) -> list[Json]:
    made = objects(SKEWED)
    for which, resources in (({"templates": False}, pod), ({"pods": False}, template)):
        for spec in specs(made, **which):
            spec["containers"][0]["resources"] = resources
    return made


BELOW = "less cpu as its limit than it requests"
ASKS = {"requests": {"cpu": "100m"}}
RANGES: dict[str, tuple[Json, Json, Json, str]] = {
    "a default limit below the request": (ASKS, ASKS, {"default": {"cpu": "50m"}}, BELOW),
    "one that was higher when the pods were made": (
        {**ASKS, "limits": {"cpu": "200m"}}, ASKS, {"default": {"cpu": "50m"}}, BELOW,
    ),
    "a default request that was lower then": (
        ASKS, {}, {"defaultRequest": {"cpu": "2"}, "default": {"cpu": "2"}}, "ask for cpu",
    ),
    "a default limit that was lower then": (
        {**ASKS, "limits": {"cpu": "200m"}}, ASKS, {"default": {"cpu": "2"}}, "ask for cpu",
    ),
}  # fmt: skip


@WHEN
@pytest.mark.parametrize("case", RANGES)
def test_a_limit_range_that_is_younger_than_the_pods(case: str, when: str) -> None:
    pod, template, item, said = RANGES[case]
    made = limits(**item)
    assert said in says(cycle(sized(pod, template), lambda s: s.store.create(made), when))


def by_ranges(pod: Json, said: str, template: Json | None = None) -> list[Json]:
    """As LimitRanger leaves pods whose template states nothing, or this."""
    made = sized(pod, template or {})
    for o in made:
        if o["kind"] == "Pod":
            o["metadata"].setdefault("annotations", {})["kubernetes.io/limit-ranger"] = said
    return made


GIVEN = {**ASKS, "limits": {"cpu": "200m"}}
SAID = "LimitRanger plugin set: cpu request for container c; cpu limit for container c"


def test_one_by_which_the_pods_were_made_keeps_nothing() -> None:
    item = {"defaultRequest": {"cpu": "100m"}, "default": {"cpu": "200m"}}
    made = by_ranges(GIVEN, SAID)
    assert cycle(made, lambda s: s.store.create(limits(**item))).evictions() == 2


PROXY = {"name": "proxy", "image": "p", "resources": {"requests": {"cpu": "10m"}}}
GAVE_PROXY = "LimitRanger plugin set: cpu request for container proxy"


@pytest.mark.parametrize(
    ("said", "given", "evictions"),
    [
        (GAVE_PROXY, None, 0),
        (GAVE_PROXY, {"cpu": "10m"}, 2),
        (GAVE_PROXY.replace("proxy", "init"), None, 2),
    ],
    ids=["a LimitRange that is gone", "one that is there", "the webhook itself"],
)
def test_what_gave_a_container_that_a_webhook_adds_its_request(
    said: str, given: Json | None, evictions: int
) -> None:
    made = by_ranges(ASKS, said, ASKS)
    for o in made:
        if o["kind"] == "Pod":
            o["spec"]["containers"].append(PROXY)
    ranges = [limits(defaultRequest=given)] if given else []
    assert cycle([*made, *ranges], lambda _: None).evictions() == evictions


OTHERS: dict[str, tuple[str, Json | None, int]] = {
    "is gone": (SAID, None, 0),
    "is gone, said at length": (SAID[:64] + "x" * 300, None, 0),
    "is gone, said of a container that came later": (SAID.replace("container c", "container proxy"), None, 0),
    "is gone, and nothing is said": ("", None, 2),
    "gives memory, and a webhook cpu": (SAID.replace("cpu", "memory"), None, 2),
    "gives a smaller request": (SAID, {"defaultRequest": {"cpu": "50m"}, "default": {"cpu": "200m"}}, 0),
    "gives a smaller limit": (SAID, {"defaultRequest": {"cpu": "100m"}, "default": {"cpu": "150m"}}, 2),
    "gives no limit": (SAID, {"defaultRequest": {"cpu": "100m"}}, 0),
}


@WHEN
@pytest.mark.parametrize(("said", "item", "evictions"), OTHERS.values(), ids=OTHERS)
def test_one_by_which_the_pods_were_made_and_that(
    said: str, item: Json | None, evictions: int, when: str
) -> None:
    def change(server: ApiServer) -> None:
        server.store.delete("LimitRange", "defaults", "default")
        if item is not None:
            server.store.create(limits(**item))

    then = limits(defaultRequest={"cpu": "100m"}, default={"cpu": "200m"})
    run = cycle([*by_ranges(GIVEN, said), then], change, when)
    assert evictions or "gave the pod cpu, and none gives its container c so much now" in says(run)
    assert run.evictions() == evictions


TWO: dict[str, tuple[Json, str, str, int]] = {
    "give the same": ({}, "100m", "100m", 2),
    "of which the second gives more": ({}, "100m", "2", 0),
    "of which the first gives more": ({}, "2", "100m", 0),
    "of which the second gives less": ({}, "100m", "50m", 0),
    "of which the first gives less": ({}, "50m", "100m", 0),
    "of which neither is asked, as the template says it": (ASKS, "50m", "2", 2),
}


@WHEN
@pytest.mark.parametrize(("template", "first", "second", "evictions"), TWO.values(), ids=TWO)
def test_two_of_which_the_api_server_may_take_either_first(
    template: Json, first: str, second: str, evictions: int, when: str
) -> None:
    def change(server: ApiServer) -> None:
        server.store.delete("LimitRange", "defaults", "default")
        for name, cpu in (("a", first), ("z", second)):
            made = limits(defaultRequest={"cpu": cpu})
            server.store.create({**made, "metadata": {**made["metadata"], "name": name}})

    then = limits(defaultRequest={"cpu": "100m"})
    run = cycle([*by_ranges(ASKS, SAID, template), then], change, when)
    assert evictions or "which is taken is not known" in says(run)
    assert run.evictions() == evictions


def ranked(**stated: Any) -> list[Json]:
    """Pods of a class `gold` that gave them priority 5, and what their template states itself."""
    made = objects(SKEWED)
    for spec in specs(made):
        spec["priorityClassName"] = "gold"
    for spec in specs(made, templates=False):
        spec["priority"] = 5
    for spec in specs(made, pods=False):
        spec |= stated
    return [*made, gold(5)]


def gold(value: int, policy: str = "PreemptLowerPriority") -> Json:
    meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}}
    return {**meta, "value": value, "preemptionPolicy": policy}


def made_anew(server: ApiServer, now: Json) -> None:
    server.store.delete("PriorityClass", "gold", None)
    server.store.create(now)


@WHEN
@pytest.mark.parametrize("now", [gold(7), gold(5, "Never")], ids=["value", "preemptionPolicy"])
def test_a_priority_class_that_was_made_again_with_another(now: Json, when: str) -> None:
    run = cycle(ranked(), lambda s: made_anew(s, now), when)
    if when == "before the plan":
        moves = run.story.plans[0].moves
        assert {(m.replacement.priority, m.replacement.preempts) for m in moves} == {
            (now["value"], now["preemptionPolicy"] != "Never")
        }
    else:
        assert ReasonCode.REPLACEMENT_REFUSED in held(run)


@WHEN
@pytest.mark.parametrize(
    "stated", [{"priority": 5}, {"preemptionPolicy": "PreemptLowerPriority"}], ids=lambda s: str(*s)
)
def test_a_template_that_states_what_its_priority_class_gave_before(stated: Json, when: str) -> None:
    run = cycle(ranked(**stated), lambda s: made_anew(s, gold(7, "Never")), when)
    assert f"states {next(iter(stated))}" in says(run)


def finalized(kind: str, *, allowed: bool = False) -> list[Json]:
    made = objects(nodes(a=1, b=1), workload("db", kind=kind).spread("zone", 1).placed({"a-0": 4}))
    for o in made:
        if o["kind"] == "Pod":
            o["metadata"]["finalizers"] = ["example.com/backup"]
            o["metadata"]["annotations"] = {"rebalancer.io/evict": "true"} if allowed else {}
    return made


@pytest.mark.parametrize(
    ("kind", "allowed", "goes"),
    [("StatefulSet", False, False), ("StatefulSet", True, True), ("ReplicaSet", False, True)],
)
def test_a_pod_with_a_finalizer_whose_owner_waits_for_its_end(kind: str, allowed: bool, goes: bool) -> None:
    with ApiServer(finalized(kind, allowed=allowed)) as server:
        run = Run(server, time=later())
    assert bool(run.evictions()) is goes
    if not goes:
        (said,) = {b.reason.message for b in run.story.plans[-1].blocked}
        assert "finalizer example.com/backup" in said


def test_a_finalizer_that_comes_after_the_plan() -> None:
    made = objects(nodes(a=1, b=1), workload("db", kind="StatefulSet").spread("zone", 1).placed({"a-0": 4}))
    with ApiServer(made) as server:

        def change(plans: int) -> None:
            for pod in server.store.list("Pod") if plans == 1 else ():
                server.store.modify(
                    "Pod",
                    pod["metadata"]["name"],
                    "default",
                    lambda o: o["metadata"].update(finalizers=["x.io/y"]),
                )

        run = Run(server, time=later(), after_plan=change)
    assert run.evictions() == 0
