"""Whether a plan evicts a pod, and why or why not."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.plan import ConstraintResult, Move, Plan
from rebalancer.report.wording.text import listing, plural, short_key


class PodInPlan(Struct, frozen=True, rename="camel"):
    """What a plan does with one pod. `says` is the whole sentence.

    `decision`: it is evicted; it stays although its constraints could use its move, for `reason`; or no move
    of it is looked for. `wave` is 0 unless it is evicted.
    """

    decision: Literal["evicted", "stays", "not-needed"]
    says: str
    wave: int = 0
    reason: str = ""
    remedy: str = ""


def pod_in_plan(plan: Plan, pod: Pod) -> PodInPlan:
    """What the plan of the pod's cluster does with it."""
    move = next((m for m in plan.moves if m.pod is pod), None)
    if move is not None:
        return PodInPlan("evicted", _evicted(move, plan), wave=move.wave)
    blocked = next((b.reason for b in plan.blocked if b.pod is pod), None)
    if blocked is not None:
        after = f", after the plan's {plural(len(plan.moves), 'eviction')}" if plan.moves else ""
        says = f"The plan leaves it where it is{after}: {blocked.code.value}: {blocked.message}."
        return PodInPlan("stays", says, reason=blocked.code.value, remedy=blocked.remedy)
    violated = [
        c
        for c in plan.constraints
        if c.in_scope and c.excess and c.constraint.counts(pod.namespace, pod.template.labels)
    ]
    if not violated:
        return PodInPlan("not-needed", "The plan does not concern it: no violated constraint counts it.")
    over = listing(f"{short_key(c.constraint.topology_key)} {_over(c)}" for c in violated)
    return PodInPlan("not-needed", f"The plan does not need it: the excess is in {over}, and others go.")


def _evicted(move: Move, plan: Plan) -> str:
    wave = f"wave {move.wave} of {len(plan.waves)}"
    sure = "" if move.certain else ", likely"
    where = listing(move.destinations)
    return f"The plan evicts it in {wave}; its replacement goes to {where}{sure} ({move.reason})."


def _over(c: ConstraintResult) -> str:
    """The domains that hold more than is allowed."""
    allowed = min(c.domains.values(), default=0) + c.constraint.max_skew
    return listing(d for d, n in c.domains.items() if n > allowed)
