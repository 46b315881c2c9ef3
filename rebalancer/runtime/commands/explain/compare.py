"""`explain --compare`: what the scheduler decided lately, or decides now, beside what the engine says."""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec.structs import replace

from rebalancer.engine.agreement import Agreement, Comparison
from rebalancer.engine.config import SchedulerConfig
from rebalancer.runtime.commands.source import Source, connected
from rebalancer.runtime.cycle.snapshot_checks import check_readable

FRESH = 60.0
"""Seconds after which a refusal says too little of the cluster as it is now."""
_PATIENCE = 120.0
"""Seconds that the watch may take to begin."""


def compare_refusals(source: Source, config: SchedulerConfig | None) -> list[Comparison]:
    """The pods that the scheduler refused within the last minute and that still wait. Raises KubeError."""
    from rebalancer.kube.read.refusals import refusals
    from rebalancer.kube.read.snapshot import read_snapshot

    wait = threading.Event().wait
    with connected(source) as connection:
        # The events first: what they say is then no newer than the cluster that they are judged by.
        said = refusals(connection, since=source.clock() - FRESH, wait=wait)
        snapshot = read_snapshot(connection, now=source.clock, wait=wait)
    check_readable(snapshot)
    pods = {p.key: p for p in snapshot.pods}
    agreement = Agreement(snapshot, config)
    found = []
    for refusal in said:
        pod = pods.get(f"{refusal.namespace}/{refusal.pod}")
        if pod is None or not pod.waits or refusal.uid not in ("", pod.uid):
            continue
        if agreement.state.config.places(pod.template.scheduler_name):
            found.append(agreement.refused(replace(pod, unschedulable=refusal.message)))
    return found


def compare_watched(
    source: Source,
    config: SchedulerConfig | None,
    seconds: float,
    tell: Callable[[Comparison], None],
) -> list[Comparison]:
    """What the scheduler decides in so many seconds; `tell` gets each at once. Raises KubeError."""
    from rebalancer.kube.watch.cache import WatchCache
    from rebalancer.runtime.live.agreement import AgreementWatch

    found: list[Comparison] = []

    def told(comparison: Comparison) -> None:
        found.append(comparison)
        tell(comparison)

    with connected(source) as connection:
        cache = WatchCache(connection).start()
        try:
            if not cache.wait_ready(_PATIENCE):
                cache.check()
            watch = AgreementWatch(cache, lambda: config, told).start()
            try:
                threading.Event().wait(seconds)
            finally:
                watch.stop()
            watch.look()
        finally:
            cache.stop()
    return found
