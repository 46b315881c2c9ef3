"""DefaultPreemption, as far as it says whether a pod that fits nowhere would push others out.

Rule: plugins/defaultpreemption/default_preemption.go (``SelectVictimsOnNode``,
``PodEligibleToPreemptOthers``), framework/preemption/preemption.go. Only nodes that were rejected as
Unschedulable are tried, each with all pods of lower priority gone. Budgets do not forbid preemption.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from msgspec import Struct

from rebalancer.engine.framework import Diagnosis, Framework
from rebalancer.engine.plugins.plugin import UNSCHEDULABLE
from rebalancer.model.pod import PodTemplate

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
