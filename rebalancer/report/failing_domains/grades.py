"""A grade for each namespace: how much more its workloads would lose with a failing domain than they must."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rebalancer.planner.plan import ConstraintResult
from rebalancer.report.failing_domains.risk import Risk

_GRADES = ((0.05, "A"), (0.15, "B"), (0.30, "C"), (0.50, "D"))
"""Of the share of its pods that the worst workload loses beyond what is unavoidable, at most; F above."""


class NamespaceGrade(Struct, frozen=True, rename="camel"):
    """`grade` is A to F: of what the workload that is worst off (`worst`, "" if none is) loses beyond what is
    unavoidable, at most B where a constraint is violated. `planned_…`: the same after the plan."""

    namespace: str
    grade: str
    planned_grade: str
    workloads: int
    violated: int
    planned_violated: int
    worst: str
    avoidable: float
    planned_avoidable: float


def grades(risks: Sequence[Risk], constraints: Iterable[ConstraintResult]) -> tuple[NamespaceGrade, ...]:
    """Of every namespace with a workload of two or more pods or a constraint in scope; the worst first."""
    workloads: dict[str, list[Risk]] = {}
    for r in risks:
        workloads.setdefault(r.namespace, []).append(r)
    violated: dict[str, list[ConstraintResult]] = {}
    for c in constraints:
        if c.in_scope:
            workloads.setdefault(c.constraint.namespace, [])
            violated.setdefault(c.constraint.namespace, []).append(c)
    found = [_of(n, here, violated.get(n, ())) for n, here in workloads.items()]
    return tuple(sorted(found, key=lambda g: (-ord(g.grade), -g.avoidable, -g.violated, g.namespace)))


def _of(namespace: str, risks: Sequence[Risk], constraints: Sequence[ConstraintResult]) -> NamespaceGrade:
    worst = max(risks, key=lambda r: (r.lost - r.best, r.workload), default=None)
    now = max((r.lost - r.best for r in risks), default=0.0)
    planned = max((r.planned - r.best for r in risks), default=0.0)
    broken = sum(1 for c in constraints if c.excess)
    left = sum(1 for c in constraints if c.residual_excess)
    return NamespaceGrade(
        namespace=namespace,
        grade=_grade(now, broken),
        planned_grade=_grade(planned, left),
        workloads=len(risks),
        violated=broken,
        planned_violated=left,
        worst=worst.workload if worst is not None and now > 0 else "",
        avoidable=round(now, 4),
        planned_avoidable=round(planned, 4),
    )


def _grade(avoidable: float, violated: int) -> str:
    found = next((g for most, g in _GRADES if avoidable <= most), "F")
    return max(found, "B") if violated else found
