"""Hundreds of pods change every second under the whole daemon: it keeps up, and evicts what it should."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.support.build import deployment, nodes, objects, pod
from tests.support.processes.daemon_process import free_port, get
from tests.support.processes.pair import SETTINGS, Process, witnessed
from tests.support.sandbox import Cluster
from tests.support.sandbox.authority import User
from tests.support.waiting import until

CHURNING = 1200
THINGS = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "churn"}},
    *nodes(a=3, b=3, c=3),
    deployment("web").spread("zone", 1).placed({"a-0": 2, "b-0": 2, "c-0": 2}),
    deployment("calm")
    .spread("zone", 1)
    .spread("hostname", 1)
    .placed({f"{z}-{i}": 1 for z in "abc" for i in (1, 2)}),
)


class Churn:
    """Changes pods that nobody has to evict, in a thread of the server's process: `rate` a second.

    Of ten changes seven are annotations, two labels, one a pod that goes and one that comes for it.
    """

    def __init__(self, cluster: Cluster, rate: int) -> None:
        self._store = cluster.store
        self._rate = rate
        self._rng = random.Random(1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changes = 0
        self.seconds = 0.0
        model = objects(pod("x", namespace="churn"))[0]
        self._model: dict[str, Any] = {**model, "status": {"phase": "Running"}}
        self._names: list[str] = []
        for i in range(CHURNING):
            self._create(f"p{i:05d}")

    def _create(self, name: str) -> None:
        new = {**self._model, "metadata": {"name": name, "namespace": "churn", "labels": {"app": "churn"}}}
        new["spec"] = {**self._model["spec"], "nodeName": f"{self._rng.choice('abc')}-2", "containers": [
            {"name": "main", "image": "registry.example/app:1"}]}  # fmt: skip
        self._store.create(new)
        self._names.append(name)

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.is_set():
            for _ in range(20):
                self._change()
            self.seconds = time.monotonic() - began
            time.sleep(max(0.0, self.changes / self._rate - self.seconds))

    def _change(self) -> None:
        kind, number = self._rng.randrange(10), self.changes
        at = self._rng.randrange(len(self._names))
        self.changes += 1
        if kind == 9:
            self._store.delete("Pod", self._names.pop(at), "churn", grace=0)
            self._create(f"q{number:07d}")
            self.changes += 1
            return

        def touch(o: dict[str, Any]) -> None:
            if kind < 7:
                o["metadata"]["annotations"] = {"example/mark": f"{number:09d}"}
            else:
                o["metadata"]["labels"] = {"app": "churn", "mark": f"m{number}"}

        self._store.modify("Pod", self._names[at], "churn", touch)


class Meter:
    """What the daemon's process takes, and the age of its cache, looked at now and then."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid, self._port = pid, port
        self._cpu, self._at = self._used(), time.monotonic()
        self.resident: list[float] = []
        self.ages: list[float] = []

    def look(self) -> None:
        """Once."""
        self.resident.append(int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * 4 / 1024)
        metrics = get(self._port, "/metrics")[1]
        found = re.search(r'^rebalancer_cache_age_seconds\{.*kind="Pod".*\} (\S+)', metrics, re.M)
        assert found, "no age"
        self.ages.append(float(found[1]))

    @property
    def cpu(self) -> float:
        """Share of one core since the start."""
        return (self._used() - self._cpu) / (time.monotonic() - self._at)

    def _used(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


ZONE = "topology.kubernetes.io/zone"


def zones(cluster: Cluster, app: str) -> list[int]:
    """Pods of a workload per zone."""
    zone = {n["metadata"]["name"]: n["metadata"]["labels"][ZONE] for n in cluster.store.list("Node")}
    count = Counter(dict.fromkeys("abc", 0))
    for p in cluster.store.list("Pod", "default"):
        if p["metadata"]["labels"].get("app") == app and "deletionTimestamp" not in p["metadata"]:
            count[zone.get(p["spec"].get("nodeName"), "?")] += 1
    return sorted(count.values())


def skew(cluster: Cluster) -> None:
    """Two nodes turn out to be in zone a, and web's pods on them: all six are there now."""
    for name in ("b-0", "c-0"):
        cluster.store.modify("Node", name, None, lambda o: o["metadata"]["labels"].update({ZONE: "a"}))


@pytest.mark.slow
@pytest.mark.parametrize("rate", [200, pytest.param(1000, marks=pytest.mark.nightly)])
def test_so_many_changes_a_second_under_the_whole_daemon(rate: int, tmp_path: Path) -> None:
    tokens = {"first": User("first", ("system:masters",))}
    port = free_port()
    settings = SETTINGS.replace("perSecond: 4", "perSecond: 0") + f'health: {{address: "127.0.0.1:{port}"}}\n'
    with Cluster(objects(*THINGS), ready_after=0.1, grace=0.1, tokens=tokens, history=20_000) as cluster:
        churn = Churn(cluster, rate)
        cluster.settle()
        witness = witnessed(cluster)
        d = Process(cluster, tmp_path, "first", settings=settings)
        try:
            until(lambda: d.said().count("cycle over") >= 2)
            meter = Meter(d.popen.pid, port)
            with churn:
                for _ in range(4):
                    time.sleep(0.5)
                    meter.look()
                assert not witness.evicted, "nothing was to be evicted yet"
                skew(cluster)
                began = time.monotonic()
                first = until(lambda: bool(witness.evicted))
                until(lambda: zones(cluster, "web") == [2, 2, 2])
                balanced = time.monotonic() - began
                for _ in range(6):
                    time.sleep(0.5)
                    meter.look()
                ready = get(port, "/readyz")
            cpu = meter.cpu
            before = d.said().count("cycle over")
            until(lambda: d.said().count("cycle over") >= before + 2)
            assert d.end() == 0
        finally:
            d.kill()
        reached = churn.changes / churn.seconds
        print(f"{churn.changes} changes in {churn.seconds:.1f} s, {reached:.0f} a second; cycles {before}")
        print(f"skewed: first eviction after {first:.1f} s, balanced after {balanced:.1f} s")
        print(f"cache age at most {max(meter.ages):.2f} s; {cpu:.0%} of a core")
        print(f"resident MiB {[round(x) for x in meter.resident]}")
        witness.check()
        assert "Traceback" not in d.said()
        assert "this is a bug" not in d.said()
        assert ready[0] == 200
        assert reached > 0.2 * rate
        assert max(meter.ages) < 30, "one that does not keep up falls behind without end"
        assert len(witness.evicted) == 4, "as few as it takes"
        assert all(n.startswith("default/web-") for n in witness.names.values())
        assert zones(cluster, "calm") == [2, 2, 2]
        assert max(meter.resident[4:]) - mean(meter.resident[:4]) < 40
