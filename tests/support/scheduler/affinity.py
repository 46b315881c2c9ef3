"""Required inter-pod (anti-)affinity as plain loops: whether a node takes a pod, for the pods around.

`around` as in `filters`. A domain is a value of the term's topology key; a node without the key is in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.support.scheduler.filters import Objects
from tests.support.scheduler.plain import Json, labels_of, namespace_of, node_of, selects

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(pod: Json, kind: str) -> list[Json]:
    """The required terms of "podAffinity" or "podAntiAffinity"."""
    affinity = pod["spec"].get("affinity") or {}
    return list((affinity.get(kind) or {}).get(_REQUIRED) or ())


def minds(pod: Json) -> bool:
    """Whether the pod has required terms at all."""
    return bool(terms(pod, "podAffinity") or terms(pod, "podAntiAffinity"))


def chooses(term: Json, carrier: Json, other: Json, namespaces: Objects) -> bool:
    """Whether a term of one pod selects another pod; an absent labelSelector selects none."""
    where, wanted = namespace_of(other), term.get("namespaceSelector")
    listed = term.get("namespaces") or ()
    if not listed and wanted is None:
        inside = where == namespace_of(carrier)
    else:
        labels = labels_of(namespaces[where]) if where in namespaces else {}
        inside = where in listed or (wanted is not None and selects(wanted, labels))
    return (
        inside and term.get("labelSelector") is not None and selects(term["labelSelector"], labels_of(other))
    )


def inter_pod_affinity(
    pod: Json, node: Json, nodes: Mapping[str, Json], around: Iterable[Json], namespaces: Objects
) -> bool:
    """No anti-affinity either way within a domain; for each affinity term a pod in its domain that all terms
    select, or, where there is none anywhere, the pod itself."""
    near = terms(pod, "podAffinity")
    placed = [p for p in around if node_of(p) in nodes]

    def together(term: Json, other: Json) -> bool:
        key = term["topologyKey"]
        here, there = labels_of(node).get(key), labels_of(nodes[node_of(other)]).get(key)
        return here is not None and here == there

    for other in placed:
        for term in terms(pod, "podAntiAffinity"):
            if chooses(term, pod, other, namespaces) and together(term, other):
                return False
        for term in terms(other, "podAntiAffinity"):
            if chooses(term, other, pod, namespaces) and together(term, other):
                return False
    if not all(t["topologyKey"] in labels_of(node) for t in near):
        return False
    friends = [p for p in placed if all(chooses(t, pod, p, namespaces) for t in near)]
    if all(any(together(t, p) for p in friends) for t in near):
        return True
    first = not any(t["topologyKey"] in labels_of(nodes[node_of(p)]) for t in near for p in friends)
    return first and all(chooses(t, pod, pod, namespaces) for t in near)
