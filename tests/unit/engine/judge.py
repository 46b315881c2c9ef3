"""A built cluster, asked about a pod."""

from __future__ import annotations

from typing import Any

from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import Framework, Frameworks, preempt, summary
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from tests.support.build import snapshot


class Asked:
    """A cluster with one pod that waits for a node: the one named `new`."""

    def __init__(self, *things: Any, config: SchedulerConfig | None = None, version: str = "v1.36.2") -> None:
        self.snapshot = snapshot(*things, server_version=version)
        self.state = ClusterState.of(self.snapshot, config)
        self.template: PodTemplate = next(p.template for p in self.snapshot.pods if p.name == "new")
        self.framework: Framework = Frameworks(self.state).of(self.template)

    @property
    def fits(self) -> list[str]:
        """Names of the feasible nodes."""
        mask = self.framework.feasible(self.template)
        return [name for name, fits in zip(self.state.table.names, mask, strict=True) if fits]

    @property
    def event(self) -> str:
        """The FailedScheduling event, preemption included."""
        found = self.framework.diagnose(self.template)
        return summary(found, self.state.table.size, preempt(self.framework, self.template, found))

    def score(self, plugin: str) -> dict[str, int]:
        """A plugin's weighted scores on the feasible nodes; empty if it skips the pod."""
        mask = self.framework.feasible(self.template)
        values = self.framework.score(self.template, mask).by_plugin.get(plugin)
        if values is None:
            return {}
        return {n: int(v) for n, v, fits in zip(self.state.table.names, values, mask, strict=True) if fits}

    @property
    def doubts(self) -> str:
        """The uncertainties, in one text."""
        return "; ".join(self.framework.uncertainties(self.template))
