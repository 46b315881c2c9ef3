"""The cluster before anything fails: pods that terminate are gone, and what finds a node has one."""

from __future__ import annotations

from rebalancer.drill.failure import Manner
from rebalancer.drill.lost import Owned
from rebalancer.drill.placing import Placing, Waits, by_template
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.progress import OnProgress, unwatched
from rebalancer.policy.limits.budgets import Budgets


class AtRest:
    """A snapshot at rest. `on_node[row]`: its live pods; `left`: pods that no node takes."""

    def __init__(
        self,
        snapshot: Snapshot,
        config: SchedulerConfig | None,
        manner: Manner,
        on_progress: OnProgress = unwatched,
    ) -> None:
        self.snapshot = snapshot
        self.manner = manner
        self.on_progress = on_progress
        self.owned = Owned(snapshot, manner)
        self.budgets = Budgets(snapshot)
        self.state = ClusterState.of(snapshot, config)
        on_progress()
        for key in list(self.state.nominated):
            self.state.unnominate(key)
        table = self.state.table
        self.on_node: list[list[Pod]] = [[] for _ in table.names]
        for pod in snapshot.pods:
            row = table.index.get(pod.node_name)
            if row is None or pod.finished:
                continue
            if not pod.terminating:
                self.on_node[row].append(pod)
            elif table.nodes[row].ready:
                self.state.remove(key_of(pod))
        self.left = self._placed([p for p in snapshot.pods if p.waits])

    @property
    def waiting(self) -> int:
        """How many pods no node takes before anything fails."""
        return sum(len(w.keys) for w in self.left)

    def _placed(self, pods: list[Pod]) -> list[Waits]:
        """Places waiting pods, as far as they find a node; they count as running there."""
        by_key = {key_of(p): p for p in pods}
        placing = Placing(self.state)
        left = placing.place(by_template((key_of(p), p.template) for p in sorted(pods, key=_arrival)))
        for key, row in placing.placed.items():
            self.on_node[row].append(by_key[key])
            self.owned.runs(by_key[key])
        # One of a DaemonSet waits for its own node, and goes with it.
        of_nodes = {k for k, p in by_key.items() if p.owner is not None and p.owner.kind == "DaemonSet"}
        return by_template((k, w.template) for w in left for k in w.keys if k not in of_nodes)


def _arrival(pod: Pod) -> tuple[float, str]:
    return pod.created or 0.0, pod.key
