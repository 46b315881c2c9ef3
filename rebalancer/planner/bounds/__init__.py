"""What a placement needs at least: the least excess of any final state, and the fewest moves to it."""

from rebalancer.planner.bounds.one_key import ClosedForm, Remaining, deciding
from rebalancer.planner.bounds.program import SeveralKeys
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.objective import Effort

__all__ = ["Effort", "Remaining", "bounds_of"]


def bounds_of(component: Component, effort: Effort) -> Remaining:
    """The component's bounds; the effort is what programs may take."""
    by = deciding(component)
    return ClosedForm(component, by) if by is not None else SeveralKeys(component, effort)
