"""What an operator decides about planning."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from rebalancer.engine.config import SchedulerConfig
from rebalancer.planner.progress import OnProgress, unwatched
from rebalancer.policy.options import PolicyOptions

Certainty = Literal["certain", "likely"]
SoftConstraints = Literal["ignore", "predicted"]
NewerVersions = Literal["likely", "refuse"]
Joint = Literal["never", "exchange", "all"]
"""Which joint moves are planned: none; those that leave one pod waiting at most if they are broken off, and
where an autoscaler is at work none; or all."""


class PlanOptions(Struct, frozen=True, kw_only=True):
    """How to plan.

    `certainty`: "certain" plans only moves that hold on every node the filter leaves, "likely" also those
    that hold on the best-scored nodes. `soft`: whether ScheduleAnyway constraints are balanced as well.
    `newer_versions`: what is done where the scheduler is a minor release newer than all known rules.
    `joint`: which joint moves are planned. `effort`: candidate moves that the search tries per component
    before it settles for less. `on_progress` is called again and again while a plan is made, many times a
    second; what it raises ends the planning.
    """

    policy: PolicyOptions = PolicyOptions()
    certainty: Certainty = "certain"
    soft: SoftConstraints = "ignore"
    newer_versions: NewerVersions = "likely"
    joint: Joint = "never"
    scheduler: SchedulerConfig | None = None
    effort: int = 2000
    on_progress: OnProgress = unwatched
