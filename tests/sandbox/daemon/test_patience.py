"""A violation has to last, and a domain to settle, as the watches see it and not only as cycles do."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.build import OwnerBuilder, node, nodes, objects, pod, workload
from tests.support.processes.daemon_process import BRISK, daemon, evictions
from tests.support.sandbox import ApiServer
from tests.support.waiting import until

SETTINGS = BRISK.replace("canary: 0, stabilization: 0s", "enabled: true, canary: 0, stabilization: 6s")


def web(**placed: int) -> OwnerBuilder:
    """Made anew for each test: a builder counts what it has placed."""
    return workload("web").spread("zone", 1).placed({name.replace("_", "-"): n for name, n in placed.items()})


def new(thing: Any) -> Any:
    made = objects(thing)[0]
    del made["metadata"]["resourceVersion"]
    return made


def ready(server: ApiServer, name: str, status: str) -> float:
    """The kubelet says so, as of now, whose time is returned as it is written down."""
    now = datetime.now(UTC).replace(microsecond=0)

    def change(n: Any) -> None:
        said = {"type": "Ready", "status": status, "lastTransitionTime": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
        n["status"]["conditions"] = [said]

    server.store.modify("Node", name, "", change, subresource="status")
    if status == "True":
        server.store.modify("Node", name, "", lambda n: n["spec"].update(taints=[]))
    return now.timestamp()


def scale_in(server: ApiServer, *names: str) -> None:
    for name in names:
        server.store.delete("Pod", name, "default", grace=0)
    left = 6 - len(names)
    server.store.modify("ReplicaSet", "web", "default", lambda r: r["spec"].update(replicas=left))
    server.store.modify(
        "ReplicaSet",
        "web",
        "default",
        lambda r: r["status"].update(observedGeneration=r["metadata"]["generation"], replicas=left),
        subresource="status",
    )


def test_a_violation_that_ended_between_two_cycles_begins_anew(tmp_path: Path) -> None:
    """An autoscaler goes down, up and down; cycles see the violation both times, and nothing in between."""
    settings = SETTINGS.replace("interval: 1s", "interval: 2s, react: off")
    things = (*nodes(a=1, b=1), web(a_0=3, b_0=3))
    with ApiServer(objects(*things)) as server, daemon(server, tmp_path / "d", settings) as d:
        until(lambda: "cycle over (complete)" in d.said())
        scale_in(server, "web-00003", "web-00004")
        until(lambda: "has to last 6 s" in d.said())
        time.sleep(3)
        server.store.create(new(pod("up").labels(app="web").on("b-0")))
        server.store.delete("Pod", "up", "default", grace=0)
        began = time.time()
        until(lambda: evictions(server) > 0)
        assert time.time() - began >= 6


def test_a_kubelet_that_starts_again_is_no_domain_that_came_back(tmp_path: Path) -> None:
    things = (*nodes(a=1, b=1), web(a_0=3, b_0=3))
    settings = SETTINGS.replace("stabilization: 6s", "stabilization: 10m").replace(
        "interval: 1s", "interval: 1s, react: off"
    )
    with ApiServer(objects(*things)) as server, daemon(server, tmp_path / "d", settings) as d:
        until(lambda: "cycle over (complete)" in d.said())
        ready(server, "b-0", "Unknown")
        ready(server, "b-0", "True")
        scale_in(server, "web-00003", "web-00004")
        until(lambda: "has to last 600 s" in d.said() or evictions(server))
        assert evictions(server) == 0


def test_a_zone_that_comes_back_is_not_used_before_it_has_settled(tmp_path: Path) -> None:
    """It counts while it is away, so the violation is old; one of its nodes comes three seconds later."""
    settings = SETTINGS.replace("stabilization: 6s", "stabilization: 8s").replace(
        "interval: 1s", "interval: 1s, react: off, nodeSettle: 4s"
    )
    zone = (node("b-0").zone("b").not_ready(), node("b-1").zone("b").not_ready())
    things = (*nodes(a=1), *zone, web(a_0=6))
    with ApiServer(objects(*things)) as server, daemon(server, tmp_path / "d", settings) as d:
        until(lambda: d.said().count("cycle over (complete)") > 8)
        ready(server, "b-0", "True")
        time.sleep(3)
        assert evictions(server) == 0
        last = ready(server, "b-1", "True")
        until(lambda: evictions(server) > 0)
        assert time.time() - last >= 4
