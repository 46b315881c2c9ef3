"""What the resource scores have in common: for each resource, the node's use with the pod on it.

Rule: plugins/noderesources/resource_allocation.go. A scalar resource that the pod does not ask for is left
out, and so is, node by node, a resource that the node does not have.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from typing import Self

import numpy as np
from msgspec import Struct

from rebalancer.engine.config import ResourceWeight
from rebalancer.engine.plugins.plugin import Score
from rebalancer.engine.resource_names import is_counted, is_scalar
from rebalancer.engine.state.cluster import NONZERO_CPU, NONZERO_MEMORY, ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows, int64


class Resource(Struct, frozen=True, eq=False):
    """A scored resource: the pod's amount, the nodes' allocatable, the name of the column of requests."""

    weight: int
    amount: int
    allocatable: Ints
    column: str


def asked(template: PodTemplate) -> Hashable:
    """Equal for templates with equal scores of resources."""
    return frozenset(template.requests.items()), template.scored_cpu, template.scored_memory


class ResourceScore(Score):
    """A score of each node alone, by its resources; subclasses say how (`computed`)."""

    def __init__(
        self,
        state: ClusterState,
        template: PodTemplate,
        resources: Iterable[ResourceWeight],
        *,
        nonzero: bool,
    ) -> None:
        """`nonzero`: assume the scheduler's defaults for containers that ask for no cpu or memory."""
        self.state = state
        amounts = {name: int64(amount) for name, amount in template.requests.items()}
        columns: dict[str, str] = {}
        if nonzero:
            amounts |= {"cpu": template.scored_cpu, "memory": template.scored_memory}
            columns = {"cpu": NONZERO_CPU, "memory": NONZERO_MEMORY}
        wanted = tuple(resources)
        self.asks = any(amounts.get(r.name, 0) for r in wanted)
        self.resources = tuple(
            Resource(r.weight, amounts.get(r.name, 0), state.allocatable(r.name), columns.get(r.name, r.name))
            for r in wanted
            if is_counted(r.name) and (amounts.get(r.name, 0) or not is_scalar(r.name))
        )
        self._values = self.computed(np.arange(state.table.size))

    def used(self, resource: Resource, rows: Rows) -> Ints:
        """int64[rows]: requests on the node, the pod's included."""
        return self.state.requested[resource.column][rows] + resource.amount

    def computed(self, rows: Rows) -> Ints:
        """int64[rows]: the scores of these nodes."""
        raise NotImplementedError

    def update(self, rows: Rows) -> None:
        """Scores the changed nodes again."""
        if len(rows):
            self._values[rows] = self.computed(rows)

    def copied(self) -> Self:
        """One that is brought up to date by itself."""
        other = copy(self)
        other._values = self._values.copy()
        return other

    def values(self, feasible: Bools) -> Ints:  # noqa: ARG002
        """Not normalised."""
        return self._values
