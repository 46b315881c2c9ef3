"""Why an excess stays, and why a pod is left alone: typed reasons, with figures and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.classes import Classes, PodClass
from rebalancer.planner.component import Component
from rebalancer.planner.groups import Group
from rebalancer.planner.plan import Blocked
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.soft_trial import Judged, SoftRefusal
from rebalancer.planner.trial import Refusal, Trial, Verdict
from rebalancer.spread.arrays import Ints

Classed = Sequence[PodClass]

_REMEDY = {
    ReasonCode.NO_FEASIBLE_NODE: "make room, or add a node, in the emptier domains",
    ReasonCode.PINNED_BY_VOLUME: "spread the volumes: a zonal volume keeps its pod in its zone",
    ReasonCode.NOT_CARRIED: "give these pods the constraint as well",
    ReasonCode.NODE_LEAVING: "let the drain end, or drop the toleration that admits such nodes",
    ReasonCode.PENDING_PODS: "let the waiting pods be placed first",
    ReasonCode.NOT_CERTAIN: "planner.certainty: likely plans moves that hold on the best-scored nodes",
}
_HARD = "DoNotSchedule would make it binding for the scheduler"
_NOT_CARRIED = Reason(
    ReasonCode.NOT_CARRIED,
    "is counted by the constraint but does not carry it: its replacement could land anywhere",
    {},
    _REMEDY[ReasonCode.NOT_CARRIED],
)
_NO_WALK = Reason(
    ReasonCode.SIMULATION_LIMIT,
    "its move would do no harm by itself, but no sequence of moves was found that ends with less excess",
    {},
    "a larger planner.effort searches longer",
)

_MESSAGE = {
    ReasonCode.WOULD_WORSEN: "its replacement could raise the excess of another constraint",
    ReasonCode.NODE_LEAVING: "its replacement could land on a node that is cordoned or about to go",
    ReasonCode.PENDING_PODS: "a waiting pod would take the place it makes",
    ReasonCode.NOT_CERTAIN: "where its replacement lands cannot be predicted with certainty",
}


class Explainer:
    """Explains what the finished simulation leaves behind."""

    def __init__(self, simulation: Simulation, classes: Classes, trial: Trial) -> None:
        self._simulation = simulation
        self._classes = classes
        self._trial = trial

    def protected(self, group: Group, counts: Ints, classes: Classed) -> Iterator[Blocked]:
        """Counted pods of the overfull domains that policy keeps where they are."""
        for _, pod in self._overfull(group, counts, classes):
            reason = self._classes.why_not.get(pod.uid or pod.key)
            if reason is not None:
                yield Blocked(pod, reason)

    def stuck(self, component: Component, group: Group) -> Iterator[Blocked]:
        """Pods of the overfull domains that policy would let go, and what keeps a move from helping."""
        counts = group.counts(self._simulation.state)
        judged: dict[tuple[int, int], Reason] = {}
        for c, pod in self._overfull(group, counts, component.classes):
            if not self._trial.may_go(pod):
                continue
            row = self._simulation.state.table.index[pod.node_name]
            reason = judged.get((c.index, row))
            if reason is None:
                reason = judged[c.index, row] = self._judge(component, group, counts, c, row, pod)
            yield Blocked(pod, reason)

    def soft_stuck(self, group: Group, classes: Classed, refused: Judged) -> Iterator[Blocked]:
        """Pods of the overfull domains of a soft constraint that policy would let go, and why they stay."""
        state = self._simulation.state
        counts = group.counts(state)
        judged: dict[tuple[int, int], Reason] = {}
        for c, pod in self._overfull(group, counts, classes):
            row = state.table.index[pod.node_name]
            if self._trial.may_go(pod):
                if (c.index, row) not in judged:
                    judged[c.index, row] = self._judge_soft(group, counts, c, row, pod, refused)
                yield Blocked(pod, judged[c.index, row])

    def of_group(self, group: Group, counts: Ints, blocked: list[Blocked]) -> tuple[Reason, ...]:
        """Why a group's excess stays: each kind of reason once, with how many pods it concerns."""
        reasons: list[Reason] = []
        if not group.enough_domains:
            need = group.constraint.min_domains
            reasons.append(
                Reason(
                    ReasonCode.TOO_FEW_DOMAINS,
                    f"minDomains {need} with {group.size} eligible domains: the minimum counts as 0: no "
                    f"domain may hold more than {group.constraint.max_skew}",
                    {"minDomains": need, "domains": group.size},
                    "add a domain, or lower minDomains",
                )
            )
        pods = Counter(b.reason.code for b in blocked)
        first = {b.reason.code: b.reason for b in reversed(blocked)}
        for code, number in sorted(pods.items(), key=lambda item: (-item[1], item[0])):
            r = first[code]
            what = "1 pod" if number == 1 else f"{number} pods"
            reasons.append(Reason(code, f"{what}: {r.message}", {**r.numbers, "pods": number}, r.remedy))
        if not reasons:
            reasons.append(
                Reason(
                    ReasonCode.NO_FEASIBLE_NODE,
                    f"no pod that may move is in the fuller domains; highest count {int(counts.max())}, "
                    f"lowest {int(counts.min())}",
                )
            )
        return tuple(reasons)

    def _overfull(self, group: Group, counts: Ints, classes: Classed) -> Iterator[tuple[PodClass, Pod]]:
        """Counted pods, still in place, of the domains beyond the minimum + maxSkew."""
        over = np.append(counts > group.minimum(counts) + group.constraint.max_skew, False)
        for c in classes:
            if group.index in c.counted:
                for row in sorted(c.by_row):
                    if over[group.rows[row]]:
                        for pod in c.by_row[row]:
                            if key_of(pod) in self._simulation.state.pods:
                                yield c, pod

    def _judge(
        self, component: Component, group: Group, counts: Ints, c: PodClass, row: int, pod: Pod
    ) -> Reason:
        q = component.classes.index(c)
        verdicts = list(self._trial.judge(component, self._placed(component), q, row, pod))
        refusal = next((v for v in verdicts if isinstance(v, Refusal)), None)
        held = [v for v in verdicts if isinstance(v, Verdict)]
        if refusal is None and held and not any(v.helps for v in held):
            refusal = Refusal(ReasonCode.WOULD_RETURN, len(held[0].destinations))
        replacement = self._classes.replacement(pod, c)
        if group.index not in c.carried:
            return _NOT_CARRIED
        if (pinned := _pinned(group, c, replacement, row)) is not None:
            return pinned
        if refusal is None:
            return _NO_WALK
        if refusal.code == ReasonCode.NO_FEASIBLE_NODE:
            return self._no_node(group, counts, replacement, pod)
        message = {
            ReasonCode.WOULD_RETURN: f"its replacement could come back ({refusal.nodes} nodes are open)",
            **_MESSAGE,
        }.get(refusal.code, refusal.code.value)
        return Reason(refusal.code, message, {"nodes": refusal.nodes}, _REMEDY.get(refusal.code, ""))

    def _judge_soft(
        self, group: Group, counts: Ints, c: PodClass, row: int, pod: Pod, refused: Judged
    ) -> Reason:
        if group.index not in c.carried:
            return _NOT_CARRIED
        replacement = self._classes.replacement(pod, c)
        if (pinned := _pinned(group, c, replacement, row)) is not None:
            return pinned
        refusal = refused.get((c.index, row), SoftRefusal(ReasonCode.NOT_NEEDED))
        if refusal.code == ReasonCode.NO_FEASIBLE_NODE:
            return self._no_node(group, counts, replacement, pod)
        where = self._simulation.state.table.names[refusal.node] if refusal.node >= 0 else ""
        best = f"the scheduler's scores prefer {where} for its replacement, " if where else ""
        message = {
            **_MESSAGE,
            ReasonCode.WOULD_RETURN: f"{best}where it would not help",
            ReasonCode.WOULD_WORSEN: f"{best}where it would raise the excess of another constraint"
            if where
            else _MESSAGE[ReasonCode.WOULD_WORSEN],
            ReasonCode.NOT_NEEDED: "no eviction of it alone lowers the excess, nor one with others after it",
        }.get(refusal.code, refusal.code.value)
        remedy = _HARD if where else _REMEDY.get(refusal.code, "")
        return Reason(refusal.code, message, {}, remedy)

    def _placed(self, component: Component) -> Ints:
        return component.start

    def _no_node(self, group: Group, counts: Ints, replacement: PodTemplate, pod: Pod) -> Reason:
        """Counts, domain by domain, what rejects the replacement where it should go."""
        simulation = self._simulation
        with simulation.without(pod):
            diagnosis = simulation.framework(replacement).diagnose(replacement)
        low = np.flatnonzero(counts == counts.min())[:3]
        sentences: list[str] = []
        numbers: dict[str, int] = {}
        for d in low:
            rows = np.flatnonzero(group.rows == d)
            why: Counter[str] = Counter()
            for r in rows:
                rejection = diagnosis.prefilter or diagnosis.nodes[int(r)]
                why[" and ".join(rejection.reasons) if rejection else "would take it"] += 1
            name = group.names[int(d)]
            numbers[f"nodes {name}"] = len(rows)
            detail = ", ".join(f"{n} {reason}" for reason, n in sorted(why.items()))
            nodes = "1 node" if len(rows) == 1 else f"{len(rows)} nodes"
            sentences.append(f"{group.constraint.topology_key}={name}: {nodes}: {detail}")
        code = ReasonCode.NO_FEASIBLE_NODE
        if self._would_preempt(replacement):
            code = ReasonCode.NEEDS_PREEMPTION
        return Reason(
            code,
            "its replacement would find no node; " + "; ".join(sentences),
            numbers,
            _REMEDY.get(code, ""),
        )

    def _would_preempt(self, replacement: PodTemplate) -> bool:
        """Whether the scheduler could preempt: pods of lower priority are where it may go."""
        static = self._simulation.static(replacement)
        return replacement.preempts and any(
            p.template.priority < replacement.priority and static[p.row]
            for p in self._simulation.state.pods.values()
        )


def _pinned(group: Group, c: PodClass, replacement: PodTemplate, row: int) -> Reason | None:
    """The reason if a volume keeps pods of the class in their domain."""
    if not replacement.claims or (c.static & (group.rows != group.rows[row])).any():
        return None
    return Reason(
        ReasonCode.PINNED_BY_VOLUME,
        f"its volume keeps it in {group.constraint.topology_key}={group.names[group.rows[row]]}",
        {},
        _REMEDY[ReasonCode.PINNED_BY_VOLUME],
    )
