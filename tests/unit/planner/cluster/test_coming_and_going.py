"""Which nodes come, go, or may go, by what their autoscaler says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.node import OUTDATED_TAINTS, ails, is_leaving, is_starting, is_uninitialized, troubles
from rebalancer.model.quantity import rfc3339
from rebalancer.model.snapshot import Snapshot, candidates
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.evictable import next_change
from rebalancer.policy.history.waits import is_wait
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.observers.neighbours import neighbours
from tests.support.build import (
    NOW,
    ago,
    daemon_set,
    node,
    node_claim,
    node_pool,
    nodes,
    objects,
    pod,
    snapshot,
    workload,
)
from tests.support.scheduler.plain import Json
from tests.unit.policy.test_vertical_autoscalers import vpa

POOL = ("karpenter.sh/nodepool", "default")
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def made(*, taint: str = "", **labels: str) -> Any:
    builder = node("n")
    for key, value in labels.items():
        builder = builder.label(f"karpenter.sh/{key}", value)
    return snapshot(builder.taint(taint) if taint else builder).nodes[0]


def deleted() -> Any:
    (found,) = node("n").build()
    found["metadata"]["deletionTimestamp"] = "2026-11-23T08:00:00Z"
    return snapshot(found).nodes[0]


def conditioned(type_: str, status: str) -> Any:
    (found,) = node("n").build()
    found["status"]["conditions"] = [{"type": type_, "status": status}]
    return snapshot(found).nodes[0]


TABLE = [
    ("an ordinary node", made(), (False, False)),
    ("Karpenter removes it", made(taint="karpenter.sh/disrupted"), (True, False)),
    ("cluster-autoscaler removes it", made(taint="ToBeDeletedByClusterAutoscaler"), (True, False)),
    ("Karpenter has not registered it", made(taint="karpenter.sh/unregistered"), (False, True)),
    ("Karpenter has not initialized it", made(nodepool="default"), (False, True)),
    ("Karpenter has", made(nodepool="default", initialized="true"), (False, False)),
    ("its cloud has not set it up", made(taint="node.cloudprovider.kubernetes.io/uninitialized"),
     (False, True)),
    ("a startup taint", made(taint="startup-taint.cluster-autoscaler.kubernetes.io/gpu"),
     (False, True)),
    ("it is drained", conditioned("DrainInProgress", "True"), (True, False)),
    ("its maintenance is planned", conditioned("MaintenancePlanned", "True"), (True, False)),
    ("its maintenance is over", conditioned("MaintenanceInProgress", "False"), (False, False)),
    ("it is being deleted", deleted(), (True, False)),
    ("it was put out of service", made(taint="node.kubernetes.io/out-of-service"), (True, False)),
    ("it may be removed unless pods come", made(taint=CANDIDATE), (False, False)),
]  # fmt: skip


@pytest.mark.parametrize(("it", "is_"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_a_node(it: Any, is_: tuple[bool, bool]) -> None:
    assert (is_leaving(it), is_starting(it) or is_uninitialized(it)) == is_


FAILING = [
    ("an ordinary node", made(), False),
    ("it is not Ready", conditioned("Ready", "Unknown"), True),
    ("its disk is full", conditioned("DiskPressure", "True"), True),
    ("it has no network", conditioned("NetworkUnavailable", "True"), True),
    ("its memory is short: the kubelet evicts", conditioned("MemoryPressure", "True"), True),
]


@pytest.mark.parametrize(("it", "failing"), [f[1:] for f in FAILING], ids=[f[0] for f in FAILING])
def test_nothing_starts_on(it: Any, failing: bool) -> None:
    assert bool(ails(it)) is failing


@pytest.mark.parametrize(("type_", "status"), [("Ready", "Unknown"), ("NetworkUnavailable", "True")])
def test_no_pod_that_tolerates_everything_is_sent_to_a_node_where_nothing_starts(
    type_: str, status: str
) -> None:
    (empty,) = node("b-0").zone("b").build()
    empty["status"]["conditions"] = [{"type": type_, "status": status}]
    web = workload("web").spread("zone", 1).tolerates("").placed({"a-0": 3})
    made = plan(snapshot(node("a-0").zone("a"), empty, web))
    assert made.excess == 2
    assert not made.moves
    assert {b.reason.code.value for b in made.blocked} == {"node-not-ready"}


SAID = {
    "KernelDeadlock": "True",
    "ReadonlyFilesystem": "True",
    "FrequentContainerdRestart": "True",
    "VMEventScheduled": "True",
    "example.com/NotReady": "True",
    "ContainerRuntimeReady": "False",
    "example.com/GPUHealthy": "False",
    "SufficientIP": "False",
}
"""What node-problem-detector, AKS, EKS, ACK and others say of nodes that are not well."""
IDLE = ("EtcdIsVoter", "DeprecatedUsingV1Alpha2Cri", "Swap", "GPUDriverInstalled")


@pytest.mark.parametrize(("type_", "bad"), SAID.items(), ids=SAID)
def test_a_condition_of_anybody_says_that_something_is_wrong(type_: str, bad: str) -> None:
    good = "True" if bad == "False" else "False"
    assert troubles(conditioned(type_, bad)) == {f"{type_}={bad}"}
    assert not troubles(conditioned(type_, good)) | troubles(conditioned(type_, "Unknown"))


@pytest.mark.parametrize("type_", [*IDLE, "Ready", "MaintenancePlanned"])
@pytest.mark.parametrize("status", ["True", "False"])
def test_other_conditions_are_no_matter_of_health_or_known_by_themselves(type_: str, status: str) -> None:
    assert not troubles(conditioned(type_, status))


def in_zones(*zones: str, ill: str) -> Any:
    for i, zone in enumerate(zones):
        (found,) = node(f"{zone}-{i}").zone(zone).build()
        if zone in ill:
            found["status"]["conditions"].append({"type": "KernelDeadlock", "status": "True"})
        yield found


def test_nobody_is_sent_to_a_node_that_is_not_well_and_the_reason_names_both() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 3})
    made = plan(snapshot(*in_zones("a", "b", ill="b"), web))
    assert not made.moves
    [said] = {b.reason.message for b in made.blocked}
    assert "b-1" in said
    assert "KernelDeadlock=True" in said


def test_what_most_nodes_say_alike_says_nothing_of_one() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 3})
    assert plan(snapshot(*in_zones("a", "b", "b", ill="b"), web)).moves


def joined(
    *agents: str, age: int = 30, status: dict[str, int] | None = None, cpu: str = "4", **selector: str
) -> list[Any]:
    """web crowds zone a, beside an agent on each node; b-0 is so old, so large, and has no agent but these.
    `status`: what the agents' controller says."""
    web = workload("web").requests(cpu="200m").spread("zone", 1).placed({"a-0": 3})
    agent = daemon_set("agent").requests(cpu="200m").placed({"a-0": 1})
    found = objects(node("a-0").zone("a"), node("b-0").zone("b").cpu(cpu), web, agent)
    for o in found:
        if o["kind"] == "DaemonSet":
            o["status"] = {"observedGeneration": 1, **(status or {})}
            if selector:
                o["spec"]["template"]["spec"]["nodeSelector"] = selector
        if o["metadata"]["name"] == "b-0":
            o["metadata"]["creationTimestamp"] = rfc3339(NOW - age)
    of_set = next(o for o in found if o["kind"] == "Pod" and o["metadata"]["name"].startswith("agent"))
    for how in agents:
        found.append(new := deepcopy(of_set))
        new["metadata"] |= {"name": f"agent-{how}", "uid": how}
        new["spec"] |= {"nodeName": "b-0"} if how != "waits" else {"affinity": pinned("b-0")}
        if how == "waits":
            del new["spec"]["nodeName"]
            new["status"] = {"phase": "Pending"}
        if how == "ends":
            new["metadata"]["deletionTimestamp"] = rfc3339(NOW + 30)
        if how == "failed":
            new["status"] = {"phase": "Failed"}
    return found


def pinned(to: str) -> Json:
    """The affinity of a DaemonSet's pod."""
    field = {"key": "metadata.name", "operator": "In", "values": [to]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("things", "moves"),
    [
        (joined(), 0),
        (joined("runs"), 1),
        (joined("ends"), 0),
        (joined("waits"), 1),
        (joined(pool="other"), 1),
    ],
    ids=["to be made", "there", "made again", "made, and waits", "none belongs there"],
)
def test_a_new_node_is_filled_only_once_its_daemons_are_there(things: list[Any], moves: int) -> None:
    """Their controller may be slow when many nodes join; then they would throw out who is there."""
    found = plan(snapshot(things))
    assert len(found.moves) == moves
    if not moves:
        assert {b.reason.code.value for b in found.blocked} == {"node-starting"}
        assert next_change(snapshot(things), PolicyOptions()) == NOW + 90


ONE, BOTH = {"desiredNumberScheduled": 1}, {"desiredNumberScheduled": 2}
ELSEWHERE = ONE | {"numberMisscheduled": 1}
OLD = partial(joined, age=3600, cpu="399m")
LONG_THERE: dict[str, tuple[list[Any], int]] = {
    "its agent is gone, and will be made again": (OLD(status=BOTH), 0),
    "the same, and both have room": (OLD(status=BOTH, cpu="400m"), 1),
    "its agent has failed": (OLD("failed", status=BOTH), 0),
    "its agent ends, as in a rolling update": (OLD("ends", status=BOTH), 0),
    "one ends, and the next one is there": (OLD("ends", "runs", status=BOTH, cpu="600m"), 1),
    "one has failed, and the next one waits": (OLD("failed", "waits", status=BOTH, cpu="400m"), 1),
    "it waits, and both have room": (OLD("waits", status=BOTH, cpu="400m"), 1),
    "it waits, and both have no room": (OLD("waits", status=BOTH), 0),
    "the other node's agent is one too many": (OLD(status=ELSEWHERE), 0),
    "none is wanted there": (OLD(status=ONE), 1),
    "none was, before the set was changed": (OLD(status=ONE | {"observedGeneration": 0}), 0),
    "what is wanted is not said": (OLD(), 0),
    "none belongs there": (OLD(status=BOTH, pool="other"), 1),
}


@pytest.mark.parametrize(("things", "moves"), LONG_THERE.values(), ids=LONG_THERE)
def test_a_node_that_lacks_its_daemon_is_not_filled(things: list[Any], moves: int) -> None:
    """The next one could go nowhere else."""
    found = plan(snapshot(things))
    assert len(found.moves) == moves
    assert bool(found.blocked) is not bool(moves)


def test_what_a_daemon_set_that_is_being_deleted_lacks_does_not_come() -> None:
    things = joined(age=3600, status=BOTH)
    daemons = next(o for o in things if o["kind"] == "DaemonSet")
    daemons["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    assert len(plan(snapshot(things)).moves) == 1


def rolling(
    *webs: str,
    pods: int = 3,
    cpu: str = "2",
    grows: str = "1200m",
    lacks: str = "",
    waits: str = "",
    ends: str = "",
    strategy: str = "RollingUpdate",
    surge: int | str = 0,
    renewed: str = "",
    admitted: Callable[[Json], Json] = lambda o: o,
    more: Sequence[Json] = (),
    **status: int,
) -> Snapshot:
    """Zone a is crowded by each of `webs`, beside an agent of 500m on each node, whose set's template wants
    `grows` by now. c-1 has `cpu`. `status`: what the agents' controller says; on the node `lacks`
    there is no agent, for `waits` one waits, on `ends` it ends, on `renewed` it is new already.
    `admitted`: set and pods, as they are then."""
    crowd = {"a-0": pods, "b-0": pods - 2}
    spread = [workload(w).requests(cpu="1").spread("zone", 1).placed(crowd) for w in webs or ["web"]]
    agent = daemon_set("agent").requests(cpu="500m").placed({f"{z}-{i}": 1 for z in "abc" for i in (0, 1)})
    found = objects(*nodes(a=2, b=2, c=1), *spread, node("c-1").zone("c").cpu(cpu))
    for o in objects(agent):
        if o["kind"] == "DaemonSet":
            o["spec"]["updateStrategy"] = {"type": strategy, "rollingUpdate": {"maxSurge": surge}}
            o["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = grows
            o["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 6, **status}
        elif o["spec"]["nodeName"] == renewed:
            o["metadata"] |= {"creationTimestamp": rfc3339(NOW - 60)}
            o["metadata"]["labels"] |= {"controller-revision-hash": "new"}
        elif o["spec"]["nodeName"] == ends:
            o["metadata"]["deletionTimestamp"] = rfc3339(NOW + 30)
        elif o["spec"]["nodeName"] == waits:
            o["spec"] |= {"affinity": pinned(waits), "nodeName": ""}
            o["spec"]["containers"][0]["resources"]["requests"]["cpu"] = grows
            o["status"] = {"phase": "Pending"}
        if o["kind"] == "DaemonSet" or o["spec"]["nodeName"] != lacks:
            found.append(admitted(o))
    return snapshot(found, more)


def a_port(o: Json) -> Json:
    spec = o["spec"]["template"]["spec"] if o["kind"] == "DaemonSet" else o["spec"]
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return o


BESIDE = objects(pod("beside").requests(cpu="1").on("c-1"))
WITH_A_PORT = objects(pod("beside").requests(cpu="600m").host_port(80).on("c-1"))
AGENTS: dict[str, tuple[Snapshot, str]] = {
    "it grows by more than a node has left beside a replacement": (rolling(), "c-1"),
    "it grows by less": (rolling(grows="1"), ""),
    "it becomes smaller": (rolling(grows="100m"), ""),
    "only what somebody deletes is made anew": (rolling(strategy="OnDelete"), ""),
    "all pods were made anew, and something else made them smaller": (rolling(updatedNumberScheduled=6), ""),
    "the next one comes beside it, and needs more": (rolling(grows="600m", surge=1), "c-1"),
    "it comes beside it, and has room": (rolling(grows="500m", surge="10%"), ""),
    "it is there already": (rolling(grows="600m", surge=1, renewed="c-1", updatedNumberScheduled=1), ""),
    "one lacks, and both have room": (rolling(grows="1", lacks="c-1"), ""),
    "one lacks, and the next one takes more": (rolling(grows="1001m", lacks="c-1"), "c-1"),
    "one waits for room": (rolling(grows="1001m", waits="c-1", more=BESIDE), "c-1"),
    "one waits for a port": (rolling(grows="500m", waits="c-1", admitted=a_port, more=WITH_A_PORT), "c-1"),
    "one waits for more than its node has": (rolling(grows="2001m", waits="c-1", more=BESIDE), ""),
    "one ends, and the next one takes what it held": (rolling(grows="1", ends="c-1"), ""),
    "one ends, and the next one takes more": (rolling(grows="1001m", ends="c-1"), "c-1"),
}


@pytest.mark.parametrize(("cluster", "full"), AGENTS.values(), ids=AGENTS)
def test_a_move_that_could_take_the_room_of_a_daemon_to_come_is_not_made(
    cluster: Snapshot, full: str
) -> None:
    """The scheduler does not know of that room: for it the node is one as any other."""
    found = plan(cluster)
    assert [m.destinations for m in found.moves] == ([] if full else [("c-0", "c-1")])
    said = {(b.reason.code.value, b.reason.message) for b in found.blocked}
    why = f"its replacement could land on {full}, where a pod of DaemonSet default/agent that needs room is"
    assert said == ({("node-starting", f"{why} yet to come")} if full else set())


def a_sidecar(o: Json) -> Json:
    if o["kind"] == "Pod":
        o["spec"]["containers"].append({"name": "side", "resources": {"requests": {"cpu": "500m"}}})
    return o


def a_default_of_a_limit_range(o: Json) -> Json:
    if o["kind"] == "DaemonSet":
        o["spec"]["template"]["spec"]["containers"].append({"name": "side"})
    return a_sidecar(o)


ADMITTED: dict[str, Snapshot] = {
    "a sidecar of a webhook": rolling(cpu="2500m", admitted=a_sidecar),
    "of a pod that lacks": rolling(cpu="2500m", lacks="c-1", admitted=a_sidecar),
    "what a LimitRange gives a container": rolling(cpu="2500m", admitted=a_default_of_a_limit_range),
    "what an autoscaler gives": rolling(
        grows="500m", more=[vpa("DaemonSet", "agent", "Initial", cpu="1200m")]
    ),
}


@pytest.mark.parametrize("cluster", ADMITTED.values(), ids=ADMITTED)
def test_what_admission_gives_a_daemon_to_come_is_part_of_the_room(cluster: Snapshot) -> None:
    found = plan(cluster)
    assert not found.moves
    assert {b.reason.code.value for b in found.blocked} == {"node-starting"}


@pytest.mark.parametrize("lacks", ["", "c-0"])
def test_a_daemon_that_is_made_anew_keeps_the_port_that_it_has_come_to_need(lacks: str) -> None:
    agent = objects(daemon_set("agent").placed({"a-0": 1, "b-0": 1, "c-0": 1}))
    agent[0]["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 3}
    agent[0]["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    there = [o for o in agent if o["spec"].get("nodeName") != (lacks or "none")]
    web = workload("web").host_port(80).spread("zone", 1).placed({"a-1": 1, "a-2": 1, "b-1": 1})
    full = [node(n).zone(n[0]).taint("full") for n in ("a-1", "a-2", "b-1")]
    found = plan(snapshot(*nodes(a=1, b=1, c=1), *full, web, *there))
    assert not found.moves
    assert {b.reason.code.value for b in found.blocked} == {"node-starting"}


@pytest.mark.parametrize(("cpu", "moves"), [("2199m", 0), ("2200m", 1)])
def test_a_daemon_that_ends_makes_room_for_the_next_one(cpu: str, moves: int) -> None:
    made = objects(daemon_set("agent").requests(cpu="500m").placed({"a-0": 1, "c-0": 1}))
    made[0]["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 2}
    made[-1]["metadata"]["deletionTimestamp"] = rfc3339(NOW + 30)
    web = workload("web").requests(cpu="1700m").spread("zone", 1).placed({"a-0": 2})
    found = plan(snapshot(node("a-0").zone("a"), node("c-0").zone("c").cpu(cpu), web, *made))
    assert len(found.moves) == moves


@pytest.mark.parametrize(("waiting", "moves"), [(1, 1), (2, 0)])
def test_a_pod_that_waits_takes_the_room_that_a_rollout_of_daemons_needs(waiting: int, moves: int) -> None:
    """The scheduler does not keep it: one takes one node of zone c, two take both."""
    agent = objects(daemon_set("agent").requests(cpu="100m").placed(dict.fromkeys(("c-0", "c-1"), 1)))
    agent[0]["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 2}
    agent[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1200m"
    web = workload("web").requests(cpu="500m").spread("zone", 1).placed({"a-0": 3, "b-0": 1})
    waits = [pod(f"w{i}").requests(cpu="1500m") for i in range(waiting)]
    rooms = {"a-0": "1600m", "b-0": "600m", "c-0": "2", "c-1": "2"}
    found = plan(snapshot(*(node(n).zone(n[0]).cpu(cpu) for n, cpu in rooms.items()), *agent, web, *waits))
    assert len(found.moves) == moves


def comer(who: str) -> list[Json]:
    """A pod that will be made, for which only c-0 has room."""
    api = workload("api", "StatefulSet" if who == "made again" else "Deployment").requests(cpu="1100m")
    made = objects(api.placed({"b-9": 1}))
    if who == "made again":
        made[-1]["metadata"]["deletionTimestamp"] = rfc3339(NOW + 30)
    if who == "one more":
        for o in made[:2]:
            o["spec"]["replicas"] = 2
        made[0]["status"].update(replicas=1, updatedReplicas=1)
    return made


@pytest.mark.parametrize("who", ["drained", "made again", "one more"])
@pytest.mark.parametrize("agent", ["stays", "grows", "ends", "lacks"])
def test_a_pod_to_come_and_a_daemon_to_come_both_find_room_beside_a_replacement(agent: str, who: str) -> None:
    """c-0 has room for the two, and beside one of them for the replacement."""
    listed = []
    for o in objects(
        daemon_set("agent").requests(cpu=1).placed(dict.fromkeys(("a-0", "b-0", "b-9", "c-0"), 1))
    ):
        spec = o["spec"]["template"]["spec"] if o["kind"] == "DaemonSet" else o["spec"]
        spec["tolerations"] = [{"operator": "Exists"}]
        if o["kind"] == "DaemonSet":
            o["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 4}
            if agent == "grows":
                spec["containers"][0]["resources"]["requests"]["cpu"] = "1400m"
        elif spec["nodeName"] == "c-0" and agent == "ends":
            o["metadata"]["deletionTimestamp"] = rfc3339(NOW + 30)
        elif spec["nodeName"] == "c-0" and agent == "lacks":
            continue
        listed.append(o)
    full = {"a-0": "5900m", "b-0": "6600m", "c-0": "5400m" if agent == "grows" else "5800m"}
    fill = [workload(f"on-{n}").requests(cpu=cpu).placed({n: 1}) for n, cpu in full.items()]
    web = workload("web").requests(cpu="200m").spread("zone", 1).placed({"a-0": 3, "b-0": 1})
    old = node("b-9").zone("b").taint("ToBeDeletedByClusterAutoscaler" if who == "drained" else "dedicated")
    found = plan(snapshot(*nodes(a=1, b=1, c=1), old, web, *fill, *listed, *comer(who)))
    assert not found.moves
    assert {b.reason.code.value for b in found.blocked} == {"pending-pods"}


@pytest.mark.parametrize(("grows", "waves"), [("500m", [1, 1]), ("1", [1, 2])])
@pytest.mark.parametrize("owners", [["web", "api"], ["web"]])
def test_replacements_that_together_could_take_such_room_go_one_after_the_other(
    owners: list[str], grows: str, waves: list[int]
) -> None:
    most = PlanOptions(policy=PolicyOptions(in_flight_per_owner=Limit(percent=100)))
    found = plan(rolling(*owners, grows=grows, pods=5 - len(owners), cpu="2600m"), most)
    assert [m.wave for m in found.moves] == waves
    assert {m.destinations for m in found.moves} == {("c-0", "c-1")}


def test_what_a_daemon_that_ends_leaves_is_not_for_two_replacements() -> None:
    """c-1 has room for one beside the agent, and for two until the next agent is there."""
    most = PlanOptions(policy=PolicyOptions(in_flight_per_owner=Limit(percent=100)))
    found = plan(rolling(grows="500m", pods=4, cpu="2200m", ends="c-1"), most)
    assert [m.wave for m in found.moves] == [1, 2]


UNDER: dict[str, tuple[str, dict[str, int]]] = {
    "all are there": ("", {"a": 4, "b": 2}),
    "one ends": ("ends", {"a": 3, "b": 2}),
    "one is gone": ("gone", {"a": 3, "b": 2}),
}


@pytest.mark.parametrize(("how", "counts"), UNDER.values(), ids=UNDER)
def test_a_daemon_that_ends_or_is_to_be_made_counts_for_nobody(how: str, counts: dict[str, int]) -> None:
    agent, found = daemon_set("agent").labels(app="web").requests(cpu="1").placed({"a-0": 1, "b-0": 1}), []
    for o in objects(agent):
        if o["kind"] == "DaemonSet":
            o["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 2}
        elif o["spec"]["nodeName"] == "a-0" and how == "ends":
            o["metadata"]["deletionTimestamp"] = rfc3339(NOW + 30)
        elif o["spec"]["nodeName"] == "a-0" and how == "gone":
            continue
        found.append(o)
    web = workload("web").labels(app="web").spread("zone", 1).placed({"a-0": 3, "b-0": 1})
    made = plan(snapshot(*nodes(a=1, b=1), web, *found))
    [constraint] = made.constraints
    assert constraint.domains == counts
    assert len(made.moves) == (not how)


HOUR, DAY = 3600, 86_400
NO_DISRUPTION = {"karpenter.sh/do-not-disrupt": "true"}
KEEPS, AT_NIGHT = node_pool("default"), node_pool("default")
KEEPS.object["spec"]["disruption"] = {"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}
AT_NIGHT.object["spec"]["disruption"] = {"budgets": [{"nodes": "0", "schedule": "@daily", "duration": "8h"}]}
DELETED = node_claim("c", "n", age=DAY)
DELETED.object["metadata"]["deletionTimestamp"] = ago(1)
CLAIMS: dict[str, tuple[list[Any], set[str], list[str]]] = {
    "it is Consolidatable, as every node at rest": ([node_claim("c", "n")], set(), []),
    "it has drifted": ([node_claim("c", "n", age=DAY, drifted=60)], {"n"}, []),
    "its node has not registered": ([node_claim("c", age=DAY, drifted=60)], {""}, []),
    "it drifted long ago, and nothing goes on": ([node_claim("c", "n", age=DAY, drifted=2 * HOUR)], set(),
                                                 ["drift-stuck"]),
    "it drifted long ago, and its pool gets new nodes": (
        [node_claim("c", "n", age=DAY, drifted=2 * HOUR), node_claim("d", "m", age=600)], {"n"}, []),
    "so it did, and a budget of its pool keeps the drifted": (
        [node_claim("c", "n", age=DAY, drifted=2 * HOUR), node_claim("d", "m", age=600), KEEPS], set(),
        ["drift-stuck"]),
    "so it did, and a budget keeps them at times only": (
        [node_claim("c", "n", age=DAY, drifted=2 * HOUR), node_claim("d", "m", age=600), AT_NIGHT],
        {"n"}, []),
    "so it did, and it says do-not-disrupt": (
        [node_claim("c", "p", age=DAY, drifted=2 * HOUR), node_claim("d", "m", age=600)], set(),
        ["drift-stuck"]),
    "that lasts only for a grace period": (
        [node_claim("c", "p", age=DAY, drifted=2 * HOUR, terminationGracePeriod="1h"),
         node_claim("d", "m", age=600)], {"p"}, []),
    "it drifted a day ago, and its pool gets new nodes all the time": (
        [node_claim("c", "n", age=2 * DAY, drifted=DAY), node_claim("d", "m", age=600)], set(),
        ["drift-stuck"]),
    "it expires within the hour": ([node_claim("c", "n", age=DAY - 1800, expireAfter="23h59m60s")],
                                   {"n"}, []),
    "it is being deleted": ([DELETED], {"n"}, []),
    "it expires later": ([node_claim("c", "n", age=DAY, expireAfter="720h")], set(), []),
    "it expires never": ([node_claim("c", "n", age=DAY, expireAfter="Never")], set(), []),
    "it expired long ago": ([node_claim("c", "n", age=DAY, expireAfter="20h")], set(), ["drift-stuck"]),
    "there is no status yet": ([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                                 "metadata": {"name": "c"}}], set(), []),
    "everything is null": ([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                             "metadata": {"name": "c"}, "status": {"nodeName": None, "conditions": None}}],
                           set(), []),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "going", "findings"), CLAIMS.values(), ids=CLAIMS)
def test_what_a_node_claim_says(claims: list[Any], going: set[str], findings: list[str]) -> None:
    found = snapshot(node("n"), node("p").annotated(NO_DISRUPTION), *claims)
    assert found.going == going
    assert [f.code for f in neighbours(found)] == findings


def test_the_plan_is_made_anew_when_a_node_begins_and_ceases_to_count_as_about_to_go() -> None:
    claims = node_claim("c", "n", age=DAY, drifted=1800), node_claim("d", "o", age=DAY, expireAfter="26h")
    now = snapshot(node("n"), node("o"), *claims)
    assert next_change(now, PolicyOptions()) == now.now + 1800
    assert next_change(replace(now, apart=7200.0), PolicyOptions()) == now.now + 1800
    assert replace(now, apart=7200.0).going == {"n", "o"}
    later = replace(now, now=now.now + 1800)
    assert (later.going, next_change(later, PolicyOptions())) == (frozenset(), later.now + 1800)


def test_while_a_node_that_is_certain_to_go_could_be_chosen_a_move_waits() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 4})
    drifting = node_claim("c", "b-0", age=DAY, drifted=60)
    made = plan(snapshot(*nodes(a=1, b=2), drifting, web))
    assert not made.moves
    assert {b.reason.code.value for b in made.blocked} == {"node-expiring"}
    assert all(is_wait(b.reason) for b in made.blocked)
    [stuck] = [node_claim("c", "b-0", age=DAY, drifted=2 * HOUR)]
    assert len(plan(snapshot(*nodes(a=1, b=2), stuck, web)).moves) == 2


CONFIG = "machineconfiguration.openshift.io/{}Config"


def reconfigured(name: str, current: str, desired: str) -> Any:
    (found,) = node(name).zone(name[0]).build()
    found["metadata"]["annotations"] = {CONFIG.format("current"): current, CONFIG.format("desired"): desired}
    return found


@pytest.mark.parametrize(
    "make",
    [
        *(
            lambda name, key=key: node(name).zone(name[0]).taint(key, effect="PreferNoSchedule")
            for key in sorted(OUTDATED_TAINTS)
        ),
        lambda name: reconfigured(name, "rendered-1", "rendered-2"),
    ],
    ids=[*sorted(OUTDATED_TAINTS), "OpenShift"],
)
def test_a_node_that_a_rollout_of_nodes_is_to_replace_takes_nobody_and_gives_first(make: Any) -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 4})
    made = plan(snapshot(node("a-0").zone("a"), make("b-0"), web))
    assert {b.reason.code.value for b in made.blocked} == {"node-expiring"}
    for outdated, other in (("a-0", "a-1"), ("a-1", "a-0")):
        web = workload("web").spread("zone", 1).placed({"a-0": 2, "a-1": 2})
        made = plan(snapshot(node(other).zone("a"), make(outdated), node("b-0").zone("b"), web))
        assert [m.pod.node_name for m in made.moves] == [outdated] * 2


def test_a_node_whose_configuration_is_as_it_is_to_be_takes_pods() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 4})
    made = plan(snapshot(node("a-0").zone("a"), reconfigured("b-0", "rendered-1", "rendered-1"), web))
    assert len(made.moves) == 2


def test_pods_on_a_node_that_is_certain_to_go_are_the_first_to_leave() -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 2, "a-1": 2})
    for drifting in ("a-0", "a-1"):
        made = plan(snapshot(*nodes(a=2, b=1), node_claim("c", drifting, age=DAY, drifted=60), web))
        assert [m.pod.node_name for m in made.moves] == [drifting] * 2


def test_of_cluster_autoscaler_a_taint_says_so() -> None:
    assert candidates(snapshot(node("n").taint(CANDIDATE, effect="PreferNoSchedule"), node("o"))) == {"n"}


@pytest.mark.parametrize("candidate", ["b-0", "b-1"])
def test_among_equal_nodes_a_candidate_for_removal_is_predicted_last(candidate: str) -> None:
    things: list[Any] = nodes(a=1, b=2)
    things[1 if candidate == "b-0" else 2].taint(CANDIDATE, effect="PreferNoSchedule")
    # Who tolerates the taint gets the same score on both.
    web = workload("web").spread("zone", 1).tolerates(CANDIDATE).placed({"a-0": 2})
    made = plan(snapshot(*things, web))
    assert [m.predicted for m in made.moves] == [{"b-0": "b-1", "b-1": "b-0"}[candidate]]


def test_a_zone_that_came_back_empty_is_filled_although_its_nodes_are_candidates() -> None:
    things = nodes(a=1, b=1)
    things[1].taint(CANDIDATE, effect="PreferNoSchedule")
    made = plan(snapshot(*things, workload("web").spread("zone", 1).placed({"a-0": 4})))
    assert [m.predicted for m in made.moves] == ["b-0", "b-0"]


FORTY = node_pool("default", zones=["b", "c"], cpu="100", used="60")
POOLS: dict[str, tuple[list[Any], str]] = {
    "there are none": ([], ""),
    "a pool of that zone": ([FORTY], "add a node in b (NodePool default: limits leave 40 CPU)"),
    "one without limits": ([node_pool("any")], "add a node in b (NodePool any)"),
    "one whose limits are used up": (
        [node_pool("any", cpu="60", used="60")],
        "add a node in b (NodePool any: limits leave 0 CPU, which is too little)"),
    "two": ([FORTY, node_pool("any")], "(NodePool any; NodePool default: limits leave 40 CPU)"),
    "one of another zone": ([node_pool("c", zones=["c"])], ""),
    "one whose taint the pod does not tolerate": ([node_pool("gpu", taint="gpu")], ""),
}  # fmt: skip


@pytest.mark.parametrize(("pools", "says"), POOLS.values(), ids=POOLS)
def test_where_an_autoscaler_may_add_the_node_that_is_missing_the_reason_says_so(
    pools: list[Any], says: str
) -> None:
    web = workload("web").spread("zone", 1).placed({"a-0": 4})
    made = plan(snapshot(node("a-0").zone("a"), node("b-0").zone("b").pods(0), *pools, web))
    [reason] = made.constraints[0].reasons
    assert reason.code.value == "no-feasible-node"
    assert says in reason.message
    assert ("an autoscaler would have to" in reason.message) is bool(says)


@pytest.mark.parametrize("number", [6, 12, 13, 16])
def test_moves_that_would_take_the_last_room_of_others_are_said_to_be_that(number: int) -> None:
    """Six nodes are free, one of which a drained pod needs. Any move would help, and some do not go: they
    were dropped, or were in the way of those that were looked for after them."""
    b = [node(f"b-{i}").zone("b").cpu("3200m") for i in range(6)]
    old = node("b-old").zone("b").cpu("3200m").taint("ToBeDeletedByClusterAutoscaler")
    owners = (workload(f"w{i:02}").spread("zone", 1).requests(cpu="500m") for i in range(number))
    webs = [owner.placed({f"a-{i % 6}": 3}) for i, owner in enumerate(owners)]
    drained = workload("drained").requests(cpu="3").selects(zone="b").placed({"b-old": 1})
    made = plan(snapshot(*nodes(a=6), *b, old, *webs, drained))
    left = [r for c in made.constraints for r in c.reasons]
    assert made.moves
    assert {r.code.value for r in left} <= {"no-feasible-node", "pending-pods"}
    assert all("leave others theirs" in r.message or "could take the place" in r.message for r in left)
    assert left
