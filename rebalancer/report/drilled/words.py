"""The drill in a sentence."""

from __future__ import annotations

from rebalancer.report.drilled.document import DrillReport
from rebalancer.report.wording.text import plural


def headline(report: DrillReport) -> str:
    """The worst failure in a sentence, and what the plan makes of it."""
    if not report.failures:
        return "No node can fail: there is none."
    tried = f"{plural(len(report.failures), 'failure')} tried"
    if not report.worst:
        return f"{tried}: whatever fails, every replacement finds a node."
    first = report.worst[0]
    now = f"losing {first.name} leaves {plural(first.pending, 'pod')} Pending"
    if not first.pending:
        now = (
            f"losing {first.name} takes {plural(first.lost - first.replaced, 'pod')} that nothing makes again"
        )
        return f"{tried}: every replacement finds a node; {now}."
    if not report.planned:
        return f"{tried}. Today {now}."
    worst = max(report.failures, key=lambda f: f.planned_pending)
    then = f"after the plan {first.planned_pending:,}"
    if worst.planned_pending > first.planned_pending:
        then += f" (the worst will be {worst.name} with {worst.planned_pending:,})"
    return f"{tried}. Today {now}, {then}."
