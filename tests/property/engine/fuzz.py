"""What must hold of the engine's verdicts whatever kube-scheduler says, on drawn clusters.

A cluster is a recorded one (tests/conformance) of which pods were taken away and moved at random, under a
random version. On it must hold

order        pods added and removed in any order leave what building anew leaves
permutation  nodes renamed among themselves, and nodes, pods, constraints, labels in another order, change
             nothing
unconnected  a pod that no rule connects with the judged one changes nothing but the room on its own node
followed     a table of nodes that takes changed nodes over answers as one that is made of them

    python -m tests.property.sweep --engine --count 2000 --seed 1
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

from rebalancer.engine.framework import Frameworks
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from tests.conformance.recordings import RECORDED as RECORDINGS
from tests.conformance.recordings import Json, read_lines, sets, versions
from tests.conformance.replay import Replay
from tests.support.scheduler.engine_states import answers, contents, rebuilt, shares_a_port

_STEPS = 12
_ELSEWHERE = "unconnected"
_ROOM = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
"""Plugins by which any pod matters to others, on its own node."""


def check(seed: int) -> list[tuple[str, str]]:
    """(invariant, what broke it) on the cluster of one seed."""
    rng = Random(seed)
    case, version = drawn(rng)
    found = []
    for invariant in INVARIANTS:
        try:
            found += [
                (invariant.__name__, f"{case['id']} {version}: {text}")
                for text in invariant(rng, case, version)
            ]
        except Exception as e:
            found.append((invariant.__name__, f"{case['id']} {version}: {type(e).__name__}: {e}"))
    return found


def drawn(rng: Random) -> tuple[Json, str]:
    """A cluster and the version to judge it by."""
    case = deepcopy(rng.choice(_cases()))
    names = [n["metadata"]["name"] for n in case["objects"].get("nodes", ())]
    pods = case["objects"].get("pods", [])
    kept = [p for p in pods if rng.random() < 0.8]
    for pod in kept:
        if names and pod["spec"].get("nodeName") and rng.random() < 0.3:
            pod["spec"]["nodeName"] = rng.choice(names)
    case["objects"]["pods"] = kept
    case.pop("steps", None)
    _settle_images(case)
    return case, rng.choice(versions())


def _settle_images(case: Json) -> None:
    """One size for each image: where nodes differ, the one that the scheduler heard of first counts."""
    sizes: dict[str, int] = {}
    for node in case["objects"].get("nodes", ()):
        node["status"]["images"] = [
            {"names": [name], "sizeBytes": sizes.setdefault(name, image["sizeBytes"])}
            for image in node["status"].get("images") or ()
            for name in image["names"]
        ]


def order(rng: Random, case: Json, version: str) -> list[str]:
    """Adds, terminates and removes pods in a drawn order; what is left is the state built anew."""
    run = Replay(case, version)
    state = run.state
    if not state.table.size:
        return []
    templates = [p.template for p in _pods(run, case)]
    frameworks = Frameworks(state)
    asked = rng.sample(templates, min(3, len(templates)))
    for number in range(_STEPS):
        _step(rng, state, templates, number)
        if number % 3 == 0:
            answers(frameworks, asked)  # what is remembered has to follow
    fresh = rebuilt(state)
    found = [] if contents(state) == contents(fresh) else ["the state differs from the one built anew"]
    if answers(frameworks, asked) != answers(Frameworks(fresh), asked):
        found.append("answers differ from those of the state built anew")
    return found


def _step(rng: Random, state: ClusterState, templates: list[PodTemplate], number: int) -> None:
    placed = sorted(state.pods, key=str)
    if templates and (not placed or rng.random() < 0.5):
        key: Hashable = ("drawn", number)
        template, row = rng.choice(templates), rng.randrange(state.table.size)
        if not shares_a_port(state, key, template, row):
            state.add(key, template, row)
        return
    if not placed:
        return
    key = rng.choice(placed)
    was = state.pods[key]
    if shares_a_port(state, key, was.template, was.row):
        return
    if rng.random() < 0.5:
        state.remove(key)
    elif was.terminating:
        state.restore(key)
    else:
        state.terminate(key)


def permutation(rng: Random, case: Json, version: str) -> list[str]:
    """Renames the nodes among themselves and turns everything around that has no order."""
    names = [n["metadata"]["name"] for n in case["objects"].get("nodes", ())]
    renamed = dict(zip(names, rng.sample(names, len(names)), strict=True))
    turned = _turned(rng, _renamed(case, renamed))
    before = [_plain(v, renamed) for v in _verdicts(case, version)]
    after = [_plain(v, {}) for v in _verdicts(turned, version)]
    return [
        f"{a['pod']}: {part} {a[part]} became {b[part]}"[:800]
        for a, b in zip(before, after, strict=True)
        for part in a
        if a[part] != b[part]
    ]


def _renamed(case: Json, names: dict[str, str]) -> Json:
    """The case with other node names, wherever a string is exactly one."""
    text = re.sub(r'"([^"\\]*)"', lambda m: f'"{names.get(m[1], m[1])}"', json.dumps(case))
    found: Json = json.loads(text)
    return found


def _turned(rng: Random, value: Any, field: str = "") -> Any:
    """The same in another order: labels, constraints, nodes and pods."""
    if isinstance(value, dict):
        pairs = list(value.items())
        rng.shuffle(pairs)
        return {k: _turned(rng, v, k) for k, v in pairs}
    if isinstance(value, list):
        items = [_turned(rng, v) for v in value]
        if field in ("nodes", "pods", "topologySpreadConstraints", "namespaces", "matchExpressions"):
            rng.shuffle(items)
        return items
    return value


def _plain(verdict: Json, names: dict[str, str]) -> Json:
    """What of a verdict must not change. Reasons may: the first constraint that fails gives them."""

    def named(by_node: dict[str, Any]) -> dict[str, Any]:
        return {names.get(n, n): v for n, v in by_node.items()}

    return {
        "pod": verdict["pod"],
        "preFilter": verdict.get("preFilter"),
        "filter": named({n: r and r["plugin"] for n, r in verdict["filter"].items()}),
        "filterByPlugin": {p: set(named(r)) for p, r in verdict["filterByPlugin"].items()},
        "scores": {p: named(s) for p, s in verdict["weightedScoresByPlugin"].items()},
        "totals": named(verdict["totalScore"]),
    }


def unconnected(rng: Random, case: Json, version: str) -> list[str]:
    """Adds a pod in a namespace that nothing names, on one node."""
    names = [n["metadata"]["name"] for n in case["objects"].get("nodes", ())]
    if not names:
        return []
    there = rng.choice(names)
    more = deepcopy(case)
    more["objects"]["pods"].append(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "apart",
                "namespace": _ELSEWHERE,
                "uid": "apart",
                "labels": {"app": "apart"},
            },
            "spec": {"nodeName": there, "containers": [{"name": "c", "image": "registry.example/apart:1"}]},
            "status": {"phase": "Running"},
        }
    )
    found = []
    documents = case.get("incoming", ())
    for document, a, b in zip(documents, _verdicts(case, version), _verdicts(more, version), strict=True):
        if "namespaceSelector" in json.dumps(document["spec"].get("affinity", {})):
            continue
        one, other = _apart(a, there), _apart(b, there)
        if (a["filter"].get(there) is None) != (b["filter"].get(there) is None):
            continue  # it took the last room
        found += [
            f"{a['pod']}: a pod on {there} changed {part} from {one[part]} to {other[part]}"[:800]
            for part in one
            if one[part] != other[part]
        ]
    return found


def _apart(verdict: Json, node: str) -> Json:
    """A verdict without what depends on the room on one node."""
    plain = _plain(verdict, {})
    for plugin in _ROOM:
        plain["filterByPlugin"].get(plugin, set()).discard(node)
        plain["scores"].get(plugin, {}).pop(node, None)
    plain["totals"].pop(node, None)
    plain["filter"].pop(node, None)
    return plain


def followed(rng: Random, case: Json, version: str) -> list[str]:
    """Changes nodes after some pods were asked about; what is asked then must be told of the new ones."""
    if not case["objects"].get("nodes"):
        return []
    changed = deepcopy(case)
    _change(rng, changed["objects"]["nodes"])
    run, fresh = Replay(case, version), Replay(changed, version)
    asked = [run.pod(p).template for p in case.get("incoming", ())]
    answers(run.frameworks, rng.sample(asked, rng.randrange(len(asked) + 1)))
    if not run.state.table.follow(fresh.state.snapshot.nodes):
        return []
    again = [fresh.pod(p).template for p in case.get("incoming", ())]
    same = answers(run.frameworks, asked) == answers(fresh.frameworks, again)
    return [] if same else ["answers differ from those of a table made of the changed nodes"]


def _change(rng: Random, nodes: list[Json]) -> None:
    """One thing about some nodes that a scheduler may ask for."""
    what = rng.choice(["label", "label", "label", "taint", "cordon", "allocatable", "image"])
    key = rng.choice(sorted({k for n in nodes for k in n["metadata"].get("labels", {})} or {"changed"}))
    taint = {"key": "changed", "effect": rng.choice(["NoSchedule", "PreferNoSchedule"])}
    for node in rng.sample(nodes, rng.randint(1, len(nodes))):
        spec, status = node.setdefault("spec", {}), node["status"]
        match what:
            case "label":
                node["metadata"].setdefault("labels", {})[key] = "changed"
            case "taint":
                spec["taints"] = [*(spec.get("taints") or ()), taint]
            case "cordon":
                spec["unschedulable"] = not spec.get("unschedulable")
            case "allocatable":
                status["allocatable"][rng.choice(sorted(status["allocatable"]))] = "1"
            case "image" if status.get("images"):
                status["images"] = status["images"][1:]


def _verdicts(case: Json, version: str) -> list[Json]:
    run = Replay(case, version)
    return [run.judge(run.pod(p)) for p in case.get("incoming", ())]


def _pods(run: Replay, case: Json) -> list[Any]:
    return [run.pod(p) for p in (*case["objects"].get("pods", ()), *case.get("incoming", ()))]


@cache
def _cases() -> list[Json]:
    found = []
    for set_ in sets():
        (path,) = (RECORDINGS / set_).glob("cases.jsonl*")
        found += list(read_lines(path))
    return found


INVARIANTS: tuple[Callable[[Random, Json, str], list[str]], ...] = (order, permutation, unconnected, followed)
