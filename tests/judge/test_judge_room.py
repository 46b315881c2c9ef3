"""The judge's other filters: room, ports, taints, cordons, affinity, volumes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.build import claim, node, objects, pod, volume
from tests.support.scheduler.state import State, feasible


def open_nodes(incoming: Any, *things: Any) -> list[str]:
    return feasible(State.of(objects(*things)), incoming.build()[0])


CASES: list[tuple[str, list[Any], Any, list[str]]] = [
    ("cpu that is free", [node("n").cpu("300m"), pod("p").on("n").requests(cpu="100m")], pod("x"), ["n"]),
    ("cpu that is taken", [node("n").cpu("150m"), pod("p").on("n").requests(cpu="100m")], pod("x"), []),
    ("memory that is taken", [node("n").room(memory="100Mi"), pod("p").on("n")], pod("x"), []),
    ("the number of pods", [node("n").pods(1), pod("p").on("n")], pod("x"), []),
    (
        "a terminating pod holds its room",
        [node("n").pods(1), pod("p").on("n").terminating()],
        pod("x"),
        [],
    ),
    ("a finished pod does not", [node("n").pods(1), pod("p").on("n").phase("Succeeded")], pod("x"), ["n"]),
    ("a resource that no node has", [node("n")], pod("x").asks({"example.com/gpu": 1}), []),
    (
        "an extended resource",
        [node("n").allocatable({"example.com/gpu": 1})],
        pod("x").asks({"example.com/gpu": 1}),
        ["n"],
    ),
    ("a port that is taken", [node("n"), pod("p").on("n").host_port(80)], pod("x").host_port(80), []),
    (
        "the same port of another protocol",
        [node("n"), pod("p").on("n").host_port(80, "UDP")],
        pod("x").host_port(80),
        ["n"],
    ),
    ("a taint", [node("n").taint("gpu")], pod("x"), []),
    ("a taint that is tolerated", [node("n").taint("gpu")], pod("x").tolerates("gpu"), ["n"]),
    ("a taint of another value", [node("n").taint("gpu", "a")], pod("x").tolerates("gpu", "b"), []),
    ("a taint that only prefers", [node("n").taint("gpu", effect="PreferNoSchedule")], pod("x"), ["n"]),
    (
        "a toleration of another effect",
        [node("n").taint("gpu")],
        pod("x").tolerates("gpu", effect="NoExecute"),
        [],
    ),
    ("a cordon", [node("n").cordoned()], pod("x"), []),
    (
        "a cordon that is tolerated",
        [node("n").cordoned()],
        pod("x").tolerates("node.kubernetes.io/unschedulable"),
        ["n"],
    ),
    ("a nodeSelector", [node("n").label("disk", "ssd"), node("o")], pod("x").selects(disk="ssd"), ["n"]),
    ("NotIn holds where the label is absent", [node("n")], pod("x").needs("disk", "NotIn", "hdd"), ["n"]),
    ("Gt compares integers", [node("n").label("gen", "10")], pod("x").needs("gen", "Gt", "9"), ["n"]),
    ("Gt fails on anything else", [node("n").label("gen", "x")], pod("x").needs("gen", "Gt", "9"), []),
    (
        "a zonal volume",
        [node("n").zone("a"), node("o").zone("b"), claim("c", "v"), volume("v", "c", zone="b")],
        pod("x").mounts("c"),
        ["o"],
    ),
    ("a volume without a zone", [node("n"), claim("c", "v"), volume("v", "c")], pod("x").mounts("c"), ["n"]),
    ("a claim that is not there", [node("n")], pod("x").mounts("c"), []),
]


@pytest.mark.parametrize(("sentence", "things", "incoming", "expected"), CASES, ids=[c[0] for c in CASES])
def test_nodes_left(sentence: str, things: list[Any], incoming: Any, expected: list[str]) -> None:
    assert open_nodes(incoming, *things) == expected, sentence


def test_init_containers_sidecars_and_overhead_are_asked_for() -> None:
    def asks(cpu: str) -> dict[str, Any]:
        return {"name": cpu, "resources": {"requests": {"cpu": cpu}}}

    (x,) = pod("x").requests(cpu="100m").build()
    x["spec"]["initContainers"] = [{**asks("50m"), "restartPolicy": "Always"}, asks("300m")]
    x["spec"]["overhead"] = {"cpu": "10m"}
    for cpu, expected in (("360m", ["n"]), ("359m", [])):
        assert feasible(State.of(objects(node("n").cpu(cpu))), x) == expected
