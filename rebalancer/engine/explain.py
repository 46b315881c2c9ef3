"""The scheduler's one-line summary of why a pod is Pending.

Rule: pkg/scheduler/framework/types.go, ``FitError.Error``; pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
from msgspec import Struct

from rebalancer.engine.framework import NARROWED, Diagnosis, Framework
from rebalancer.engine.plugins.plugin import UNSCHEDULABLE
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints

# DefaultPreemption, as far as it says whether a pod that fits nowhere would push others out.
#
# Rule: plugins/defaultpreemption/default_preemption.go (``SelectVictimsOnNode``,
# ``PodEligibleToPreemptOthers``), framework/preemption/preemption.go. Only nodes that were rejected as
# Unschedulable are tried, each with all pods of lower priority gone. Budgets do not forbid preemption.

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NEVER = "not eligible due to preemptionPolicy=Never."


class Preemption(Struct, frozen=True, eq=False):
    """What preemption would come to. `possible`: nodes that removing lower-priority pods would open.

    `reasons`: of each other node, by index; `ineligible`: why the pod may not preempt at all.
    """

    possible: tuple[int, ...] = ()
    reasons: dict[int, tuple[str, ...]] = {}
    ineligible: str = ""


def nobody_preempted(diagnosis: Diagnosis, nodes: int) -> Preemption:
    """The verdict of a scheduler that finds no victims anywhere. `nodes`: how many there are."""
    found = (diagnosis.prefilter or diagnosis.nodes[row] for row in range(nodes))
    codes = (rejection.code if rejection is not None else "" for rejection in found)
    return Preemption(
        reasons={r: (NO_VICTIMS if code == UNSCHEDULABLE else NOT_HELPFUL,) for r, code in enumerate(codes)}
    )


def preempt(framework: Framework, template: PodTemplate, diagnosis: Diagnosis) -> Preemption:
    """Tries each node that rejected the pod as Unschedulable; the state is unchanged afterwards."""
    if not template.preempts:
        return Preemption(ineligible=NEVER)
    state = framework.state
    victims: dict[int, list[Hashable]] = {}
    for key, placed in state.pods.items():
        if placed.template.priority < template.priority:
            victims.setdefault(placed.row, []).append(key)
    possible: list[int] = []
    reasons: dict[int, tuple[str, ...]] = {}
    for row in range(state.table.size):
        rejection = diagnosis.prefilter or diagnosis.nodes[row]
        if rejection is None:
            continue
        if rejection.code != UNSCHEDULABLE:
            reasons[row] = (NOT_HELPFUL,)
        elif row not in victims:
            reasons[row] = (NO_VICTIMS,)
        else:
            still = _without(framework, template, row, victims[row])
            if still:
                reasons[row] = still
            else:
                possible.append(row)
    return Preemption(tuple(possible), reasons)


def would_preempt(framework: Framework, template: PodTemplate, rows: Iterable[int], most: int = 50) -> bool:
    """Whether pushing lower-priority pods out of one of these nodes would let the pod in; tries `most`."""
    state = framework.state
    if not template.preempts or state.lowest_priority >= template.priority:
        return False
    wanted = set(rows)
    victims: dict[int, list[Hashable]] = {}
    for key, placed in state.pods.items():
        if placed.row in wanted and placed.template.priority < template.priority:
            victims.setdefault(placed.row, []).append(key)
    return any(not _without(framework, template, row, victims[row]) for row in sorted(victims)[:most])


def _without(
    framework: Framework, template: PodTemplate, row: int, victims: list[Hashable]
) -> tuple[str, ...]:
    """Why the node rejects the pod even without the victims; () = it would take it."""
    with framework.state.removed(victims):
        rejection = framework.diagnose_node(template, row)
    return rejection.reasons if rejection is not None else ()


def summary(diagnosis: Diagnosis, nodes: int, preemption: Preemption | None = None) -> str:
    """The text of the FailedScheduling event; "" if a node takes the pod. `nodes`: how many there are.

    Without `preemption` the part on preemption is left out, and so it is if preemption would help.
    """
    if not nodes:
        return "no nodes available to schedule pods"
    if diagnosis.prefilter is not None:
        text = _available(nodes, ", ".join(diagnosis.prefilter.reasons))
    elif any(r is None for r in diagnosis.nodes):
        return ""
    else:
        left_out = f"node(s) didn't satisfy plugin(s) [{' '.join(diagnosis.narrowed_by)}]"
        reasons = ((left_out,) if r is NARROWED else r.reasons for r in diagnosis.nodes if r is not None)
        text = _available(nodes, _histogram(reasons))
    if preemption is None or preemption.possible:
        return text
    if preemption.ineligible:
        return f"{text} preemption: {preemption.ineligible}"
    return f"{text} preemption: {_available(nodes, _histogram(preemption.reasons.values()))}"


def _available(nodes: int, reasons: str) -> str:
    return f"0/{nodes} nodes are available:" + (f" {reasons}." if reasons else "")


def _histogram(reasons: Iterable[tuple[str, ...]]) -> str:
    """Each reason with the number of its nodes; sorted as text, numbers included, as upstream does."""
    counts = Counter(reason for every in reasons for reason in every)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


# Which nodes are shut to a pod, by what shuts them.

NOMINATED = "held for pods that are nominated"


class Shut(Struct, frozen=True, eq=False):
    """Nodes that are shut to a pod for one cause.

    `plugin`: the filter, "" for pods that are nominated for the node. `cause`: a spread constraint by maxSkew
    and key, else the filter's own reasons. `nodes`: bool[N], where it is the first cause, in the scheduler's
    order. `alone`: bool[N], where it is the only one.
    """

    plugin: str
    cause: str
    nodes: Bools
    alone: Bools

    @property
    def count(self) -> int:
        """How many nodes it is the first cause for."""
        return int(np.count_nonzero(self.nodes))


def shut_nodes(framework: Framework, template: PodTemplate) -> tuple[Shut, ...]:
    """Every node that does not take the pod, under its first cause; the cause of most nodes first."""
    table = framework.state.table
    asked = framework.questions(template)
    failed: Ints = np.zeros(table.size, dtype=np.int64)
    for question in asked:
        failed += ~question.pass_
    left = ~framework.feasible(template)
    found: list[Shut] = []
    for question in asked:
        first = left & ~question.pass_
        left = left & question.pass_
        rows = np.flatnonzero(first)
        texts = (question.words or ", ".join(question.why(row)) for row in rows.tolist())
        for cause, mask in _by_text(texts, rows.tolist(), table.size).items():
            found.append(Shut(question.plugin, cause, mask, mask & (failed == 1)))
    if left.any():
        found.append(Shut("", NOMINATED, left, left))
    return tuple(sorted(found, key=lambda s: (-s.count, s.plugin, s.cause)))


def told(shut: Iterable[Shut]) -> str:
    """The causes in words: `6 nodes: maxSkew 1 over zone; 2 nodes: Insufficient cpu`."""
    return "; ".join(f"{s.count:,} {'node' if s.count == 1 else 'nodes'}: {s.cause}" for s in shut)


def _by_text(texts: Iterable[str], rows: list[int], size: int) -> dict[str, Bools]:
    found: dict[str, Bools] = {}
    for text, row in zip(texts, rows, strict=True):
        if text not in found:
            found[text] = np.zeros(size, dtype=np.bool_)
        found[text][row] = True
    return found
