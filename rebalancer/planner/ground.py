"""What a search of one component stands on."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.planner.component import Component
from rebalancer.planner.effort import Effort
from rebalancer.planner.potential import Potential
from rebalancer.planner.simulation import Simulation
from rebalancer.planner.trial import Trial


class Ground(Struct, frozen=True, eq=False):
    """The component, the state that moves of it are tried on, its bounds, and how much may still be tried."""

    simulation: Simulation
    component: Component
    trial: Trial
    potential: Potential
    effort: Effort
