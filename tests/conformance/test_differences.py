"""Where versions of kube-scheduler differ: the smallest cluster of each difference, and every answer.

Of 1.37's rules nothing larger was recorded. Their families are of clusters that follow from the smallest
ones: what a scheduler said of these, it has to say of them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from tests.conformance.agreement import OTHERWISE
from tests.conformance.compare import differences
from tests.conformance.recordings import RECORDED, Json, read_lines, recorded, versions
from tests.conformance.replay import replay
from tests.support.scheduler.plain import amount


def rejected(verdict: Json) -> object:
    """The nodes that do not take the pod, and by which plugin."""
    if "preFilter" in verdict:
        return {"every node": verdict["preFilter"]["plugin"]}
    return {node: r["plugin"] for node, r in verdict["filter"].items() if r is not None}


def image_locality(verdict: Json) -> object:
    """What the image scores on the node that has it."""
    return verdict["weightedScoresByPlugin"]["ImageLocality"]["node-0"]


def least_allocated(verdict: Json) -> object:
    """What the node scores that has a pod with a sidecar."""
    return verdict["weightedScoresByPlugin"]["NodeResourcesFit"]["node-0"]


DIFFERENCES: list[tuple[str, str, Callable[[Json], object], dict[str, object]]] = [
    (
        "a term that only excludes namespaces selects every one from 1.34 on",
        "ns-notin",
        rejected,
        {"1.29.1": {}, "1.34.9": {"node-0": "InterPodAffinity"}},
    ),
    (
        "host ports of sidecars count in 1.33.6 and from 1.34 on",
        "sidecar-port",
        rejected,
        {"1.29.1": {}, "1.33.13": {"node-0": "NodePorts"}},
    ),
    (
        "a nominated pod of a scheduler without a profile does not take part",
        "foreign-nominated",
        rejected,
        {"1.29.1": {}},
    ),
    (
        "a generic ephemeral volume whose claim belongs to somebody else fails",
        "ephemeral-owner",
        rejected,
        {"1.29.1": {"every node": "VolumeBinding"}},
    ),
    (
        "attachable-volumes-csi-… in allocatable is a limit up to 1.31",
        "limit-alloc",
        rejected,
        {"1.29.1": {"node-0": "NodeVolumeLimits"}, "1.33.13": {}},
    ),
    ("image volumes score from 1.36 on", "image-volume", image_locality, {"1.29.1": 0, "1.36.2": 43}),
    (
        "images of init containers score from 1.30 on",
        "image-init",
        image_locality,
        {"1.29.1": 0, "1.31.14": 21},
    ),
    (
        "a sidecar beside its containers scores from 1.32 on",
        "sidecar-score",
        least_allocated,
        {"1.29.1": 74, "1.33.13": 49},
    ),
]


@pytest.mark.parametrize("version", versions("smallest"))
@pytest.mark.parametrize(("sentence", "name", "look", "since"), DIFFERENCES, ids=[d[0] for d in DIFFERENCES])
def test_each_version_is_followed(
    sentence: str, name: str, look: Callable[[Json], object], since: dict[str, object], version: str
) -> None:
    del sentence
    (one,) = (r for r in recorded("smallest", version) if r.case["id"] == name)
    ours = replay(one.case, version)
    known = versions("smallest")
    expected = [since[v] for v in known[: known.index(version) + 1] if v in since][-1]
    assert look(one.verdict["incoming"][0]) == expected
    assert look(ours["incoming"][0]) == expected
    assert differences(one.verdict, ours) == []


def alike(case: Json, filtered: Json, rng: Random) -> Json:
    """The cluster some times over, containers in another order, so many times the cpu everywhere; and
    a pod that asks for less where it found room, for more where it found too little."""
    made: Json = deepcopy(case)
    objects, times = made["objects"], rng.choice((1, 2, 3, 7))
    copies = 1 if case["id"] == "emptysel-1" else rng.randrange(1, 4)
    for kind in ("nodes", "pods", "csiNodes"):
        objects[kind] = [_copied(o, i) for i in range(copies) for o in objects.get(kind, ())]
    if case["id"] == "emptysel-1":
        for i, pod in enumerate(deepcopy(objects["pods"][: rng.randrange(3)])):
            objects["pods"].append(pod | {"metadata": {**pod["metadata"], "name": f"q{i}", "uid": f"q{i}"}})
        for pod in objects["pods"]:
            pod["metadata"]["labels"] = {"app": rng.choice("xyz")}
    for pod in objects["pods"]:
        rng.shuffle(pod["spec"]["containers"])
        rng.shuffle(pod["status"].get("containerStatuses", []))
    _multiply(made, times)
    for asked in (c["resources"]["requests"] for c in made["incoming"][0]["spec"]["containers"]):
        full = any(r and r["plugin"] == "NodeResourcesFit" for r in filtered.values())
        cpu = amount("cpu", asked["cpu"])
        other = rng.randint(cpu, 3 * cpu) if full else rng.randint(1, cpu)
        asked["cpu"] = f"{rng.choice((cpu, other))}m"
    return made


def _copied(thing: Json, number: int) -> Json:
    """A node, or what belongs to one, of another name; the first is the original."""
    made, suffix = deepcopy(thing), f"-{number}" if number else ""
    for at, field in (("metadata", "name"), ("metadata", "uid"), ("spec", "nodeName"),
                      ("status", "nominatedNodeName")):  # fmt: skip
        if field in made.get(at, {}):
            made[at][field] += suffix
    if made["kind"] == "Node":
        made["metadata"]["labels"]["kubernetes.io/hostname"] += suffix
    return made


def _multiply(thing: Any, times: int) -> None:
    for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
        if key == "cpu":
            thing[key] = f"{amount(key, value) * times}m"
        elif isinstance(value, dict | list):
            _multiply(value, times)


@pytest.mark.parametrize("version", versions("next"))
def test_what_was_said_of_a_cluster_is_said_of_those_that_follow_from_it(version: str) -> None:
    """Overhead, resizes, pod-level requests, nominations behind gates, empty selectors, missing CSI drivers,
    image volumes, excluded namespaces: thirty clusters of each."""
    rng = Random(version)
    for one in recorded("next", version):
        said = one.verdict["incoming"][0]["filter"]
        if one.case["id"] in OTHERWISE.get(("next", version), {}):
            continue
        for _ in range(30):
            case = alike(one.case, said, rng)
            ours = replay(case, version)["incoming"][0]["filter"]
            for node, rejection in ours.items():
                recorded_of = said[node.partition("-")[0]]
                assert (rejection and rejection["plugin"]) == (recorded_of and recorded_of["plugin"]), case


def test_what_a_running_scheduler_bound_beside_pods_that_are_resized() -> None:
    """Seventy-five pods on a node of 8 CPUs, in every phase of a resize; for each, which pods came beside it.
    A running 1.36.2 was asked, and its bindings and refusals were read."""
    wrong = []
    for one in read_lines(RECORDED / "beside-resizes-1.36.2.jsonl"):
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}}
        there = {
            "kind": "Pod",
            "metadata": {"name": "old", "namespace": "default"},
            "spec": {"nodeName": "n", **one["spec"]},
            "status": one["status"],
        }
        asked = [*one["bound"], *one["refused"]]
        incoming = [
            {
                "kind": "Pod",
                "metadata": {"name": f"asks-{cpu}", "namespace": "default"},
                "spec": {
                    "schedulerName": "default-scheduler",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}],
                },
            }
            for cpu in asked
        ]
        case = {"id": one["id"], "objects": {"nodes": [node], "pods": [there]}, "incoming": incoming}
        answers = [a["filter"]["n"] for a in replay(case, "1.36.2")["incoming"]]
        expected = [None] * len(one["bound"]) + [["Insufficient cpu"]] * len(one["refused"])
        if [a and a["reasons"] for a in answers] != expected:
            wrong.append((one["id"], asked, answers))
    assert not wrong
