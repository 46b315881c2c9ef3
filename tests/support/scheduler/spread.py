"""Hard topology spread, counted plainly: who counts, which domains are eligible, skew, excess, the filter.

A `Group` is one constraint of the cluster in the sense of the design: equal meaning, equal eligible nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.scheduler.plain import (
    Json,
    admits,
    finished,
    holds,
    labels_of,
    namespace_of,
    node_of,
    terminating,
    untolerated,
)

Requirement = tuple[str, str, tuple[str, ...]]
"""(key, operator, sorted values)."""


@dataclass(frozen=True, order=True)
class Group:
    """One hard constraint with the nodes that take part in it.

    `selector` is None where the pod wrote none; an empty tuple for the empty selector. Both count no pod.
    """

    namespace: str
    selector: tuple[Requirement, ...] | None
    key: str
    max_skew: int
    min_domains: int
    affinity_policy: str
    taints_policy: str
    nodes: tuple[str, ...]

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod of these labels is counted, where it is assigned and alive."""
        return bool(self.selector) and namespace == self.namespace and self._selected(labels)

    def self_matches(self, pod: Json) -> bool:
        """Whether the incoming pod adds to the domain that takes it; an empty selector says yes."""
        return self.selector is not None and self._selected(labels_of(pod))

    def _selected(self, labels: Mapping[str, str]) -> bool:
        return all(
            holds({"key": k, "operator": op, "values": values}, labels)
            for k, op, values in self.selector or ()
        )

    def counts(self, nodes: Mapping[str, Json], pods: Iterable[Json]) -> dict[str, int]:
        """Pods per eligible domain; only pods on eligible nodes count."""
        domain = {name: labels_of(nodes[name])[self.key] for name in self.nodes}
        found = dict.fromkeys(domain.values(), 0)
        for pod in pods:
            here = domain.get(node_of(pod))
            if here is not None and alive(pod) and self.matches(namespace_of(pod), labels_of(pod)):
                found[here] += 1
        return found

    def minimum(self, counts: Mapping[str, int]) -> int:
        """The global minimum: 0 while there are fewer eligible domains than minDomains."""
        return min(counts.values()) if counts and len(counts) >= self.min_domains else 0

    def excess(self, counts: Mapping[str, int]) -> int:
        """What of the skew exceeds maxSkew."""
        if not counts:
            return 0
        return max(0, max(counts.values()) - self.minimum(counts) - self.max_skew)

    def __str__(self) -> str:
        """For messages."""
        if self.selector is None:
            text = "nothing"
        else:
            text = ",".join(f"{k} {op} {'|'.join(v)}" for k, op, v in self.selector) or "{}"
        more = f" minDomains {self.min_domains}" if self.min_domains > 1 else ""
        return f"{self.namespace}[{text}] {self.key} maxSkew {self.max_skew}{more} ({len(self.nodes)} nodes)"


def alive(pod: Json) -> bool:
    """Neither terminating nor finished; what is counted if it is also assigned."""
    return not terminating(pod) and not finished(pod)


def hard_constraints(pod: Json) -> list[Json]:
    """The DoNotSchedule constraints as written, in order."""
    written = pod["spec"].get("topologySpreadConstraints") or ()
    return [c for c in written if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]


def groups_of(pod: Json, nodes: Mapping[str, Json]) -> list[Group]:
    """The groups of the pod's own hard constraints, in order."""
    constraints = hard_constraints(pod)
    keys = [c["topologyKey"] for c in constraints]
    found = []
    for c in constraints:
        honors_affinity = c.get("nodeAffinityPolicy", "Honor") == "Honor"
        honors_taints = c.get("nodeTaintsPolicy", "Ignore") == "Honor"
        eligible = [
            name
            for name, node in sorted(nodes.items())
            if all(k in labels_of(node) for k in keys)
            and (not honors_affinity or admits(pod, node))
            and (not honors_taints or not untolerated(pod, node))
        ]
        found.append(
            Group(
                namespace=namespace_of(pod),
                selector=_selector(c, labels_of(pod)),
                key=c["topologyKey"],
                max_skew=c["maxSkew"],
                min_domains=c.get("minDomains") or 1,
                affinity_policy=c.get("nodeAffinityPolicy", "Honor"),
                taints_policy=c.get("nodeTaintsPolicy", "Ignore"),
                nodes=tuple(eligible),
            )
        )
    return found


def _selector(constraint: Json, labels: Mapping[str, str]) -> tuple[Requirement, ...] | None:
    """The selector joined with the pod's own values of matchLabelKeys, in canonical order."""
    written: dict[str, Any] | None = constraint.get("labelSelector")
    if written is None:
        return None
    equal = dict(written.get("matchLabels") or {})
    expressions = [{"key": k, "operator": "In", "values": [v]} for k, v in equal.items()]
    expressions += written.get("matchExpressions") or []
    for key in constraint.get("matchLabelKeys") or ():
        if key in labels:
            expressions.append({"key": key, "operator": "In", "values": [labels[key]]})
    allowed: dict[str, set[str]] = {}
    rest: set[Requirement] = set()
    for e in expressions:
        if e["operator"] == "In":
            allowed[e["key"]] = allowed.get(e["key"], set(e["values"])) & set(e["values"])
        else:
            rest.add((e["key"], e["operator"], tuple(sorted(set(e.get("values") or ())))))
    return tuple(sorted(rest | {(k, "In", tuple(sorted(v))) for k, v in allowed.items()}))


def takes(group: Group, pod: Json, node: Json, counts: Mapping[str, int]) -> bool:
    """The filter's verdict for one constraint: count + itself − minimum ≤ maxSkew."""
    domain = labels_of(node).get(group.key)
    if domain is None:
        return False
    skew = counts.get(domain, 0) + group.self_matches(pod) - group.minimum(counts)
    return skew <= group.max_skew
