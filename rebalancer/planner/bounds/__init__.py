"""What a placement needs at least: the least excess of any final state, and the fewest moves to it."""

from rebalancer.planner.bounds.closed_form import ClosedForm, deciding
from rebalancer.planner.bounds.remaining import Remaining
from rebalancer.planner.bounds.several_keys import SeveralKeys
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.effort import Effort

__all__ = ["Effort", "Remaining", "bounds_of"]


def bounds_of(component: Component, effort: Effort) -> Remaining:
    """The component's bounds; the effort is what programs may take."""
    by = deciding(component)
    return ClosedForm(component, by) if by is not None else SeveralKeys(component, effort)
