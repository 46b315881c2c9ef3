"""A daemon's eventful life on the embedded cluster: whatever a metric counts happens to it at least once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.outcome import CycleReport, Observers
from rebalancer.policy.annotations import PAUSE
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.daemon.service import Reloader, Service, serve
from rebalancer.runtime.live.configured import LiveOptions, telemetry_options
from rebalancer.runtime.live.once import Reviewed, ReviewedEviction, run_once
from rebalancer.sandbox.cluster import after_outage
from rebalancer.sandbox.objects import Object
from rebalancer.settings import load_settings
from rebalancer.telemetry.start import Telemetry, telemetry_for
from tests.support.processes.daemon_process import free_port
from tests.support.sandbox import Cluster, Reply

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {
        "name": "rebalancer",
        "namespace": "default",
        "annotations": {PAUSE: "we look"},
    },
    "spec": {"holderIdentity": "", "leaseTransitions": 0},
}
NEVER_READY = "search"


class Life:
    """A running daemon: `port` answers /metrics, `cycles` are over."""

    def __init__(self, cluster: Cluster, kubeconfig: Path, telemetry: Telemetry, port: int) -> None:
        self.cluster, self.telemetry, self.port = cluster, telemetry, port
        self.options = ClusterOptions(kubeconfig=str(kubeconfig))
        self.cycles: list[CycleReport] = []

    def unfold(self) -> None:
        """Paused at first, while a reviewed plan comes whose pod is gone; then an eviction is refused for the
        moment, one for good, and a replacement does not become Ready."""
        self._until(lambda: len(self.cycles) >= 2)
        faults = self.cluster.faults
        faults.add(Reply(503), verb="list", resource="services", times=1)
        self._review(ReviewedEviction("shop", "gone-0", "gone", "ReplicaSet/gone"))
        faults.add(Reply(429, headers={"Retry-After": "1"}), subresource="eviction", times=1)
        faults.add(Reply(403), subresource="eviction", times=1, skip=5)
        self.cluster.store.modify(
            "Lease", "rebalancer", "default", lambda o: o["metadata"].pop("annotations")
        )
        self._until(lambda: b"rebalancer_replacements_failed_total 1.0" in self.telemetry.exposition()[0])

    def _review(self, *evictions: ReviewedEviction) -> None:
        connection = Connection(self.options)
        run_once(
            connection,
            LiveOptions(),
            clock=SystemClock(threading.Event()),
            observers=self.telemetry.observers,
            reviewed=Reviewed(evictions),
        )
        connection.close()

    def _until(self, what: Callable[[], bool], seconds: float = 180.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.05)


@contextmanager
def eventful(folder: Path) -> Iterator[Life]:
    """`rebalancer run --execute` after an outage, with a collector that nobody answers for."""
    port, nobody = free_port(), free_port()
    flags = {
        "evictions": {
            **{"enabled": True, "canary": 0, "perSecond": 0, "stabilization": "0s", "coolDown": "0s"},
            **{"readyTimeout": "2s", "pendingTimeout": "2s"},
        },
        "schedule": {"interval": "1s"},
        "leaderElection": {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"},
        "ledger": {"mode": "memory"},
        "health": {"address": f"127.0.0.1:{port}"},
        "telemetry": {"constraintSeries": 5, "otlp": {"endpoint": f"http://127.0.0.1:{nobody}"}},
    }
    settings = load_settings(env={}, flags=flags)

    objects = after_outage()
    for spec in filter(None, map(_pod_spec, objects)):
        spec["terminationGracePeriodSeconds"] = 1

    def ready_after(pod: Object) -> float:
        return 60.0 if pod["metadata"]["name"].startswith(NEVER_READY) else 0.2

    stop = threading.Event()
    with (
        Cluster([*objects, LEASE], ready_after=ready_after, grace=0.1) as cluster,
        telemetry_for(telemetry_options(settings)) as telemetry,
    ):
        cluster.settle()
        life = Life(cluster, cluster.kubeconfig(folder / "kubeconfig"), telemetry, port)
        connection = Connection(life.options)
        observer = Observers(telemetry.observers)

        def follow(service: Service) -> None:
            telemetry.metrics.state.cache_ages = service.cache_ages

        def run() -> None:
            serve(
                connection,
                Reloader(settings, lambda: settings, file=None, observer=observer),
                stop=stop,
                observers=[observer],
                metrics=telemetry.exposition,
                cycle=life.cycles.append,
                begun=follow,
            )

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield life
        finally:
            stop.set()
            thread.join()
            connection.close()


def _pod_spec(o: Object) -> Any:
    """Of a pod, or of the template of its owner; None for everything else."""
    return o["spec"] if o["kind"] == "Pod" else o.get("spec", {}).get("template", {}).get("spec")
