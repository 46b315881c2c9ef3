"""Which release has which change, and when the scheduler may be another than the server's version says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rebalancer.engine.plugins.node_volume_limits import limit_resource
from rebalancer.engine.version import (
    CHANGES,
    EMPTY_SELECTORS,
    NEGATED_NAMESPACES,
    NODE_WITHOUT_LIMITS,
    SIDECAR_PORTS,
    TAINTS_UNNAMED,
    Change,
    ServerVersion,
    releases,
)
from tests.support.build import claim, node, nodes, pod, volume
from tests.unit.engine.judge import Asked


@pytest.mark.parametrize(
    ("text", "minor", "patch", "suffix"),
    [
        ("v1.34.2", (1, 34), 2, ""),
        ("1.36.2", (1, 36), 2, ""),
        ("v1.33.4-gke.1036000", (1, 33), 4, "-gke.1036000"),
        ("v1.34.2+k3s1", (1, 34), 2, "+k3s1"),
        ("1.36+", (1, 36), None, "+"),
        ("v1.35", (1, 35), None, ""),
        ("", (1, 37), 0, ""),
        ("rebalancer", (1, 37), 0, ""),
    ],
)
def test_a_version_is_read(text: str, minor: tuple[int, int], patch: int | None, suffix: str) -> None:
    found = ServerVersion.parse(text)
    assert (found.minor, found.patch, found.suffix, found.text) == (minor, patch, suffix, text)


@pytest.mark.parametrize(
    ("change", "version", "has"),
    [
        (SIDECAR_PORTS, "v1.32.13", False),
        (SIDECAR_PORTS, "v1.33.5", False),
        (SIDECAR_PORTS, "v1.33.6", True),
        (SIDECAR_PORTS, "v1.33", True),
        (SIDECAR_PORTS, "v1.34.0", True),
        (TAINTS_UNNAMED, "v1.34.1", False),
        (TAINTS_UNNAMED, "v1.34.2", True),
        (NODE_WITHOUT_LIMITS, "v1.31.14", False),
        (NODE_WITHOUT_LIMITS, "v1.32.0", True),
        (NEGATED_NAMESPACES, "v1.33.13", False),
        (NEGATED_NAMESPACES, "v1.34.12", True),
        (NEGATED_NAMESPACES, "v1.34.13", False),
        (NEGATED_NAMESPACES, "v1.36.5", True),
        (NEGATED_NAMESPACES, "v1.36.6", False),
        (NEGATED_NAMESPACES, "v1.37.0", False),
        (NEGATED_NAMESPACES, "", False),
    ],
)
def test_patch_releases_count(change: Change, version: str, has: bool) -> None:
    assert ServerVersion.parse(version).has(change) is has


@pytest.mark.parametrize(
    ("change", "version", "why"),
    [
        (SIDECAR_PORTS, "v1.32.4", ""),
        (SIDECAR_PORTS, "v1.32.4-eks-1a2b3c", "is a vendor's, who may have backported what came later"),
        (SIDECAR_PORTS, "v1.33.6", "a minor version behind"),
        (SIDECAR_PORTS, "v1.33", "names no patch release"),
        (SIDECAR_PORTS, "v1.34.0", "a minor version behind"),
        (SIDECAR_PORTS, "v1.35.0", ""),
        (SIDECAR_PORTS, "v1.35.0-eks-1a2b3c", ""),
        (NODE_WITHOUT_LIMITS, "v1.31.14", ""),
        (NODE_WITHOUT_LIMITS, "v1.32.0", "a minor version behind"),
        (NODE_WITHOUT_LIMITS, "v1.33.0", ""),
        (NEGATED_NAMESPACES, "v1.33.13", ""),
        (NEGATED_NAMESPACES, "v1.34.9", "a minor version behind"),
        (NEGATED_NAMESPACES, "v1.35.10", "which patch releases from 1.35.10 on have the fix"),
        (NEGATED_NAMESPACES, "v1.36.2", "a minor version behind the server, and have the fix"),
        (NEGATED_NAMESPACES, "v1.37.0", "a minor version behind"),
        (NEGATED_NAMESPACES, "v1.37.0-eks-1a2b3c", "a minor version behind"),
        (NEGATED_NAMESPACES, "v1.38.0-eks-1a2b3c", ""),
        (EMPTY_SELECTORS, "v1.37.0", ""),
        (EMPTY_SELECTORS, "v1.37.0-eks-1a2b3c", "is a vendor's"),
    ],
)
def test_what_the_version_does_not_settle_is_said(change: Change, version: str, why: str) -> None:
    doubt = ServerVersion.parse(version).doubt(change)
    assert why in doubt
    assert bool(why) is bool(doubt)


def test_the_documentation_lists_every_change_with_its_releases_and_source() -> None:
    text = (Path(__file__).parents[3] / "docs" / "scheduler.md").read_text()
    for change in CHANGES:
        assert f"| {change.what} | {releases(change)} | {change.source} |" in text


TERM: dict[str, Any] = {
    "labelSelector": {"matchLabels": {"app": "web"}},
    "topologyKey": "kubernetes.io/hostname",
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
}


def excluding() -> Any:
    new = pod("new")
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}
    new._spec["affinity"] = {"podAntiAffinity": required}
    return new


def with_sidecar_port(name: str) -> Any:
    made = pod(name)
    made._spec["initContainers"] = [
        {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 80, "hostPort": 80}]}
    ]
    return made


def with_port(name: str) -> Any:
    made = pod(name)
    made._spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return made


def of_the_whole_pod(name: str) -> Any:
    made = pod(name)
    made._spec["resources"] = {"requests": {"cpu": "1"}}
    return made


def nominated(name: str, *, gated: bool) -> Any:
    (made,) = pod(name).requests(cpu=1).build()
    made["status"] = {"phase": "Pending", "nominatedNodeName": "a-0"}
    if gated:
        made["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    return made


def counting_all() -> Any:
    new = pod("new")
    new._spec["topologySpreadConstraints"] = [
        {
            **{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"},
            "labelSelector": {},
        }
    ]
    return new


HANGING: list[tuple[str, list[Any], str, bool]] = [
    ("a term that excludes namespaces, before the regression", [excluding()], "v1.33.13", True),
    ("a term that excludes namespaces", [excluding()], "v1.34.9", False),
    ("a term that excludes namespaces, version unknown", [excluding()], "", False),
    ("a sidecar's host port", [with_sidecar_port("new")], "v1.34.0", False),
    ("a sidecar's host port, a minor later", [with_sidecar_port("new")], "v1.35.0", True),
    (
        "a host port beside a sidecar's",
        [with_sidecar_port("other").on("a-0"), with_port("new")],
        "v1.34.0",
        False,
    ),
    ("no host port beside a sidecar's", [with_sidecar_port("other").on("a-0"), pod("new")], "v1.34.0", True),
    ("pod-level resources", [of_the_whole_pod("new")], "v1.34.3", False),
    ("beside pod-level resources", [of_the_whole_pod("other").on("a-0"), pod("new")], "v1.34.3", False),
    ("a gated pod's nomination", [nominated("g", gated=True), pod("new")], "v1.37.0", False),
    ("a gated pod's nomination, a minor before", [nominated("g", gated=True), pod("new")], "v1.36.2", True),
    ("the nomination of a pod without gates", [nominated("g", gated=False), pod("new")], "v1.37.0", True),
    ("an empty selector", [counting_all()], "v1.37.0", True),
    ("an empty selector, on a vendor's server", [counting_all()], "v1.37.0-eks-1a2b3c", False),
    ("pod-level resources, a minor later", [of_the_whole_pod("new")], "v1.35.0", True),
]


@pytest.mark.parametrize(("sentence", "things", "version", "certain"), HANGING, ids=[h[0] for h in HANGING])
def test_a_verdict_that_hangs_on_a_change_is_uncertain(
    sentence: str, things: list[Any], version: str, certain: bool
) -> None:
    del sentence
    doubts = Asked(nodes(a=2), *things, version=version).doubts
    assert ("versions of kube-scheduler differ here" in doubts) is not certain
    assert bool(doubts) is not certain


@pytest.mark.parametrize(("version", "certain"), [("v1.31.14", True), ("v1.32.0", False), ("v1.33.0", True)])
def test_a_limit_of_volumes_in_allocatable_is_a_doubt_where_it_went(version: str, certain: bool) -> None:
    limited = node("a").allocatable({limit_resource("csi.example"): "1"})
    things = limited, volume("pv", "data"), claim("data", "pv"), pod("new").mounts("data")
    assert (Asked(*things, version=version).doubts == "") is certain


def test_a_long_drivers_limit_ends_in_a_hash() -> None:
    assert limit_resource("csi.example") == "attachable-volumes-csi-csi.example"
    long = limit_resource("a-driver-with-a-very-long-name.storage.example.com")
    assert long.startswith("attachable-volumes-csi-a-driver-with-a-very-lo")
    assert len(long) == 62


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("v1.34.1", "node(s) had untolerated taint {dedicated: db}"),
        ("v1.34.2", "node(s) had untolerated taint(s)"),
    ],
)
def test_an_event_is_worded_as_the_version_does(version: str, reason: str) -> None:
    asked = Asked(node("a").taint("dedicated", "db"), pod("new"), version=version)
    assert asked.event.startswith(f"0/1 nodes are available: 1 {reason}.")


def test_a_port_that_two_pods_share_is_free_when_the_first_goes() -> None:
    asked = Asked(nodes(a=1), with_port("one").on("a-0"), with_port("two").on("a-0"), with_port("new"))
    keys = {p.name: p.uid for p in asked.snapshot.pods}
    assert asked.fits == []
    asked.state.remove(keys["one"])
    assert asked.fits == ["a-0"]
    asked.state.add(keys["one"], asked.template, 0)
    assert asked.fits == []


def test_what_is_only_tried_leaves_shared_ports_as_they_were() -> None:
    asked = Asked(nodes(a=1), with_port("one").on("a-0"), with_port("two").on("a-0"), with_port("new"))
    key = next(p.uid for p in asked.snapshot.pods if p.name == "one")
    with asked.state.removed([key]):
        assert asked.fits == ["a-0"]
    assert asked.fits == []
    with asked.state.assumed(0, [("guest", asked.template)]):
        pass
    assert asked.fits == []


def test_what_is_tried_within_what_is_tried_leaves_ports_as_they_were() -> None:
    asked = Asked(nodes(a=1), with_port("one").on("a-0"), pod("other").on("a-0"), with_port("new"))
    other = next(p.template for p in asked.snapshot.pods if p.name == "other")
    with asked.state.also([("without a port", other, 0)]):
        with asked.state.also([("with the same port", asked.template, 0)]):
            assert asked.fits == []
        assert asked.fits == []
    assert asked.fits == []


def test_a_pod_is_not_in_the_way_of_its_own_nomination() -> None:
    new = pod("new").requests(cpu="3")
    asked = Asked(node("a").cpu(4), new)
    asked.state.nominate("me", asked.template, 0)
    assert asked.fits == []
    with asked.state.unhindered("me"):
        assert asked.fits == ["a"]
    assert asked.fits == []
