"""Whether kube-scheduler does with a pod what the engine says of it.

The engine is asked when a pod is first seen without a node, and again when the scheduler has decided. Other
pods come and go between the two, and neither moment is exactly the scheduler's. So a decision disagrees only
if it fits neither answer.
"""

from __future__ import annotations

import re
from enum import StrEnum

import numpy as np
from msgspec import Struct

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.explain import summary
from rebalancer.engine.framework import Diagnosis, Frameworks
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.arrays import Bools

MOST_ASKED = 500
"""Waiting pods whose answers are kept; the engine is not asked about more at a time."""
NAMED = 10
"""Nodes that a comparison names at most."""


class Result(StrEnum):
    """What came of a comparison.

    `AGREES`: the engine takes the node that the scheduler took, or refuses the pod for the same reasons.
    `DISAGREES`: it rejects that node, or finds a node where the scheduler found none. `OTHER_REASONS`: both
    refuse the pod, for different reasons. `UNCLEAR`: the cluster changed too much in between.
    """

    AGREES = "agrees"
    DISAGREES = "disagrees"
    OTHER_REASONS = "other-reasons"
    UNCLEAR = "unclear"


class Comparison(Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision of the scheduler beside the engine's answer.

    `node`: where the pod was bound, "" if it was refused. `certain`: the engine knows of no reason to doubt
    its answer. `nodes`: those in question, at most `NAMED`; `plugins`: those that the engine says decide.
    """

    namespace: str
    pod: str
    node: str
    result: Result
    certain: bool
    nodes: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    message: str = ""


class _Asked(Struct, frozen=True, eq=False):
    """The nodes that took a pod when the engine was asked, and what its condition said then."""

    fits: Bools
    said: str


class Agreement:
    """Follows the pods of one cluster, told of them in the order in which they changed."""

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig | None = None) -> None:
        self.state = ClusterState(snapshot, config or DEFAULT_CONFIG)
        self._frameworks = Frameworks(self.state)
        self._asked: dict[str, _Asked] = {}
        for pod in snapshot.pods:
            self.seen(pod)

    @property
    def waiting(self) -> int:
        """How many pods the engine was asked about that have no node yet."""
        return len(self._asked)

    def seen(self, pod: Pod, *, ask: bool = True) -> Comparison | None:
        """A pod as it is now; a comparison if the scheduler has decided about it since it was seen last.

        `ask`: the engine is asked about it if it waits; otherwise what becomes of it is not compared.
        """
        asked = self._asked.pop(pod.key, None)
        if asked is None and self._placed(pod):
            return None
        found = None
        if asked is not None and pod.node_name:
            found = self._bound(pod, asked)
        elif asked is not None and pod.unschedulable and pod.unschedulable != asked.said:
            found = self.refused(pod, asked.fits)
        self.state.drop(pod.key)
        self.state.put(pod, pod.key)
        due = ask and pod.waits and len(self._asked) < MOST_ASKED
        if due and self.state.config.places(pod.template.scheduler_name):
            self._asked[pod.key] = _Asked(self._fits(pod), pod.unschedulable)
        return found

    def gone(self, key: str) -> None:
        """The pod of this namespace/name does not exist any more."""
        self._asked.pop(key, None)
        self.state.drop(key)

    def refused(self, pod: Pod, before: Bools | None = None) -> Comparison:
        """The scheduler found no node for the pod and says why in its condition.

        `before`: bool[N], the nodes that took it when the engine was asked first; None: it was not.
        """
        now = self._fits(pod)
        first = now if before is None else before
        if not now.any():
            return self._reasons(pod)
        if not first.any():
            return self._compared(pod, Result.AGREES)
        both = np.flatnonzero(first & now)
        if not len(both):
            return self._compared(pod, Result.UNCLEAR)
        names = tuple(self.state.table.names[row] for row in both[:NAMED])
        more = f" and {len(both) - NAMED} more" if len(both) > NAMED else ""
        return self._compared(
            pod,
            Result.DISAGREES,
            nodes=names,
            message=f"the scheduler refuses it ({_reasons_of(pod.unschedulable)}); the engine finds "
            f"{', '.join(names)}{more}",
        )

    def _bound(self, pod: Pod, asked: _Asked) -> Comparison:
        row = self.state.table.index.get(pod.node_name)
        if row is None:
            return self._compared(pod, Result.UNCLEAR)
        with self.state.unhindered(pod.key):
            framework = self._frameworks.of(pod.template)
            rejection = None if asked.fits[row] else framework.diagnose_node(pod.template, row)
        if rejection is None:
            return self._compared(pod, Result.AGREES)
        return self._compared(
            pod,
            Result.DISAGREES,
            nodes=(pod.node_name,),
            plugins=(rejection.plugin,),
            message=f"the scheduler put it on {pod.node_name}, which the engine rejects: {rejection.plugin} "
            f"({', '.join(rejection.reasons)})",
        )

    def _reasons(self, pod: Pod) -> Comparison:
        """Both refuse the pod: for the same reasons? How many nodes have which may change in between."""
        with self.state.unhindered(pod.key):
            diagnosis = self._frameworks.of(pod.template).diagnose(pod.template)
        ours = summary(diagnosis, self.state.table.size)
        said, known = _kinds(pod.unschedulable), _kinds(ours)
        if said == known:
            return self._compared(pod, Result.AGREES)
        nodes, plugins = self._differing(diagnosis, said)
        return self._compared(
            pod,
            Result.OTHER_REASONS,
            nodes=nodes,
            plugins=plugins,
            message=f"both refuse it; the scheduler says: {_reasons_of(pod.unschedulable)}, the engine: "
            f"{_reasons_of(ours)}",
        )

    def _differing(
        self, diagnosis: Diagnosis, said: frozenset[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The nodes, and the plugins, whose reasons the scheduler does not give."""
        if diagnosis.prefilter is not None:
            return (), (diagnosis.prefilter.plugin,)
        found = [
            (name, r.plugin)
            for name, r in zip(self.state.table.names, diagnosis.nodes, strict=True)
            if r is not None and not said.issuperset(r.reasons)
        ]
        plugins = tuple(dict.fromkeys(plugin for _, plugin in found if plugin))
        return tuple(name for name, _ in found[:NAMED]), plugins

    def _compared(
        self,
        pod: Pod,
        result: Result,
        nodes: tuple[str, ...] = (),
        plugins: tuple[str, ...] = (),
        message: str = "",
    ) -> Comparison:
        return Comparison(
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node_name,
            result=result,
            certain=not self._frameworks.of(pod.template).uncertainties(pod.template),
            nodes=nodes,
            plugins=plugins,
            message=message,
        )

    def _fits(self, pod: Pod) -> Bools:
        with self.state.unhindered(pod.key):
            return self._frameworks.of(pod.template).feasible(pod.template)

    def _placed(self, pod: Pod) -> bool:
        """Whether the state has the pod just so: most changes are of a status that nobody looks at here."""
        placed = self.state.pods.get(pod.key)
        return (
            placed is not None
            and not pod.finished
            and placed.template is pod.template
            and placed.terminating == pod.terminating
            and self.state.table.index.get(pod.node_name) == placed.row
        )


_AVAILABLE = re.compile(r"^\d+/\d+ nodes are available:\s*")
_COUNT = re.compile(r"^\d+ ")


def _reasons_of(message: str) -> str:
    """The part of a FailedScheduling message on the nodes, without what the PostFilter plugins add to it.

    The scheduler closes the first with a full stop, and joins the second with commas (framework/types.go,
    FitError; runtime/framework.go, RunPostFilterPlugins).
    """
    return _AVAILABLE.sub("", message).partition(". ")[0].rstrip(".")


def _kinds(message: str) -> frozenset[str]:
    """The reasons in a FailedScheduling message, without the numbers of their nodes."""
    return frozenset(_COUNT.sub("", part) for part in re.split(r", (?=\d+ )", _reasons_of(message)))
