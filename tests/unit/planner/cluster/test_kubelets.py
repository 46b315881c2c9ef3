"""What pods show of their nodes: where nothing starts or ends, nobody is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.policy.evictable import next_change
from rebalancer.policy.options import PolicyOptions
from tests.support.build import ago, daemon_set, decoded, deployment, node, nodes, objects
from tests.support.scheduler.plain import Json

HOUR = 3600
SANDBOX = "PodReadyToStartContainers"


def on_b(made: list[Json]) -> list[Json]:
    return [o for o in made if o["kind"] == "Pod" and o["spec"]["nodeName"].startswith("b")]


def creating(made: list[Json], age: int, *, sandbox: str | None = "False") -> list[Json]:
    """Its pods in b are being created for so long; the state of their sandboxes, None = none is told."""
    for o in on_b(made):
        o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = ago(age)
        o["status"]["phase"] = "Pending"
        o["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(age)},
            {"type": "Ready", "status": "False", "lastTransitionTime": ago(age)},
        ]
        if sandbox:
            said = {"type": SANDBOX, "status": sandbox, "lastTransitionTime": ago(age)}
            o["status"]["conditions"].append(said)
    return made


def ending(made: list[Json], **metadata: Any) -> list[Json]:
    for o in on_b(made):
        o["metadata"] |= {"deletionTimestamp": ago(2 * HOUR), "deletionGracePeriodSeconds": 30, **metadata}
    return made


def crashing(made: list[Json]) -> list[Json]:
    """Those that are not Ready crash."""
    for o in made:
        if o["kind"] == "Pod" and any(
            c["type"] == "Ready" and c["status"] == "False" for c in o["status"]["conditions"]
        ):
            last = {"terminated": {"exitCode": 1, "finishedAt": ago(100)}}
            o["status"]["containerStatuses"] = [{"name": "c", "lastState": last}]
    return made


def unpulled(made: list[Json]) -> list[Json]:
    """Those pods say what they wait for, and no more."""
    for o in on_b(made):
        del o["status"]["startTime"]
        waiting = {"waiting": {"reason": "ImagePullBackOff"}}
        o["status"]["containerStatuses"] = [{"name": "c", "state": waiting}]
    return made


def started(age: int, *, host_network: bool = False) -> list[Json]:
    """A pod that runs in b since then."""
    made = objects(deployment("later").placed({"b-0": 1}))
    for o in on_b(made):
        o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = ago(age)
        o["spec"]["hostNetwork"] = host_network
    return made


def other(**placed: int) -> list[Json]:
    return objects(deployment("other").placed({n.replace("_", "-"): c for n, c in placed.items()}))


def claiming(made: list[Json]) -> list[Json]:
    for o in on_b(made):
        o["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]
    return made


def agent(critical: str = "system-node-critical") -> list[Json]:
    made = objects(daemon_set("cni").placed({"a-0": 1, "b-0": 1}).unready(1))
    for o in made:
        if o["kind"] == "Pod":
            o["spec"]["priorityClassName"] = critical
    return made


def evicted(*ages: int, by: str = "TerminationByKubelet", node: str = "b-0") -> list[Json]:
    """Pods of web that a kubelet ended so long ago, and made conditions of `by`; "" = none."""
    found = []
    for i, age in enumerate(ages):
        o = next(o for o in objects(deployment("web").placed({"a-0": 1})) if o["kind"] == "Pod")
        o["metadata"] |= {"name": f"gone-{i}", "uid": f"gone-{i}", "creationTimestamp": ago(age + 9 * HOUR)}
        o["spec"]["nodeName"] = node
        why = {"type": "DisruptionTarget", "status": "True", "reason": by, "lastTransitionTime": ago(age)}
        o["status"] = {"phase": "Failed", "reason": "Evicted", "conditions": [why] if by else []}
        found.append(o)
    return found


BARRED: dict[str, Callable[[], list[Json]]] = {
    "three pods have no sandbox": lambda: creating(other(b_0=3), HOUR),
    "one has none, and another of its owner's is Ready elsewhere": lambda: creating(
        other(a_0=1, b_0=1), HOUR
    ),
    "only pods on the node's own network started since": lambda: [
        *creating(other(b_0=3), 2 * HOUR),
        *started(HOUR, host_network=True),
    ],
    "pods do not end": lambda: ending(other(b_0=5)),
    "the node-critical agent is not Ready": agent,
    "its kubelet has evicted several, as it ran short of something": lambda: evicted(100, 1500),
}
FREE: dict[str, Callable[[], list[Json]]] = {
    "not for long": lambda: creating(other(b_0=3), 300),
    "images are slow": lambda: creating(other(b_0=3), HOUR, sandbox="True"),
    "an older kubelet does not say": lambda: creating(other(b_0=3), HOUR, sandbox=None),
    "images cannot be pulled": lambda: unpulled(creating(other(b_0=3), HOUR, sandbox=None)),
    "it hangs elsewhere as well": lambda: creating(other(b_0=2, b_1=2), HOUR),
    "a lone pod hangs": lambda: creating(other(b_0=1), HOUR),
    "its claim may be to blame": lambda: claiming(creating(other(a_0=3, b_0=3), HOUR)),
    "another has started since": lambda: [*creating(other(b_0=3), 2 * HOUR), *started(HOUR)],
    "a finalizer holds them": lambda: ending(other(b_0=5), finalizers=["x/y"]),
    "another has started since they should have ended": lambda: [*ending(other(b_0=5)), *started(HOUR)],
    "it is not Ready, and not node-critical": lambda: agent("system-cluster-critical"),
    "its kubelet has evicted one": lambda: evicted(100),
    "that was long ago": lambda: evicted(HOUR, 2 * HOUR),
    "that was on two nodes": lambda: [*evicted(100), *evicted(100, 2 * HOUR, node="b-1")],
    "they went beyond limits of their own": lambda: evicted(100, 1500, by=""),
}


def web() -> list[Json]:
    return objects(nodes(a=1, b=2), deployment("web").spread("zone").placed({"a-0": 3}))


@pytest.mark.parametrize("case", BARRED)
def test_no_move_could_land_on_a_node_that_has_not_done_what_it_was_last_asked_to(case: str) -> None:
    found = decoded([*web(), *BARRED[case]()])
    assert not plan(found).moves
    assert {b.reason.code for b in plan(found).blocked if b.pod.name.startswith("web")} == {
        ReasonCode.NODE_UNFIT
    }


@pytest.mark.parametrize("case", FREE)
def test_a_node_is_not_barred_where_the_pods_may_be_to_blame(case: str) -> None:
    assert len(plan(decoded([*web(), *FREE[case]()])).moves) == 1


@pytest.mark.parametrize(("in_b", "moves"), [(1, False), (2, True)])
def test_nobody_is_sent_where_all_siblings_crash(in_b: int, moves: bool) -> None:
    """As soon as one is Ready there, the node does."""
    owner = deployment("web").spread("zone").placed({"b-0": in_b, "a-0": 7})
    assert plan(decoded(objects(nodes(a=1, b=1), owner))).moves
    broken = crashing(objects(nodes(a=1, b=1), owner.unready(0)))
    assert bool(plan(decoded(broken)).moves) is moves


@pytest.mark.parametrize(("kind", "moves"), [("fargate", 0), ("ec2", 1)])
def test_a_node_that_was_made_for_one_pod_takes_no_other(kind: str, moves: int) -> None:
    there = node("b-0").zone("b").label("eks.amazonaws.com/compute-type", kind)
    taint = "eks.amazonaws.com/compute-type"
    owner = deployment("web").spread("zone").tolerates(taint).placed({"a-0": 3})
    made = decoded(objects(nodes(a=1), there.taint(taint, kind), owner))
    assert len(plan(made).moves) == moves


@pytest.mark.parametrize("made", [creating(other(b_0=3), 300), evicted(100, HOUR - 300)])
def test_it_is_known_when_what_pods_show_of_nodes_changes_with_time(made: list[Json]) -> None:
    found = decoded([*web(), *made])
    assert next_change(found, PolicyOptions()) <= found.now + 300
