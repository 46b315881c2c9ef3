"""Pods that differ only in name, place and time: what is true of one, rules find out once for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from rebalancer.model.object_meta import OwnerReference
from rebalancer.model.pod import Pod, PodTemplate


class Alike(Struct, frozen=True, eq=False):
    """Pods that have template and owner in common, in the order in which they were given; at least one."""

    template: PodTemplate
    owner: OwnerReference | None
    pods: list[Pod]

    @property
    def one(self) -> Pod:
        """The first of them."""
        return self.pods[0]


def alike(pods: Iterable[Pod]) -> tuple[Alike, ...]:
    """All pods, grouped, in the order of each group's first one."""
    found: dict[tuple[int, int], Alike] = {}
    for pod in pods:
        # Templates and references to owners are one object where they are equal.
        key = id(pod.template), id(pod.owner)
        group = found.get(key)
        if group is None:
            group = found[key] = Alike(pod.template, pod.owner, [])
        group.pods.append(pod)
    return tuple(found.values())


def among(groups: Iterable[Alike], nodes: Iterable[str]) -> Iterator[Alike]:
    """The groups, with the pods on these nodes only; those without any are left out."""
    known = nodes if isinstance(nodes, dict) else frozenset(nodes)
    for group in groups:
        there = [p for p in group.pods if p.node_name in known]
        if there:
            yield group if len(there) == len(group.pods) else Alike(group.template, group.owner, there)
