"""Caps on the evictions of one cycle: in all, per node, namespace, owner and domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.options import Limit, PolicyOptions


class Caps:
    """Counts what a plan spends; percentages are of the live pods in question."""

    def __init__(self, options: PolicyOptions, snapshot: Snapshot) -> None:
        self._limits: tuple[tuple[str, Limit | None], ...] = (
            ("in total", options.max_total),
            ("per node", options.max_per_node),
            ("per namespace", options.max_per_namespace),
            ("per owner", options.max_per_owner),
            ("per domain", options.max_per_domain),
        )
        self._spent: Counter[tuple[str, str]] = Counter()
        self._live: Counter[tuple[str, str]] = Counter()
        if any(limit is not None and limit.percent is not None for _, limit in self._limits):
            for pod in snapshot.pods:
                if pod.node_name and not pod.finished and not pod.terminating:
                    self._live.update(self._keys(pod, pod.owner.uid if pod.owner else "", ()))

    @staticmethod
    def _keys(pod: Pod, owner: str, domains: Iterable[str]) -> list[tuple[str, str]]:
        return [
            ("in total", ""),
            ("per node", pod.node_name),
            ("per namespace", pod.namespace),
            ("per owner", owner),
            *(("per domain", d) for d in domains),
        ]

    def spend(self, pod: Pod, domains: Iterable[str]) -> Reason | None:
        """Counts an eviction, or says which cap forbids it. `domains`: key=value of what the pod leaves."""
        limits = dict(self._limits)
        keys = self._keys(pod, pod.owner.uid if pod.owner else "", domains)
        for key in keys:
            limit = limits[key[0]]
            if limit is None:
                continue
            most = limit.of(self._live[key])
            if self._spent[key] >= most:
                what = f" ({key[1]})" if key[1] else ""
                return Reason(
                    ReasonCode.CAP,
                    f"the cap of {limit} evictions {key[0]}{what} and cycle is reached",
                    {"cap": most},
                    "the next cycle goes on",
                )
        self._spent.update(keys)
        return None
