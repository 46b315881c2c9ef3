"""A state of the cluster as plain JSON objects, and what the scheduler may do with a pod in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tests.support.scheduler import filters
from tests.support.scheduler.affinity import inter_pod_affinity, minds
from tests.support.scheduler.plain import (
    Json,
    finished,
    key_of,
    labels_of,
    namespace_of,
    node_of,
    terminating,
)
from tests.support.scheduler.spread import Group, alive, groups_of, takes


@dataclass(frozen=True)
class State:
    """Nodes by name, pods by namespace/name, everything else by (kind, namespace/name or name).

    Values are JSON objects and are never changed in place: a step makes a new State.
    """

    nodes: Mapping[str, Json]
    pods: Mapping[str, Json]
    others: Mapping[tuple[str, str], Json] = field(default_factory=dict)

    @staticmethod
    def of(objects: Iterable[Json]) -> State:
        """The state that a list of API objects describes."""
        nodes: dict[str, Json] = {}
        pods: dict[str, Json] = {}
        others: dict[tuple[str, str], Json] = {}
        for o in objects:
            if o["kind"] == "Node":
                nodes[o["metadata"]["name"]] = o
            elif o["kind"] == "Pod":
                pods[key_of(o)] = o
            else:
                others[o["kind"], _name(o)] = o
        return State(nodes, pods, others)

    def objects(self) -> list[Json]:
        """All of it as a list of API objects."""
        return [*self.nodes.values(), *self.others.values(), *self.pods.values()]

    def kind(self, kind: str) -> dict[str, Json]:
        """Objects of one kind by name."""
        return self._kinds.get(kind, {})

    @cached_property
    def _kinds(self) -> dict[str, dict[str, Json]]:
        found: dict[str, dict[str, Json]] = {}
        for (kind, name), o in self.others.items():
            found.setdefault(kind, {})[name] = o
        return found

    def with_pods(self, pods: Iterable[Json]) -> State:
        """The state with these pods added, or in place of their namesakes."""
        return replace(self, pods={**self.pods, **{key_of(p): p for p in pods}})

    def without(self, keys: Iterable[str]) -> State:
        """The state without these pods."""
        gone = set(keys)
        return replace(self, pods={k: p for k, p in self.pods.items() if k not in gone})

    def holding(self) -> list[Json]:
        """Pods that hold room: assigned and not finished, terminating ones among them."""
        return [p for p in self.pods.values() if node_of(p) and not finished(p)]

    def counted(self) -> list[Json]:
        """Pods that spread counts, selector aside: assigned, neither finished nor terminating."""
        return [p for p in self.pods.values() if node_of(p) and alive(p)]

    def pending(self) -> list[Json]:
        """Pods that wait for a node."""
        return [p for p in self.pods.values() if not node_of(p) and alive(p)]


def _name(o: Json) -> str:
    meta = o["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


def feasible(state: State, pod: Json) -> list[str]:
    """Nodes on which every filter leaves the incoming pod, by name."""
    around = state.holding()
    claims, volumes = state.kind("PersistentVolumeClaim"), state.kind("PersistentVolume")
    constraints = [(g, g.counts(state.nodes, state.counted())) for g in groups_of(pod, state.nodes)]
    particular = any(map(minds, (pod, *around)))
    return [
        name
        for name, node in sorted(state.nodes.items())
        if all(allows(pod, node) for allows in filters.STATIC)
        and all(takes(g, pod, node, counts) for g, counts in constraints)
        and filters.volume_binding(pod, node, claims, volumes)
        and filters.node_ports(pod, node, around)
        and filters.node_resources_fit(pod, node, around)
        and (not particular or inter_pod_affinity(pod, node, state.nodes, around, state.kind("Namespace")))
    ]


def kept_out_of(state: State, pod: Json, group: Group) -> set[str]:
    """Domains from which the pod's own constraint of that group keeps it; empty if it carries none such."""
    if group not in groups_of(pod, state.nodes):
        return set()
    counts = group.counts(state.nodes, state.counted())
    return {
        labels_of(node)[group.key]
        for node in state.nodes.values()
        if group.key in labels_of(node) and not takes(group, pod, node, counts)
    }


def groups(state: State) -> list[Group]:
    """Every hard constraint that a live pod carries, assigned or Pending; each meaning once."""
    found: set[Group] = set()
    seen: set[str] = set()
    for pod in state.pods.values():
        if not alive(pod) or not pod["spec"].get("topologySpreadConstraints"):
            continue
        spec = pod["spec"]
        shape = json.dumps(
            [
                namespace_of(pod),
                labels_of(pod),
                spec["topologySpreadConstraints"],
                spec.get("nodeSelector"),
                spec.get("affinity"),
                spec.get("tolerations"),
            ],
            sort_keys=True,
        )
        if shape not in seen:
            seen.add(shape)
            found.update(groups_of(pod, state.nodes))
    return sorted(found, key=repr)


def counts(state: State, key: str, namespace: str = "default", **labels: str) -> dict[str, int]:
    """For tests: live pods with these labels per value of a node label, whatever the constraints say."""
    found = {labels_of(n)[key]: 0 for n in state.nodes.values() if key in labels_of(n)}
    for pod in state.counted():
        domain = labels_of(state.nodes[node_of(pod)]).get(key)
        same = all(labels_of(pod).get(k) == v for k, v in labels.items())
        if domain is not None and same and namespace_of(pod) == namespace:
            found[domain] += 1
    return found


def excesses(state: State, of: Iterable[Group] | None = None) -> dict[Group, int]:
    """The excess of each group; of all groups that live pods carry if none are given."""
    counted = state.counted()
    chosen = groups(state) if of is None else of
    return {g: g.excess(g.counts(state.nodes, counted)) for g in chosen}


def total_excess(state: State, of: Iterable[Group] | None = None) -> int:
    """Their sum."""
    return sum(excesses(state, of).values())


def is_terminating(state: State, key: str) -> bool:
    """Whether the pod is there and being deleted."""
    return key in state.pods and terminating(state.pods[key])
