"""What the scheduler would do with a move's replacement now, with every pod as it is watched now.

A plan was made minutes ago. Since then pods of others may have taken the room, repaired the constraint or
moved it on. So the planner's own question, on the same engine, is asked once more just before the eviction;
the engine's state follows the watch cache pod by pod, which costs milliseconds where a new one costs seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from rebalancer.engine.config import SchedulerConfig
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.planner.simulation import Simulation, key_of


class Foresight:
    """Answers for the moves of one plan, made from `snapshot`, whose nodes must not have changed since.

    `pods`: all pods now (`WatchCache.pods`). `config`: the scheduler's, None for its defaults.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        config: SchedulerConfig | None,
        pods: Callable[[], Iterable[Pod]],
    ) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._config = config
        self._pods = pods
        self._simulation: Simulation | None = None
        self._known: dict[Hashable, Pod] = {}

    def why_not(self, move: Move) -> Reason | None:
        """Why the move would not do what it was planned for; None if it would. Raises CacheNotReadyError."""
        simulation = self._caught_up()
        pod = self._known.get(key_of(move.pod))
        if pod is None or key_of(pod) not in simulation.state.pods:
            return _changed(f"pod {move.pod.key} is gone, or runs no more")
        if pod.terminating:
            return Reason(ReasonCode.TERMINATING, f"pod {pod.key} is being deleted already")
        landing = simulation.landing(pod, move.replacement, after_gone=move.owner.kind == "StatefulSet")
        nodes = np.flatnonzero(landing.anywhere)
        if not landing.held.any() or not landing.freed.any():
            return _changed(f"since the plan, {pod.key}'s replacement has lost every node it could go to")
        if not move.certain:
            return None
        table = simulation.state.table
        for i in move.fixes:
            key = self._plan.constraints[i].constraint.topology_key
            domain = table.nodes[table.index[pod.node_name]].labels.get(key)
            back = [n for n in nodes if table.nodes[n].labels.get(key) == domain]
            if back:
                return _changed(
                    f"pods have come and gone since the plan: {pod.key}'s replacement could now return to "
                    f"{key}={domain}",
                    nodes=len(back),
                )
        return None

    def _caught_up(self) -> Simulation:
        """The engine's state, with what has changed since the last time."""
        live = {key_of(p): p for p in self._pods()}
        simulation = self._simulation
        if simulation is None:
            simulation = self._simulation = Simulation(self._snapshot, self._config)
            self._known = {key_of(p): p for p in self._snapshot.pods}
        state, known = simulation.state, self._known
        for key in known.keys() - live.keys():
            state.take(known[key])
        for key, pod in live.items():
            before = known.get(key)
            if before is not pod:
                if before is not None:
                    state.take(before)
                state.put(pod)
        self._known = live
        return simulation


def _changed(message: str, **numbers: int) -> Reason:
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, message, numbers)
