"""An API server whose watches bring nothing and end in time, as if nothing happened: it is not believed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome import End
from rebalancer.policy.annotations import EVICT
from rebalancer.policy.options import Method
from rebalancer.runtime.last_look import cluster_now
from rebalancer.runtime.live.assembly import Surroundings
from tests.sandbox.cycle.last_look.test_last_look import CLUSTER, on_racks, with_add_ons
from tests.sandbox.cycle.last_look.test_stale import DEAD, ONE_PLAN, cordon_all, fill_all
from tests.support.build import node_claim, node_pool, nodes, objects, workload
from tests.support.build.volumes import attachment, csi_node
from tests.support.runs.one_cycle import Run
from tests.support.sandbox import ApiServer, Reply
from tests.support.sandbox.hung import hang
from tests.support.servers.api import connected
from tests.support.waiting import until

SHORT = replace(WatchOptions(), close_timeout=1)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_now, "_PATIENCE", 2.5)


@pytest.mark.parametrize("version", ["1.36.2", "1.30.4"])
@pytest.mark.parametrize(
    ("kind", "change"), [("Node", cordon_all), ("Pod", fill_all)], ids=["nodes cordoned", "room taken"]
)
def test_a_watch_cache_that_hangs_hides_nothing_about_the_destination(
    kind: str, change: Callable[[ApiServer], None], version: str
) -> None:
    with (
        ApiServer(objects(*DEAD), progress_notify=False, version=version) as server,
        connected(server) as c,
    ):
        cache = WatchCache(c, options=SHORT).start()
        try:
            assert cache.wait_ready(60)

            def changed(_: int) -> None:
                hang(server, kind)
                change(server)

            run = Run(server, ONE_PLAN, after_plan=changed, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    assert run.report.end is not End.COMPLETE
    assert {"it has not brought" in o.message for o in run.report.outcomes} == {True}


def test_a_no_on_the_victims_node_that_the_watch_cache_does_not_show_is_missed() -> None:
    with ApiServer(objects(*DEAD), progress_notify=False) as server, connected(server) as c:
        cache = WatchCache(c, options=SHORT).start()
        try:
            assert cache.wait_ready(60)

            def said(_: int) -> None:
                hang(server, "Node")
                no = {EVICT: "false"}
                server.store.modify(
                    "Node", "a-0", None, lambda o: o["metadata"].setdefault("annotations", {}).update(no)
                )

            run = Run(server, ONE_PLAN, after_plan=said, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    assert {"it has not brought" in o.message for o in run.report.outcomes} == {True}


@pytest.mark.parametrize("back", ["named anew", "only gone"])
def test_a_spread_that_was_mended_where_no_replacement_is_expected_is_not_mended_again(back: str) -> None:
    things = (*nodes(a=1, b=2, c=2), workload("web").spread("zone", 1).placed({"a-0": 4, "b-0": 1}))
    with ApiServer(objects(*things), progress_notify=False) as server, connected(server) as c:
        cache = WatchCache(c, options=SHORT).start()
        try:
            assert cache.wait_ready(60)

            def mended(_: int) -> None:
                hang(server, "Pod")
                for old in [p for p in server.store.list("Pod") if p["spec"]["nodeName"] == "a-0"][-2:]:
                    server.store.delete("Pod", old["metadata"]["name"], "default", grace=0)
                    new = deepcopy(old)
                    new["metadata"] = {
                        k: old["metadata"][k] for k in ("namespace", "labels", "ownerReferences")
                    }
                    new["metadata"]["name"] = f"{old['metadata']['name']}-again"
                    new["spec"]["nodeName"] = "c-1"
                    if back == "named anew":
                        server.store.create(new)

            run = Run(server, ONE_PLAN, after_plan=mended, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    assert {"it has not brought" in o.message for o in run.report.outcomes} == {True}


def test_a_quota_that_the_watch_cache_does_not_show_is_read_before_each_eviction() -> None:
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    with ApiServer(objects(*things), bookmark_every=0.1) as server, connected(server) as c:
        cache = WatchCache(c, options=SHORT).start()
        try:
            assert cache.wait_ready(60)

            def lowered(_: int) -> None:
                hang(server, "ResourceQuota")
                few = {"hard": {"pods": "3"}, "used": {"pods": "4"}}
                meta = {"name": "few", "namespace": "default"}
                quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "status": few}
                if server.store.find("ResourceQuota", "few", "default") is None:
                    server.store.create({**quota, "spec": {"hard": few["hard"]}})

            run = Run(server, ONE_PLAN, after_plan=lowered, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    codes = {o.reason.code for o in run.report.outcomes if o.reason is not None}
    assert codes == {ReasonCode.QUOTA}


def made(kind: str, group: str, name: str = "x", **more: Any) -> Any:
    api = f"{group}/v1" if group else "v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **more}


STORAGE = "storage.k8s.io"
KINDS: dict[str, Any] = {
    "Namespace": made("Namespace", ""),
    "NodeClaim": node_claim("x", "a-0"),
    "NodePool": node_pool("x"),
    "PriorityClass": made("PriorityClass", "scheduling.k8s.io", value=1),
    "CSIDriver": made("CSIDriver", STORAGE, spec={}),
    "CSINode": csi_node("x"),
    "StorageClass": made("StorageClass", STORAGE, provisioner="csi.example"),
    "VolumeAttachment": attachment("pv", "a-0"),
    "Service": made("Service", "", spec={"selector": {"a": "b"}}),
}
OF_VOLUMES = ("CSIDriver", "CSINode", "StorageClass", "VolumeAttachment")
"""Of these only what a pod with a volume rests on matters."""


@pytest.mark.parametrize(
    ("kind", "how"), [*((kind, "changed") for kind in KINDS), ("NodeClaim", "new"), ("NodeClaim", "gone")]
)
def test_what_a_watch_cache_does_not_show_of_kinds_that_are_read_as_a_whole(
    kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_now, "_PATIENCE", 30.0)
    one, *_ = objects(KINDS[kind])
    things = on_racks("1", "2") if kind in OF_VOLUMES else objects(*CLUSTER)
    with with_add_ons([*things, one], progress_notify=False) as w:
        name, within = one["metadata"]["name"], "default" if kind == "Service" else None
        w.move = replace(w.move, method=Method.REPLACE_FIRST) if kind == "Service" else w.move

        def change(number: str) -> None:
            if how == "changed":
                w.server.store.modify(
                    kind, name, within, lambda o: o["metadata"].update(labels={"n": number})
                )
            elif how == "gone" and number == "2":
                w.server.store.delete(kind, name, within, grace=0)
            else:
                w.server.store.create({**one, "metadata": {**one["metadata"], "name": f"x{number}"}})

        def looked() -> Reason | None:
            w.look.spot_check._whole.clear()  # seconds have passed
            return w.why_not()

        assert looked() is None
        change("1")
        assert looked() is None
        monkeypatch.setattr(cluster_now, "_PATIENCE", 5.0)
        hang(w.server, kind)
        change("2")
        reason = looked()
    assert reason is not None
    assert reason.code is ReasonCode.NOT_CURRENT
    assert f"it has not brought what the API server has of {kind}" in reason.message


@pytest.mark.parametrize("kind", ["Pod", "ReplicaSet", "Namespace"])
def test_answers_that_are_older_than_what_the_watch_has_brought_are_not_believed(kind: str) -> None:
    """A proxy keeps them: the no is in none of what is read, only in what is watched."""
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    resource = {"Pod": "pods", "ReplicaSet": "replicasets", "Namespace": "namespaces"}[kind]
    with ApiServer(objects(*things), bookmark_every=0.1) as server, connected(server) as c:
        cache = WatchCache(c, options=SHORT).start()
        try:
            assert cache.wait_ready(60)

            def kept(_: int) -> None:
                for o in server.store.list(kind):
                    name, within = o["metadata"]["name"], o["metadata"].get("namespace")
                    server.faults.add(Reply(200, deepcopy(o)), verb="get", resource=resource, name=name)
                    server.store.modify(
                        kind, name, within, lambda o: o["metadata"].update(annotations={EVICT: "false"})
                    )
                    new = server.store.get(kind, name, within)["metadata"]["resourceVersion"]
                    until(lambda: cache.version_of(kind, within or "", name) == new)  # noqa: B023

            run = Run(server, ONE_PLAN, after_plan=kept, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    assert {"was answered as it had been" in o.message for o in run.report.outcomes} == {True}
