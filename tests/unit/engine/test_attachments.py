"""Volumes that take the places of a node: those of pods, those that are still attached without one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rebalancer.engine.certainty import uncertainties
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.planner import plan
from tests.support.build import claim, node, nodes, pod, snapshot, stateful_set, volume
from tests.support.build.volumes import attachment, csi_node
from tests.unit.engine.judge import Asked

NEW = (volume("pv", "data"), claim("data", "pv"), pod("new").mounts("data"))
FULL = "1 node(s) exceed max volume count"
DETACHED = "until they are detached"


def left(limit: int, *more: Any, version: str = "v1.36.2", new: Any = NEW) -> Asked:
    """Node a-0 takes so many volumes, and has one whose pod is gone."""
    things = nodes(a=1), csi_node("a-0", limit), volume("old", "gone"), attachment("old", "a-0"), new
    return Asked(*things, *more, version=version)


@pytest.mark.parametrize(("version", "fits"), [("v1.31.14", True), ("v1.32.1", False), ("v1.36.2", False)])
def test_a_volume_takes_its_place_until_it_is_detached(version: str, fits: bool) -> None:
    asked = left(1, version=version)
    assert bool(asked.fits) is fits
    assert (FULL in asked.event) is not fits
    assert (DETACHED in asked.doubts) is not fits, "it may be detached before the pod is placed"


def test_where_a_place_is_left_an_attached_volume_makes_nothing_uncertain() -> None:
    asked = left(2)
    assert (asked.fits, asked.doubts) == (["a-0"], "")


def test_a_vendor_may_count_attached_volumes_before_1_32() -> None:
    doubts = left(1, version="v1.31.11+ocp").doubts
    assert "#127757" in doubts
    assert "predicted without that" in doubts


def test_a_volume_of_a_pod_that_is_there_takes_one_place() -> None:
    its = claim("old", "old"), pod("its").mounts("old").on("a-0")
    assert left(2, *its).fits == ["a-0"]
    assert left(1, *its).fits == []
    assert left(1, *its).doubts == "", "it is no volume without a pod"


@pytest.mark.parametrize(
    "other",
    [attachment("unread", "a-0"), attachment("old", "gone"), attachment("old", "a-0", driver="other")],
    ids=["of a volume that is gone", "to a node that is gone", "by another driver"],
)
def test_attachments_that_the_scheduler_does_not_count(other: Any) -> None:
    asked = Asked(nodes(a=1), csi_node("a-0", 1), volume("old", "gone"), other, NEW)
    assert (asked.fits, asked.doubts) == (["a-0"], "")


def test_a_pod_that_comes_to_its_attached_volume_and_goes_again_changes_nothing() -> None:
    asked = left(2, claim("gone", "old"), pod("back").mounts("gone"))
    back = next(p.template for p in asked.snapshot.pods if p.name == "back")
    for _ in range(2):
        asked.state.add("back", back, 0)
        assert asked.fits == ["a-0"]
        asked.state.remove("back")
        assert asked.fits == ["a-0"]
    assert left(1).fits == []


def test_attachments_of_later_take_the_place_of_the_former() -> None:
    asked = left(1)
    asked.state.attach(())
    assert (asked.fits, asked.doubts) == (["a-0"], "")
    asked.state.attach(asked.snapshot.attachments)
    assert asked.fits == []


@pytest.mark.parametrize(
    ("version", "limit", "certain"),
    [("v1.36.2", 5, False), ("v1.36.2", None, True), ("v1.31.14", 5, True)],
)
def test_attachments_that_may_not_be_read_matter_where_volumes_are_limited(
    version: str, limit: int | None, certain: bool
) -> None:
    asked = Asked(nodes(a=1), csi_node("a-0", limit), NEW, version=version)
    unread = msgspec.structs.replace(asked.snapshot, kinds=asked.snapshot.kinds - {"VolumeAttachment"})
    state = ClusterState.of(unread)
    doubts = uncertainties(state, asked.framework.profile, asked.template)
    expected = "the pod mounts claims, and these kinds were not read: VolumeAttachment"
    assert doubts == (() if certain else (expected,))


IN_TREE = {
    "ebs.csi.aws.com": {"awsElasticBlockStore": {"volumeID": "d"}},
    "pd.csi.storage.gke.io": {"gcePersistentDisk": {"pdName": "d"}},
    "disk.csi.azure.com": {"azureDisk": {"diskName": "d", "diskURI": "/d"}},
    "cinder.csi.openstack.org": {"cinder": {"volumeID": "d"}},
    "pxd.portworx.com": {"portworxVolume": {"volumeID": "d"}},
}


@pytest.mark.parametrize("driver", IN_TREE)
def test_a_volume_of_an_in_tree_plugin_needs_a_place_of_the_driver_that_took_over(driver: str) -> None:
    pv, bound, new = volume("pv", "data"), claim("data", "pv"), pod("new").mounts("data")
    del pv.object["spec"]["csi"]
    pv.object["spec"] |= IN_TREE[driver]
    nodes_ = node("a-0"), node("b-0"), csi_node("a-0", 0, driver=driver), csi_node("b-0", 1, driver=driver)
    asked = Asked(*nodes_, pv, bound, new)
    assert asked.fits == ["b-0"]
    assert "volume pv is of an in-tree plugin" in asked.doubts


@pytest.mark.parametrize("driver", IN_TREE)
def test_a_disk_that_is_written_into_a_pod_takes_a_place_of_the_driver_that_took_over(driver: str) -> None:
    pv, bound, new = volume("pv", "data"), claim("data", "pv"), pod("new").mounts("data")
    pv.object["spec"]["csi"]["driver"] = driver
    legacy = pod("legacy").on("a-0")
    legacy._spec["volumes"] = [{"name": "d", **IN_TREE[driver]}]
    things = node("a-0"), node("b-0"), csi_node("a-0", 1, driver=driver), pv, bound, new
    assert Asked(*things).fits == ["a-0", "b-0"]
    assert Asked(*things, legacy).fits == ["b-0"]


def test_no_pod_is_evicted_for_a_place_that_a_volume_without_a_pod_has() -> None:
    set_ = stateful_set("db").spread("hostname").placed({"a-0": 2}).zonal_volumes({"a-0": ""})
    things = nodes(a=1, b=1), set_, csi_node("a-0", 5), csi_node("b-0", 1), volume("old", "gone")
    assert [m.certain for m in plan(snapshot(*things)).moves] == [True]
    assert not plan(snapshot(*things, attachment("old", "b-0"))).moves


def test_what_is_detached_where_the_volume_cannot_be_attached_makes_nothing_uncertain() -> None:
    there = node("b-0").zone("b"), csi_node("b-0", 1), volume("pv", "data", zone="b"), NEW[1:]
    assert left(1, *there, new=()).doubts == ""
