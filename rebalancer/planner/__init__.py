"""The fewest evictions that restore spread, as a sequence that the scheduler follows."""

from rebalancer.planner.plan import Plan, PlanOptions
from rebalancer.planner.planner import plan

__all__ = ["Plan", "PlanOptions", "plan"]
