"""Where the scheduler would place a pod, and why not elsewhere: the content of `rebalancer explain`.

Every format renders this. Its JSON names are part of `rebalancer/v1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import numpy as np
from msgspec import Struct

from rebalancer.engine.certainty import assumptions, newer
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.explain import summary
from rebalancer.engine.framework import NARROWED, Diagnosis, Framework, Frameworks, Scores
from rebalancer.engine.plugins.plugin import Rejection
from rebalancer.engine.preemption import preempt
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.policy.replacement import Replacements
from rebalancer.policy.vertical_autoscalers import VerticalAutoscalers
from rebalancer.report.api_version import API_VERSION
from rebalancer.report.explain.pod_in_plan import PodInPlan

PRE_FILTER = "PreFilter"
"""Used in place of a plugin's name for nodes that were excluded before any plugin looked at them."""
NEW = "does not exist yet; judged as if it were created now"


class PluginRefusal(Struct, frozen=True, rename="camel"):
    """Why one plugin rejects a node: upstream's status code and reasons."""

    plugin: str
    code: str
    reasons: tuple[str, ...]


class NodeVerdict(Struct, frozen=True, rename="camel"):
    """One node.

    `rejections`: the one that decides, then those of the plugins that would also reject the node; none = the
    node takes the pod. `scores`: weighted, by plugin; empty if nothing was scored.
    """

    node: str
    domains: dict[str, str]
    fits: bool
    rejections: tuple[PluginRefusal, ...] = ()
    scores: dict[str, int] = {}
    score: int | None = None


class Spread(Struct, frozen=True, rename="camel"):
    """One of the pod's spread constraints: how many pods the scheduler counts in each eligible domain."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    selector: str | None
    counts_itself: bool
    domains: dict[str, int]


class Placement(Struct, frozen=True, kw_only=True, rename="camel"):
    """The scheduler's view of one pod.

    `situation`: a sentence that says what was asked. `node`: where the pod is now, "" if it has no node.
    `winners`: the best-scored nodes, of which the scheduler takes one at random. `message`: what
    kube-scheduler writes into its event, "" if a node takes the pod. `recorded`: the message of the pod's own
    condition. `preemption`: nodes on which removing pods of lower priority would make room. `warnings`: what
    is missing in the snapshot. `plan`: what a plan for the cluster does with the pod; everything else is said
    of the cluster before any eviction. `since`: of a pod that runs and that no node takes, since when its
    workload has had such pods, "" if the ledger does not know.
    """

    api_version: str = API_VERSION
    kind: str = "Placement"
    namespace: str
    pod: str
    situation: str
    node: str
    profile: str
    nodes: int
    fitting: int
    winners: tuple[str, ...]
    message: str
    recorded: str
    preemption: tuple[str, ...]
    constraints: tuple[Spread, ...]
    verdicts: tuple[NodeVerdict, ...]
    uncertain: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    plan: PodInPlan | None = None
    since: str = ""


def explain_pod(
    snapshot: Snapshot, pod: Pod, config: SchedulerConfig | None = None, *, replacement: bool = False
) -> Placement:
    """How the scheduler judges a pod now, be it in the snapshot or not.

    A pod that has a node is judged as if it had left it and were to be placed again. `replacement`: judge the
    pod that its owner would make after an eviction instead, as the planner does: while the evicted pod still
    holds its resources, or, for a StatefulSet, when it is gone.
    """
    state = ClusterState.of(snapshot, config)
    frameworks = Frameworks(state)
    owner = snapshot.owner_of(pod.namespace, pod.owner)
    template = pod.template
    if replacement and owner is not None:
        template = Replacements(VerticalAutoscalers(snapshot)).of(template, owner)
    held = replacement and (owner is None or owner.kind != "StatefulSet")
    known = any(p is pod for p in snapshot.pods)
    situation = _situation(pod, state, replacement=replacement, held=held) if known else NEW
    with _vacated(state, pod, held=held) if known else nullcontext():
        return _Explained(snapshot, state, frameworks.of(template), template).placement(
            pod, situation, template is not pod.template
        )


@contextmanager
def _vacated(state: ClusterState, pod: Pod, *, held: bool) -> Iterator[None]:
    """The cluster without the pod and its nomination. `held`: the pod terminates and still holds its
    resources."""
    key = key_of(pod)
    if key not in state.pods:
        with state.unhindered(key):
            yield
    elif held:
        state.terminate(key)
        yield
        state.restore(key)
    else:
        with state.removed([key]):
            yield


def _situation(pod: Pod, state: ClusterState, *, replacement: bool, held: bool) -> str:
    placed = key_of(pod) in state.pods
    if replacement and placed:
        room = "while it still holds its room" if held else "after it is gone"
        return f"is on {pod.node_name}; judged is its replacement after an eviction, {room}"
    if placed:
        return f"is on {pod.node_name}; judged as if it were to be placed again now, its own place vacated"
    if pod.finished:
        return f"has ended ({pod.phase}); judged as if it were to be placed now"
    if pod.node_name:
        return f"is on {pod.node_name}, which is not in the snapshot; judged as if it were to be placed now"
    return "waits for a node"


class _Explained:
    """Asks the engine about one pod in one state of the cluster."""

    def __init__(
        self, snapshot: Snapshot, state: ClusterState, framework: Framework, template: PodTemplate
    ) -> None:
        self._snapshot = snapshot
        self._state = state
        self._framework = framework
        self._template = template

    def placement(self, pod: Pod, situation: str, changed: bool) -> Placement:
        framework, template, table = self._framework, self._template, self._state.table
        diagnosis = framework.diagnose(template)
        feasible = framework.feasible(template)
        fitting = int(np.count_nonzero(feasible))
        # If only one node is left, upstream does not score.
        scores = framework.score(template, feasible) if fitting > 1 else None
        winners: tuple[str, ...] = ()
        if fitting:
            best = feasible if scores is None else feasible & (scores.totals == scores.totals[feasible].max())
            winners = tuple(table.names[i] for i in np.flatnonzero(best))
        message = ""
        openable: tuple[str, ...] = ()
        if not fitting:
            preemption = preempt(framework, template, diagnosis) if table.size else None
            message = summary(diagnosis, table.size, preemption)
            openable = tuple(table.names[i] for i in (preemption.possible if preemption else ()))
        doubt = newer(framework.state.version)
        notes = [a for a in assumptions(framework.state, framework.profile) if a != doubt]
        if changed:
            notes.append("the replacement differs from the pod: its owner's template has changed")
        if fitting > (most := framework.profile.nodes_to_find(table.size)):
            notes.append(
                f"the scheduler stops after {most:,} nodes that fit, beginning where it last stopped, and "
                f"scores only these: the winners are the best of all {fitting:,}"
            )
        return Placement(
            namespace=pod.namespace,
            pod=pod.name,
            situation=situation,
            node=pod.node_name,
            profile=framework.profile.scheduler_name,
            nodes=table.size,
            fitting=fitting,
            winners=winners,
            message=message,
            recorded=pod.unschedulable,
            preemption=openable,
            constraints=tuple(self._spread()),
            verdicts=tuple(self._verdicts(diagnosis, scores)),
            uncertain=(*((doubt,) if doubt else ()), *framework.uncertainties(template)),
            assumptions=tuple(notes),
            warnings=self._snapshot.warnings,
        )

    def _spread(self) -> Iterator[Spread]:
        for hard in (True, False):
            groups = Groups(self._state, (), hard=hard, soft=not hard)
            for i in groups.carried(self._template):
                group, c = groups.all[i], groups.all[i].constraint
                counts = map(int, group.counts(self._state))
                yield Spread(
                    topology_key=c.topology_key,
                    max_skew=c.max_skew,
                    when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
                    selector=str(c.selector) if c.selector is not None else None,
                    counts_itself=c.counts(self._template.namespace, self._template.labels),
                    domains=dict(zip(group.names, counts, strict=True)),
                )

    def _verdicts(self, diagnosis: Diagnosis, scores: Scores | None) -> Iterator[NodeVerdict]:
        keys = self._keys()
        for row, node in enumerate(self._state.table.nodes):
            refusals = tuple(self._refusals(diagnosis, row))
            fits = not refusals
            yield NodeVerdict(
                node=node.name,
                domains={k: node.labels[k] for k in keys if k in node.labels},
                fits=fits,
                rejections=refusals,
                scores={n: int(v[row]) for n, v in scores.by_plugin.items()} if fits and scores else {},
                score=int(scores.totals[row]) if fits and scores else None,
            )

    def _keys(self) -> tuple[str, ...]:
        """The topology keys of the pod's constraints; the zone if it has none."""
        constraints = (
            *self._state.constraints(self._template, True),
            *self._state.constraints(self._template, False),
        )
        keys = (c.topology_key for c in constraints)
        return tuple(dict.fromkeys(keys)) or ("topology.kubernetes.io/zone",)

    def _refusals(self, diagnosis: Diagnosis, row: int) -> Iterator[PluginRefusal]:
        first = diagnosis.prefilter or diagnosis.nodes[row]
        if first is None:
            return
        if first is NARROWED:
            reasons = tuple(
                f"node(s) didn't satisfy plugin(s) [{' '.join(diagnosis.narrowed_by)}]" for _ in first.reasons
            )
            yield PluginRefusal(PRE_FILTER, first.code, reasons)
        else:
            yield _refusal(first)
        for name in self._framework.profile.filters:
            found = diagnosis.by_plugin[name].get(row)
            if found is not None and name != first.plugin:
                yield _refusal(found)


def _refusal(rejection: Rejection) -> PluginRefusal:
    return PluginRefusal(rejection.plugin, rejection.code, rejection.reasons)


class Rejected(Struct, frozen=True):
    """Nodes that the same plugin rejects for the same reasons."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: tuple[str, ...]


def rejected(placement: Placement) -> list[Rejected]:
    """The nodes that reject the pod, grouped by the rejection that decides; the largest group first."""
    by: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for v in placement.verdicts:
        if not v.fits:
            by.setdefault((v.rejections[0].plugin, v.rejections[0].reasons), []).append(v.node)
    found = [Rejected(plugin, reasons, tuple(nodes)) for (plugin, reasons), nodes in by.items()]
    return sorted(found, key=lambda r: (-len(r.nodes), r.plugin, r.reasons))


def ranked(placement: Placement) -> list[NodeVerdict]:
    """The nodes that take the pod, the best first."""
    return sorted((v for v in placement.verdicts if v.fits), key=lambda v: (-(v.score or 0), v.node))


def scoring(placement: Placement) -> list[str]:
    """The plugins that scored, in the profile's order."""
    return list(dict.fromkeys(name for v in placement.verdicts for name in v.scores))


def histogram(domains: Mapping[str, int]) -> str:
    """The counts; for many domains, how many domains have how many pods."""
    many = Counter(domains.values())
    return ", ".join(f"{many[n]:,} with {n:,}" for n in sorted(many, reverse=True))
