"""The excess of every constraint of a cluster, kept up to date pod by pod and node by node.

A pod that comes, goes, ends or moves changes a few counts, so what that costs does not depend on the size of
the cluster. What it says is what a plan of the same moment would say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from rebalancer.model.pod import Pod
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.index.namespace import Namespace
from rebalancer.spread.index.rules import Rules, Territories

_WORN = 5000
"""Templates of pods that are gone, of which the rules may remember something."""


class SpreadIndex:
    """Starts without a pod. `soft`: constraints that are soft count too. Not for several threads."""

    def __init__(self, rules: Rules, *, soft: bool = False) -> None:
        kinds = (True, False) if soft else (True,)
        self._where = Territories(rules)
        self._namespaces: defaultdict[str, Namespace] = defaultdict(lambda: Namespace(kinds))

    @property
    def worn(self) -> bool:
        """Whether the rules have been asked about so many pods that are gone that new ones (`move`) pay."""
        return self._where.asked > 2 * sum(s.templates for s in self._namespaces.values()) + _WORN

    def put(self, pod: Pod) -> None:
        """A pod that is new, or as it is now."""
        space = self._namespaces[pod.namespace]
        before = space.pods.get(pod.name)
        if before is None or not _alike(before, pod):
            if before is not None:
                self._take(space, before)
            self._shift(space, pod, 1)
        space.pods[pod.name] = pod

    def drop(self, namespace: str, name: str) -> None:
        """A pod is gone; nothing happens if it is not known."""
        space = self._namespaces.get(namespace)
        if space is not None and (before := space.pods.get(name)) is not None:
            self._take(space, before)
            if not space.pods:
                del self._namespaces[namespace]

    def move(self, rules: Rules, changed: Collection[str]) -> None:
        """There are other nodes now, or they have other labels or taints.

        `rules`: over the nodes as they are, and all else as before. `changed`: the names of all nodes that
        came, went or changed.
        """
        aside = [
            (space, pod)
            for space in self._namespaces.values()
            for pod in space.pods.values()
            if pod.node_name in changed
        ]
        for space, pod in aside:
            self._take(space, pod)
        self._where = Territories(rules)
        for space in self._namespaces.values():
            space.move(self._where)
        for space, pod in aside:
            self._shift(space, pod, 1)
            space.pods[pod.name] = pod

    def excess(self) -> dict[str, dict[Constraint, int]]:
        """The constraints with an excess, by namespace; a namespace without constraints is not in it."""
        return {name: dict(space.excess) for name, space in self._constrained()}

    def _constrained(self) -> Iterator[tuple[str, Namespace]]:
        return ((name, space) for name, space in self._namespaces.items() if space.constrained)

    def _take(self, space: Namespace, pod: Pod) -> None:
        del space.pods[pod.name]
        self._shift(space, pod, -1)

    def _shift(self, space: Namespace, pod: Pod, by: int) -> None:
        row = self._where.row(pod)
        if row is not None or pod.waits:
            space.shift(pod.template, row, by, self._where)


def _alike(before: Pod, pod: Pod) -> bool:
    """Whether a pod counts as before: most of its changes are about something else."""
    return (
        before.template is pod.template
        and before.node_name == pod.node_name
        and before.finished == pod.finished
        and before.terminating == pod.terminating
    )
