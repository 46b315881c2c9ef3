"""Deletion costs as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.outcome.steering import CostOutcome, SteeringReport
from rebalancer.report.wording.text import plural


def steering_lines(report: SteeringReport) -> Iterator[str]:
    """Each pod whose cost was to be changed, then the sums."""
    steering = report.steering
    if steering.held_back:
        yield f"scale-ins are not steered: {steering.held_back}"
    for outcome in report.outcomes:
        yield f"  {_line(outcome)}"
    if steering.foreign:
        yield f"{plural(steering.foreign, 'pod')} left alone: somebody else has set their deletion cost"
    unproved = sum(o.order is not None and not o.order.proved for o in steering.owners)
    if unproved:
        yield f"{plural(unproved, 'workload')}: the order is good, and was not proved to be the best"
    if report.waiting:
        yield f"{plural(report.waiting, 'pod')} wait: the pods of a workload are written to once a minute"


def _line(outcome: CostOutcome) -> str:
    change = outcome.change
    before = "none" if change.before is None else str(change.before)
    cost = str(change.cost) if change.cost else "none"
    said = f"; {outcome.message}" if outcome.message else ""
    return f"{outcome.result.value}: {change.pod.key}: deletion cost {before} -> {cost}{said}"
