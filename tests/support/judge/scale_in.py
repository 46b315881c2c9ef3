"""What a scale-in leaves behind, counted plainly; and the best nested order, by trying all.

Nothing of `rebalancer/prevention` is used here: the order in which pods are deleted is that of the sandbox's
ReplicaSet controller, and constraints are given as plain numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from rebalancer.sandbox.controllers.deployment import victims
from tests.support.scheduler.plain import Json

COST = "controller.kubernetes.io/pod-deletion-cost"
NOON = 1767268800.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint: the domain of each node that takes part, its limits, and pods of others by domain."""

    domain: Mapping[str, str]
    max_skew: int
    hard: bool = True
    min_domains: int = 1
    others: Mapping[str, int] = field(default_factory=dict)

    def excess(self, nodes: Iterable[str]) -> int:
        """With one pod on each of these nodes."""
        counts = dict.fromkeys(self.domain.values(), 0)
        for domain, pods in self.others.items():
            counts[domain] += pods
        for node in nodes:
            if node in self.domain:
                counts[self.domain[node]] += 1
        if not counts:
            return 0
        low = min(counts.values()) if len(counts) >= self.min_domains else 0
        return max(0, max(counts.values()) - low - self.max_skew)


def excess(rules: Sequence[Rule], nodes: Sequence[str]) -> tuple[int, int]:
    """Of the hard rules and of the soft ones."""
    return (
        sum(r.excess(nodes) for r in rules if r.hard),
        sum(r.excess(nodes) for r in rules if not r.hard),
    )


def priced(
    pods: Sequence[Json], costs: Mapping[str, int], manager: str = "rebalancer-scale-in"
) -> list[Json]:
    """The pods with these deletion costs, by name, set by that field manager; 0: with none."""
    made = []
    for pod in pods:
        metadata = {k: v for k, v in pod["metadata"].items() if k != "managedFields"}
        kept = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != COST}
        metadata["annotations"] = kept
        if cost := costs.get(metadata["name"], 0):
            metadata["annotations"] = {**kept, COST: str(cost)}
            fields: Json = {"f:metadata": {"f:annotations": {f"f:{COST}": {}}}}
            metadata["managedFields"] = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
        made.append({**pod, "metadata": metadata})
    return made


def left_after(pods: Sequence[Json], left: int, now: float = NOON) -> list[str]:
    """The nodes of the pods that a ReplicaSet of these pods keeps when it shrinks to `left`."""
    gone = victims(list(pods), list(pods), now)[: len(pods) - left]
    names = {p["metadata"]["name"] for p in gone}
    return [p["spec"]["nodeName"] for p in pods if p["metadata"]["name"] not in names]


def best_order(rules: Sequence[Rule], nodes: Sequence[str]) -> tuple[int, int]:
    """The least sum of excess over all numbers of pods that a nested order can have."""

    @cache
    def best(left: tuple[str, ...]) -> tuple[int, int]:
        if not left:
            return 0, 0
        ends = []
        for node in sorted(set(left)):
            after = list(left)
            after.remove(node)
            here, below = excess(rules, after), best(tuple(after))
            ends.append((here[0] + below[0], here[1] + below[1]))
        return min(ends)

    return best(tuple(sorted(nodes)))
