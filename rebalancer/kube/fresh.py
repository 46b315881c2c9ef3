"""A fresh look just before an eviction: is the move still the one that was planned?

What is compared with the plan's snapshot: the nodes as far as the plan rests on them, the owner (and its
Deployment), the budgets, and last, closest to the eviction, the pod itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from rebalancer.kube.errors import ForbiddenError
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.node import Node, Taint
from rebalancer.model.pod import Affinity, Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot, build_snapshot
from rebalancer.model.workload import PodDisruptionBudget, Workload
from rebalancer.planner.plan import Move
from rebalancer.policy.budgets import Budgets

_NODES_MAX_AGE = 10.0
"""Seconds for which a list of all nodes serves; reading 5,000 of them before each eviction would be the load
that operators fear from such a tool."""


class NodeFacts(Struct, frozen=True):
    """What a plan rests on of one node: labels under the keys in question, taints that repel, cordon, and
    what its pods may request in all."""

    labels: tuple[tuple[str, str], ...]
    taints: frozenset[Taint]
    unschedulable: bool
    allocatable: dict[str, str | int | float]


class Reads(Protocol):
    """`rebalancer.kube.objects.Objects`, as far as it is needed here. Methods raise KubeError."""

    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        ...

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        ...

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name."""
        ...

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace."""
        ...


class Revalidation:
    """Answers for the moves of one plan, made from `snapshot`.

    `monotonic` in seconds. `foresee`: `rebalancer.kube.foresight.Foresight.why_not`, where there is a watch
    cache. Methods raise KubeError where the cluster cannot be asked.
    """

    def __init__(
        self,
        objects: Reads,
        snapshot: Snapshot,
        moves: Iterable[Move],
        *,
        monotonic: Callable[[], float],
        nodes_max_age: float = _NODES_MAX_AGE,
        foresee: Callable[[Move], Reason | None] = lambda _: None,
    ) -> None:
        self._foresee = foresee
        self._objects = objects
        self._snapshot = snapshot
        self._monotonic = monotonic
        self._max_age = nodes_max_age
        self._keys = planned_keys(m.replacement for m in moves)
        self._planned = facts(snapshot.nodes, self._keys)
        self._nodes_read: float | None = None
        self._nodes_reason: Reason | None = None

    def why_not(self, move: Move, in_flight: int = 0) -> Reason | None:
        """Why the move is no longer valid; None if it is.

        `in_flight`: how many pods of the same owner this wave has evicted already; so many may be missing.
        """
        return (
            self.world_moved()
            or self._owner(move.pod, in_flight)
            or self._budgets(move.pod)
            or self._foresee(move)
            or self._pod(move.pod)
        )

    def world_moved(self) -> Reason | None:
        """What changed about the nodes since the plan. Concerns every move, not one."""
        now = self._monotonic()
        if self._nodes_read is None or now - self._nodes_read > self._max_age:
            live = facts(self._objects.nodes(), self._keys)
            self._nodes_reason = nodes_changed(self._planned, live)
            self._nodes_read = now
        return self._nodes_reason

    def _owner(self, pod: Pod, in_flight: int) -> Reason | None:
        planned = self._snapshot.owner_of(pod.namespace, pod.owner)
        if planned is None or planned.kind not in RESOURCES:
            return None
        live = self._objects.workload(planned.kind, planned.namespace, planned.name)
        reason = owner_changed(planned, live)
        if reason is not None or live is None:
            return reason
        if live.status_replicas < live.replicas - in_flight:
            return Reason(
                ReasonCode.OWNER_SCALING,
                f"{live.kind} {live.name} wants {live.replicas} pods and has {live.status_replicas}",
                {"replicas": live.replicas, "pods": live.status_replicas},
            )
        if live.ready_replicas < planned.ready_replicas - in_flight:
            return Reason(
                ReasonCode.REPLACEMENT_NOT_READY,
                f"{live.kind} {live.name} has {live.ready_replicas} Ready pods, "
                f"{planned.ready_replicas} when it was planned",
                {"ready": live.ready_replicas, "planned": planned.ready_replicas},
            )
        parent = self._snapshot.owner_of(planned.namespace, planned.owner)
        if parent is None or parent.kind not in RESOURCES:
            return None
        return owner_changed(parent, self._objects.workload(parent.kind, parent.namespace, parent.name))

    def _budgets(self, pod: Pod) -> Reason | None:
        try:
            budgets = self._objects.budgets(pod.namespace)
        except ForbiddenError:
            return None  # said once, when the snapshot was read; the API server still keeps them
        return Budgets(build_snapshot(budgets, now=self._snapshot.now)).why_not(pod)

    def _pod(self, planned: Pod) -> Reason | None:
        return pod_changed(planned, self._objects.pod(planned.namespace, planned.name))


def pod_changed(planned: Pod, live: Pod | None) -> Reason | None:
    """Why a pod is no longer the planned victim."""
    if live is None or live.uid != planned.uid:
        return _changed(f"pod {planned.key} is gone" + (", replaced by another of its name" if live else ""))
    if live.terminating:
        return Reason(ReasonCode.TERMINATING, f"pod {live.key} is being deleted already")
    if live.phase != "Running":
        return Reason(
            ReasonCode.NOT_RUNNING, f"pod {live.key} is {live.phase}: evicting it would bypass its budget"
        )
    for what, differs in (
        ("node", live.node_name != planned.node_name),
        ("labels", live.template.labels != planned.template.labels),
        ("annotations", live.annotations != planned.annotations),
        ("owner", _uid(live) != _uid(planned)),
    ):
        if differs:
            return _changed(f"pod {live.key} has changed since the plan: its {what}")
    if planned.ready and not live.ready:
        return _changed(f"pod {live.key} has become unready since the plan")
    return None


def owner_changed(planned: Workload, live: Workload | None) -> Reason | None:
    """Why an owner would not make the replacement that was planned with."""
    name = f"{planned.kind} {planned.namespace}/{planned.name}"
    if live is None or live.metadata.uid != planned.metadata.uid:
        return _changed(f"{name} is gone" + (", replaced by another of its name" if live else ""))
    if live.metadata.deletion_timestamp is not None:
        return Reason(ReasonCode.OWNER_TERMINATING, f"{name} is being deleted: no replacement would come")
    if live.replicas != planned.replicas:
        return Reason(
            ReasonCode.OWNER_SCALING,
            f"{name} was scaled from {planned.replicas} to {live.replicas} since the plan",
            {"planned": planned.replicas, "replicas": live.replicas},
        )
    if live.metadata.generation != planned.metadata.generation:
        return _changed(f"{name} has changed since the plan (generation {live.metadata.generation})")
    if live.observed_generation < live.metadata.generation:
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name}: its controller has not seen its last change")
    if (live.current_revision, live.update_revision) != (planned.current_revision, planned.update_revision):
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name} has changed its revision since the plan")
    if _said(live) != _said(planned):
        return _changed(f"{name} has changed since the plan: its annotations")
    return None


def planned_keys(templates: Iterable[PodTemplate]) -> frozenset[str]:
    """The node labels on which the placement of these pods rests."""
    keys: set[str] = set()
    seen: set[int] = set()
    for t in templates:
        if id(t) in seen:
            continue
        seen.add(id(t))
        keys.update(c.topology_key for c in t.spread)
        keys.update(t.node_selector)
        keys.update(_affinity_keys(t.affinity))
    return frozenset(keys) | {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


def facts(nodes: Iterable[Node], keys: frozenset[str]) -> dict[str, NodeFacts]:
    """Node name → what counts of it. Taints that only express preference come and go with the autoscaler."""
    return {
        n.name: NodeFacts(
            tuple(sorted((k, v) for k, v in n.labels.items() if k in keys)),
            frozenset(t for t in n.spec.taints if t.effect != "PreferNoSchedule"),
            n.spec.unschedulable,
            n.status.allocatable,
        )
        for n in nodes
    }


def nodes_changed(planned: dict[str, NodeFacts], live: dict[str, NodeFacts]) -> Reason | None:
    """The difference in a sentence, if there is one."""
    added, removed = sorted(live.keys() - planned.keys()), sorted(planned.keys() - live.keys())
    other = sorted(n for n in live.keys() & planned.keys() if live[n] != planned[n])
    parts = [
        f"{len(names)} {what} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
        for names, what in (
            (added, "added"),
            (removed, "removed"),
            (other, "relabelled, tainted, cordoned or resized"),
        )
        if names
    ]
    if not parts:
        return None
    return Reason(
        ReasonCode.NODES_CHANGED,
        f"nodes have changed since the plan: {'; '.join(parts)}",
        {"added": len(added), "removed": len(removed), "changed": len(other)},
    )


def _affinity_keys(affinity: Affinity | None) -> Iterable[str]:
    if affinity is None:
        return
    node = affinity.node_affinity
    if node is not None:
        terms = [*(node.required.node_selector_terms if node.required else ())]
        terms += [p.preference for p in node.preferred]
        for term in terms:
            yield from (e.key for e in term.match_expressions)
    for inter in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if inter is not None:
            yield from (t.topology_key for t in inter.required)
            yield from (t.pod_affinity_term.topology_key for t in inter.preferred)


def _said(owner: Workload) -> dict[str, str]:
    """Annotations that people set; controllers keep their own books in the others."""
    return {
        k: v
        for k, v in owner.metadata.annotations.items()
        if "kubernetes.io/" not in k or k.startswith(("cluster-autoscaler.", "descheduler."))
    }


def _uid(pod: Pod) -> str:
    return pod.owner.uid if pod.owner is not None else ""


def _changed(message: str) -> Reason:
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, message)
