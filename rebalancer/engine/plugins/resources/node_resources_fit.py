"""NodeResourcesFit: room for the pod's requests and for one more pod."""

from __future__ import annotations

from rebalancer.engine.config import Profile
from rebalancer.engine.plugins.plugin import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    AskingAlike,
    Filter,
    NodeFilter,
    Plugin,
    Score,
)
from rebalancer.engine.plugins.resources.resource_score import ResourceScore, asked
from rebalancer.engine.plugins.resources.scoring_strategy import STRATEGIES
from rebalancer.engine.resource_names import is_counted, is_extended
from rebalancer.engine.state.cluster import PODS, ClusterState
from rebalancer.engine.version import TOO_SMALL_UNRESOLVABLE
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Rows, int64

NATIVE_ORDER = ("cpu", "memory", "ephemeral-storage")


class NodeResourcesFit(Plugin):
    """Rule: plugins/noderesources/fit.go, ``fitsRequest``."""

    name = "NodeResourcesFit"

    def __init__(self, state: ClusterState, profile: Profile) -> None:
        """Binds the plugin."""
        super().__init__(state, profile)
        self._filters: AskingAlike[_Filter] = AskingAlike(state)
        self._scores: AskingAlike[ResourceScore] = AskingAlike(state)

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes without enough of a requested resource."""
        wanted = {
            name: int64(amount)
            for name, amount in template.requests.items()
            if amount > 0 and is_counted(name) and not self._ignored(name)
        }
        return self._filters.of(tuple(wanted.items()), lambda: _Filter(self.state, wanted))

    def score(self, template: PodTemplate) -> Score | None:
        """By the profile's scoring strategy."""
        strategy = STRATEGIES[self.profile.fit_strategy]
        return self._scores.of(asked(template), lambda: strategy(self.state, template, self.profile))

    def _ignored(self, resource: str) -> bool:
        if not is_extended(resource):
            return False
        group = resource.split("/", 1)[0]
        return resource in self.profile.ignored_resources or group in self.profile.ignored_groups


class _Filter(NodeFilter):
    def __init__(self, state: ClusterState, wanted: dict[str, int]) -> None:
        self._state = state
        order = [n for n in NATIVE_ORDER if n in wanted] + [n for n in wanted if n not in NATIVE_ORDER]
        self._wanted = tuple((name, wanted[name], state.allocatable(name)) for name in order)
        self._pods = state.allocatable(PODS)
        super().__init__(state.table.size)

    def fits(self, rows: Rows) -> Bools:
        requested = self._state.requested
        fits: Bools = requested[PODS][rows] < self._pods[rows]
        for name, amount, allocatable in self._wanted:
            fits &= requested[name][rows] <= allocatable[rows] - amount
        return fits

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        requested = self._state.requested
        reasons = ["Too many pods"] if requested[PODS][row] >= self._pods[row] else []
        unresolvable = False
        for name, amount, allocatable in self._wanted:
            has = int(allocatable[row])
            if amount > has - int(requested[name][row]):
                reasons.append(f"Insufficient {name}")
                unresolvable |= amount > has and self._state.version.has(TOO_SMALL_UNRESOLVABLE)
        return UNRESOLVABLE if unresolvable else UNSCHEDULABLE, tuple(reasons)
