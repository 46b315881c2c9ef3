"""What planning starts from: the snapshot's pods by what they are to the plan, and who of them may go."""

from __future__ import annotations

from msgspec.structs import replace

from rebalancer.model.alike import Alike, among
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.newer_versions import why_held
from rebalancer.planner.options import PlanOptions
from rebalancer.policy.evictable import Evictable


class View:
    """The simulation of a snapshot; its `live` pods hold a node, the `pending` ones wait for one."""

    def __init__(self, snapshot: Snapshot, options: PlanOptions) -> None:
        self.snapshot = snapshot
        self.simulation = Simulation(snapshot, options.scheduler, options.on_progress)
        options.on_progress()
        held = why_held(self.simulation.state.version, options.newer_versions)
        self.evictable = Evictable(snapshot, replace(options.policy, held=held) if held else options.policy)
        options.on_progress()
        on_node = self.simulation.state.table.index
        self.live: list[Alike] = list(among(snapshot.live, on_node))
        self.pending: list[Pod] = [p for group in snapshot.live for p in group.pods if p.waits]
