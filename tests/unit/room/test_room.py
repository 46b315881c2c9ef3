"""Which nodes are missing, case by case: as the report says it."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.admission import violations
from rebalancer.planner import PlanOptions, plan
from rebalancer.report.missing_room import command, headline, to_buffers, to_placeholders
from rebalancer.room import Room
from rebalancer.runtime.commands.reports import missing_room
from tests.support.build import daemon_set, deployment, node, pdb, snapshot, workload

SMALL = [node("a-0").zone("a"), node("b-0").zone("b").cpu("150m")]
LARGE = [node("a-0").zone("a").cpu(8), node("b-0").zone("b").cpu(8)]


def found(*things: Any) -> Room:
    cluster = snapshot(*things)
    made = missing_room(cluster, PlanOptions(), plan(cluster), asked=True)
    assert made is not None
    return made


def said(*things: Any) -> str:
    return headline(found(*things))


CASES: dict[str, tuple[list[Any], str]] = {
    "a zone has no room: a node there, or a larger one": (
        [SMALL, workload("web").spread("zone").placed({"a-0": 6})],
        (
            "1 node in b with 200m cpu and 128Mi memory free, like a-0, "
            "or 150m cpu more on b-0: mends default/web."
        ),
    ),
    "two workloads lack room in one zone: one node for both": (
        [
            SMALL,
            workload("web").spread("zone").placed({"a-0": 4}),
            workload("api").spread("zone").placed({"a-0": 4}),
        ],
        (
            "1 node in b with 300m cpu and 192Mi memory free, like a-0, or 250m cpu more on b-0: "
            "mends default/api, default/web."
        ),
    ),
    "minDomains asks for a zone that is not there": (
        [LARGE, workload("web").spread("zone", min_domains=3).placed({"a-0": 2, "b-0": 2})],
        "1 node in a zone of its own with 100m cpu and 64Mi memory free, like a-0: mends default/web.",
    ),
    "two zones are missing": (
        [LARGE, workload("web").spread("zone", min_domains=4).placed({"a-0": 2, "b-0": 2})],
        (
            "1 node in a zone of its own with 100m cpu and 64Mi memory free, like a-0 and "
            "1 node in a zone of its own with 100m cpu and 64Mi memory free, like a-0: mends default/web."
        ),
    ),
    "pods have a place each, and no room to change places": (
        [
            [node("a-0").zone("a").pods(8), node("b-0").zone("b").pods(8)],
            workload("left").spread("zone").placed({"a-0": 5, "b-0": 3}),
            workload("right").spread("zone").placed({"a-0": 3, "b-0": 5}),
        ],
        "1 node in a, like a-0: mends default/left, default/right.",
    ),
    "its budget allows no eviction: room alone mends nothing": (
        [
            SMALL,
            workload("web").spread("zone").placed({"a-0": 6}),
            pdb("web", {"app": "web"}, max_unavailable=0),
        ],
        "More nodes would not help: an excess of 5 stays for other reasons.",
    ),
    "what lacks no room": (
        [LARGE, workload("web").spread("zone").placed({"a-0": 3})],
        "No room is missing: the plan leaves no excess.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_advice(case: str) -> None:
    things, sentence = CASES[case]
    assert said(*things) == sentence


def test_what_a_node_runs_for_itself_takes_room_of_a_new_one_too() -> None:
    machines = [node("a-0").zone("a").cpu("1"), node("b-0").zone("b").cpu("300m")]
    agent = daemon_set("agent").requests(cpu="250m").placed({"a-0": 1, "b-0": 1})
    room = found(machines, agent, workload("web").requests(cpu="700m").spread("zone").placed({"a-0": 1}))
    assert not room.excess
    many = workload("web").requests(cpu="200m").spread("zone").placed({"a-0": 3})
    room = found(machines, agent, many)
    assert (room.number, room.nodes[0].like, room.left) == (1, "a-0", 0)


def test_nodes_that_the_plan_has_no_use_for_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A placement with them has less excess, and something keeps the pods from it."""
    cluster = snapshot(SMALL, workload("web").spread("zone").placed({"a-0": 6}))
    made = plan(cluster)
    monkeypatch.setattr("rebalancer.room.search.plan", lambda *_: made)
    found = missing_room(cluster, PlanOptions(), made, asked=True)
    assert found is not None
    assert (found.nodes, found.mends) == ((), ())
    assert headline(found) == "No nodes were found that would help: an excess of 3 stays for other reasons."


def test_the_command_tries_the_node_where_it_is_missing() -> None:
    room = found(SMALL, workload("web").spread("zone").placed({"a-0": 6}))
    assert command(room) == "rebalancer simulate --add-nodes 1 --like a-0 --label zone=b"


def test_a_buffer_asks_for_the_room_in_its_zone() -> None:
    machines = [
        node("a-0").zone("a").taint("pool", "web"),
        node("b-0").zone("b").taint("pool", "web").cpu("50m"),
    ]
    web = deployment("web", namespace="shop").spread("zone").tolerates("pool", "web").placed({"a-0": 3})
    (buffer, template), left_out = to_buffers(found(machines, web))
    assert not left_out
    assert (buffer["apiVersion"], buffer["kind"]) == ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    assert buffer["metadata"]["namespace"] == template["metadata"]["namespace"] == "shop"
    assert buffer["spec"]["podTemplateRef"] == {"name": template["metadata"]["name"]}
    assert buffer["spec"]["replicas"] == 1
    spec = template["template"]["spec"]
    assert spec["nodeSelector"] == {"topology.kubernetes.io/zone": "b"}
    assert spec["tolerations"] == [
        {"key": "pool", "operator": "Equal", "effect": "NoSchedule", "value": "web"}
    ]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "64Mi"}


@pytest.mark.parametrize("made", [to_buffers, to_placeholders])
def test_what_is_asked_for_comes_beside_the_room_that_is_there_and_keeps_restricted(made: Any) -> None:
    """Of four pods that are to go to b, b-0 takes two: an autoscaler would count it as what is asked for."""
    things = [node("a-0").zone("a"), node("b-0").zone("b").cpu("250m")]
    room = found(things, workload("web").spread("zone").placed({"a-0": 8}))
    assert [(n.number, n.free["cpu"], n.already) for n in room.nodes] == [(1, 200, 1)]
    objects, _ = made(room)
    assert objects[0]["spec"]["replicas"] == 2
    template = objects[-1].get("template") or objects[-1]["spec"]["template"]
    assert template["spec"]["affinity"]["podAntiAffinity"], "each on a node of its own"
    assert violations(template, "restricted") == ()
    del template["spec"]["securityContext"]
    assert len(violations(template, "restricted")) == 2


def test_a_placeholder_is_a_deployment_that_selects_its_own_pods() -> None:
    ((made,), _) = to_placeholders(found(SMALL, workload("web").spread("zone").placed({"a-0": 6})))
    assert (made["apiVersion"], made["kind"], made["spec"]["replicas"]) == ("apps/v1", "Deployment", 1)
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("made", [to_buffers, to_placeholders])
def test_no_buffer_for_a_zone_that_has_no_name(made: Any) -> None:
    things = CASES["minDomains asks for a zone that is not there"][0]
    objects, left_out = made(found(*things))
    assert (objects, len(left_out)) == ([], 1)
