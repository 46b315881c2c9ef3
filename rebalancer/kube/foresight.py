"""What the scheduler would do with a move's replacement now, with every pod as it is watched now.

A plan was made minutes ago. Since then pods of others may have taken the room, repaired the constraint or
moved it on. So the planner's own questions, on the same engine, are asked once more just before the eviction:
has the replacement a node, does it stay out of the domain it leaves, does no hard constraint that counts the
pod get worse, whether the pod carries it or not. The engine's state follows the watch cache pod by pod, which
costs milliseconds where a new one costs seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from rebalancer.engine.config import SchedulerConfig
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.groups import Groups
from rebalancer.planner.options import Certainty
from rebalancer.planner.plan import Move, Plan
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.spread.arrays import Rows


class Foresight:
    """Answers for the moves of one plan, made from `snapshot`, whose nodes must not have changed since.

    `pods`: all pods now (`WatchCache.pods`). `config`: the scheduler's, None for its defaults. `certainty`:
    the plan's.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        config: SchedulerConfig | None,
        pods: Callable[[], Iterable[Pod]],
        certainty: Certainty = "certain",
    ) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._config = config
        self._pods = pods
        self._certainty = certainty
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
        if not landing.held.any() or not landing.freed.any():
            return _changed(f"since the plan, {pod.key}'s replacement has lost every node it could go to")
        nodes, table = np.flatnonzero(landing.anywhere), simulation.state.table
        if not move.certain:
            best = simulation.preferred(pod, move.replacement, landing)
            if not self._soft(move):
                # Only a policy that trusts the scores lets them say where the replacement may not go.
                return self._worse(simulation, pod, best if self._certainty == "likely" else nodes)
            astray = sorted({table.names[n] for n in best} - set(move.destinations))
            if astray:
                return _changed(
                    f"pods have come and gone since the plan: the scheduler's scores now prefer {astray[0]} "
                    f"for {pod.key}'s replacement, which was not planned",
                    nodes=len(astray),
                )
            return self._worse(simulation, pod, nodes)
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
        return self._worse(simulation, pod, nodes)

    def _soft(self, move: Move) -> bool:
        """Whether the move serves soft constraints only."""
        return bool(move.fixes) and not any(self._plan.constraints[i].constraint.hard for i in move.fixes)

    def _worse(self, simulation: Simulation, pod: Pod, nodes: Rows) -> Reason | None:
        """The hard constraint that counts the pod, carried or not, and would suffer on one of `nodes`."""
        state = simulation.state
        groups = Groups(state, self._templates(pod.namespace))
        row = state.table.index[pod.node_name]
        for i in groups.counted(pod.template):
            group = groups.all[i]
            if not group.size:
                continue
            counts = group.counts(state)
            before = group.excess(counts)
            after = group.excess_after(counts, int(group.rows[row]), np.unique(group.rows[nodes])).max()
            if after > before:
                c = group.constraint
                return Reason(
                    ReasonCode.WOULD_WORSEN,
                    f"pods have come and gone since the plan: {pod.key}'s replacement could now raise the "
                    f"excess of a constraint over {c.topology_key} (maxSkew {c.max_skew}) from {before} to "
                    f"{after}",
                    {"before": before, "after": int(after)},
                )
        return None

    def _templates(self, namespace: str) -> Iterable[PodTemplate]:
        """Those whose constraints may count a pod of this namespace, each once."""
        there = (p for p in self._known.values() if p.namespace == namespace)
        live = (p.template for p in there if not p.finished and not p.terminating)
        return {id(t): t for t in live}.values()

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
