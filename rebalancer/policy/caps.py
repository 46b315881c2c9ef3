"""Caps on the evictions of one cycle: in all, per node, namespace, owner and domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.options import Limit, PolicyOptions


class Caps:
    """Counts what is spent; percentages are of the live pods in question, as of the snapshot."""

    def __init__(self, options: PolicyOptions, snapshot: Snapshot) -> None:
        self._limits: dict[str, Limit | None] = {
            "in total": options.max_total,
            "per node": options.max_per_node,
            "per namespace": options.max_per_namespace,
            "per owner": options.max_per_owner,
            "per domain": options.max_per_domain,
        }
        self._spent: Counter[tuple[str, str]] = Counter()
        self._live: Counter[tuple[str, str]] = Counter()
        self._labels = {n.name: n.labels for n in snapshot.nodes}
        self._domains: dict[str, int] = {}
        if any(limit is not None and limit.percent is not None for limit in self._limits.values()):
            for pod in snapshot.pods:
                if pod.node_name and not pod.finished and not pod.terminating:
                    self._live.update(_keys(pod, ()))

    def spend(self, pod: Pod, domains: Iterable[str]) -> Reason | None:
        """Counts an eviction, or says which cap forbids it. `domains`: key=value of what the pod leaves."""
        keys = _keys(pod, domains)
        for key in keys:
            limit = self._limits[key[0]]
            if limit is None:
                continue
            most = limit.of(self._of(key))
            if self._spent[key] >= most:
                owner = f"{pod.owner.kind}/{pod.owner.name}" if pod.owner else ""
                named = owner if key[0] == "per owner" else key[1]
                what = f" ({named})" if named else ""
                return Reason(
                    ReasonCode.CAP,
                    f"the cap of {limit} evictions {key[0]}{what} and cycle is reached",
                    {"cap": most},
                    "the next cycle goes on",
                )
        self._spent.update(keys)
        return None

    def give_back(self, pod: Pod, domains: Iterable[str]) -> None:
        """Takes back what was spent on an eviction that did not happen."""
        self._spent.subtract(_keys(pod, domains))

    def _of(self, key: tuple[str, str]) -> int:
        """The live pods that a percentage is of."""
        what, name = key
        if what != "per domain":
            return self._live[key]
        if name not in self._domains:
            label, _, value = name.partition("=")
            self._domains[name] = sum(
                self._live["per node", node]
                for node, labels in self._labels.items()
                if labels.get(label) == value
            )
        return self._domains[name]


def _keys(pod: Pod, domains: Iterable[str]) -> list[tuple[str, str]]:
    return [
        ("in total", ""),
        ("per node", pod.node_name),
        ("per namespace", pod.namespace),
        ("per owner", pod.owner.uid if pod.owner else ""),
        *(("per domain", d) for d in domains),
    ]
