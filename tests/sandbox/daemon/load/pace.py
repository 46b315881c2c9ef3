"""What noise elsewhere costs: the same work in a quiet cluster and in one where others are busy too.

`python -m tests.sandbox.daemon.load.pace` prints, for each kind of noise, how long a cycle took to mend a
cluster in which a zone has come back, and how many evictions it made.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.outcome import CycleReport
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.live.once import run_once
from tests.support.build import deployment, node, nodes, objects, pdb
from tests.support.runs.witness import Witness
from tests.support.sandbox import ApiError, Cluster, Delay, Gone, Reply

ZONE_IS_BACK = (
    *nodes(a=3, b=3, c=3),
    *(deployment(f"w{i}").spread("zone", 1).placed({"a-0": 3, "b-0": 3}) for i in range(9)),
    *(pdb(f"w{i}", {"owner": f"w{i}"}, max_unavailable=1) for i in range(9)),
)
"""Nine workloads of six pods, none of them in the third zone: 18 evictions."""
LIMITS = SettleLimits(ready=60.0, pending=10.0, poll=0.1)

Happen = Callable[[Cluster, int], object]
"""Does something in the cluster; the number says how often it was called."""


class Pace(Struct, frozen=True):
    """What a run took, and what came of it."""

    seconds: float
    report: CycleReport
    happened: int
    problems: list[str]


def batch_node(cluster: Cluster, number: int) -> None:
    """A node of somebody else's joins, is tainted more, is cordoned, goes."""
    name, step = f"batch-{number // 4}", number % 4
    if step == 0:
        made = objects(node(name).zone("a").taint("batch", "NoSchedule"))[0]
        made["metadata"].pop("resourceVersion", None)
        cluster.store.create(made)
    elif step == 1:
        taints = [{"key": "batch", "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]
        cluster.store.modify("Node", name, None, lambda o: o["spec"].update(taints=taints))
    elif step == 2:
        cluster.cordon(name, on=True)
    else:
        cluster.store.delete("Node", name, None, grace=0)


def status_annotations(cluster: Cluster, number: int) -> None:
    """An operator writes the state of ten pods."""

    def write(pod: dict[str, Any]) -> None:
        pod["metadata"].setdefault("annotations", {})["status"] = f'{{"xlog": {number}}}'

    for pod in cluster.store.list("Pod", "default")[:10]:
        cluster.store.modify("Pod", pod["metadata"]["name"], "default", write)


def batch_pod(cluster: Cluster, number: int) -> None:
    """A pod that waits for a node which does not come, or for more room than any node has."""
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000"}}}]}
    if number % 2:
        spec = {"containers": [{"name": "c"}], "nodeSelector": {"pool": "batch"}}
    meta = {"name": f"batch-{number}", "namespace": "default", "labels": {"app": "batch"}}
    cluster.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    if number > 8:
        cluster.store.delete("Pod", f"batch-{number - 8}", "default", grace=0)


def busy_server(cluster: Cluster, number: int) -> None:
    """One of three evictions is answered 429 with Retry-After."""
    if number == 0:
        busy = Reply(429, headers={"Retry-After": "1"})
        cluster.faults.add(busy, subresource="eviction", probability=0.33)


def half_open(cluster: Cluster, number: int) -> None:
    """A watch goes silent."""
    resource = ("nodes", "pods", "poddisruptionbudgets")[number % 3]
    cluster.faults.add(Delay(math.inf, after_events=0), verb="watch", resource=resource, times=1)


def history_lost(cluster: Cluster, _: int) -> None:
    """A watch has to list again."""
    cluster.faults.add(Gone(), verb="watch", resource="pods", times=1)


ELSEWHERE: Mapping[Happen, float] = {batch_node: 0.75, status_annotations: 1.25, batch_pod: 1.0}
"""What happens → every so many seconds: four times as often as the noise that once stopped everything."""
FAULTS: Mapping[Happen, float] = {busy_server: 60.0, half_open: 10.0, history_lost: 7.0}
NOISE: Mapping[str, Mapping[Happen, float]] = {
    "quiet": {},
    "elsewhere": ELSEWHERE,
    "elsewhere and faults": {**ELSEWHERE, **FAULTS},
}


@contextmanager
def noisy(cluster: Cluster, noise: Mapping[Happen, float]) -> Iterator[list[str]]:
    """Makes noise until the end; what happened."""
    stop, happened = threading.Event(), list[str]()

    def make(happen: Happen, every: float) -> None:
        for number in itertools.count():
            try:
                happen(cluster, number)
                happened.append(happen.__name__)
            except (ApiError, KeyError):
                pass  # what was to be changed is gone by now
            if stop.wait(every):
                return

    threads = [threading.Thread(target=make, args=each) for each in noise.items()]
    for thread in threads:
        thread.start()
    try:
        yield happened
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        cluster.faults.clear()


def pace(noise: Mapping[Happen, float], folder: Path, *, ready_after: float = 1.0) -> Pace:
    """A daemon's cycle over a zone that is back: nothing evicted outside of a plan, nothing twice."""
    with Cluster(
        objects(*ZONE_IS_BACK), seed=1, ready_after=ready_after, grace=0.2, bookmark_every=2.0
    ) as cluster:
        cluster.settle()
        witness, problems, clock = Witness(cluster.server), list[str](), SystemClock()
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(folder / "config"))))
        memory = Memory(clock, HistoryRules(), limits=CircuitLimits())
        cache = WatchCache(connection, options=WatchOptions(silence=10.0)).start()
        try:
            cache.wait_ready(60.0)
            with noisy(cluster, noise) as happened:
                began = time.monotonic()
                report = run_once(
                    connection,
                    LiveOptions(execute=True, settle=LIMITS),
                    clock=clock,
                    observers=[witness],
                    around=Surroundings(memory=memory, cache=cache),
                )
                seconds = time.monotonic() - began
        finally:
            cache.stop()
            connection.close()
        try:
            witness.check()
        except AssertionError as e:
            problems.append(str(e))
    return Pace(seconds, report, len(happened), problems)


def main() -> None:
    """Arguments: --ready-after, in seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ready-after", type=float, default=2.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, noise in NOISE.items():
            p = pace(noise, Path(folder), ready_after=given.ready_after)
            print(
                f"{name}: {p.report.end.value} after {p.seconds:.1f} s, {p.report.evicted} evictions, "
                f"{p.report.plans} plans, {p.happened} things happened {p.problems or ''}"
                f" {p.report.message}",
                flush=True,
            )


if __name__ == "__main__":
    main()
