"""When time alone changes who may be evicted: until then the same cluster gives the same plan."""

from __future__ import annotations

import math

from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.annotations import paused
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import ARRIVAL


def next_change(snapshot: Snapshot, options: PolicyOptions) -> float:
    """The first moment after `snapshot.now`, in seconds of the epoch, at which a rule that reads the clock
    may say something else; infinity if there is none.

    Rules that read it: policy.minPodAge, replacements that are not Ready yet, pauses of namespaces.
    """
    first, now = math.inf, snapshot.now
    ripens = max(options.min_pod_age, ARRIVAL)
    for pod in snapshot.pods:
        if pod.created is None or now - pod.created >= ripens:
            continue
        for age in (options.min_pod_age, ARRIVAL if not pod.ready else 0.0):
            if now - pod.created < age:
                first = min(first, pod.created + age)
    for name, namespace in snapshot.namespaces.items():
        reason = paused(name, namespace.metadata.annotations, now)
        if reason is not None and "until" in reason.numbers:
            first = min(first, reason.numbers["until"])
    return first
