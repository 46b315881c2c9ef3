"""What makes a prediction uncertain is said, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from rebalancer.engine.certainty import uncertainties
from rebalancer.engine.cluster import ClusterState
from tests.support.build import claim, nodes, pod, volume
from tests.unit.engine.judge import Asked


def test_an_ordinary_pod_is_certain() -> None:
    assert Asked(nodes(a=1), pod("new").spread("zone", 1)).doubts == ""


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("schedulerName", "other", "another scheduler, 'other'"),
        ("schedulingGates", [{"name": "wait"}], "scheduling gates: wait"),
        ("resourceClaims", [{"name": "gpu"}], "resource claims"),
        ("tolerations", [{"key": "k", "operator": "Gt", "value": "3"}], "feature gate"),
    ],
)
def test_what_is_not_modelled_is_named(field: str, value: object, text: str) -> None:
    new = pod("new")
    new._spec[field] = value
    assert text in Asked(nodes(a=1), new).doubts


@pytest.mark.parametrize(
    ("version", "certain"),
    [("v1.28.9", False), ("v1.29.0", True), ("v1.36.2", True), ("v1.37.0", False), ("", True)],
)
def test_versions_outside_the_contract_are_uncertain(version: str, certain: bool) -> None:
    assert (Asked(nodes(a=1), pod("new"), version=version).doubts == "") is certain


def test_an_unknown_version_is_an_assumption() -> None:
    asked = Asked(nodes(a=1), pod("new"), version="")
    assert "server version unknown: rules of kube-scheduler 1.36" in asked.framework.assumptions()


def test_kinds_that_were_not_read_do_not_crash_and_are_named() -> None:
    asked = Asked(nodes(a=1), volume("pv", "data"), claim("data", "pv"), pod("new").mounts("data"))
    hidden = asked.snapshot.kinds - {"PersistentVolume", "CSINode"}
    state = ClusterState.of(msgspec.structs.replace(asked.snapshot, kinds=hidden, volumes={}))
    framework = asked.framework.__class__(state)
    assert framework.feasible(asked.template).all()
    (doubt,) = uncertainties(state, framework.profile, asked.template)
    assert "PersistentVolume, CSINode" in doubt
