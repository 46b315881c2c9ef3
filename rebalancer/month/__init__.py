"""A month of ordinary life on the engine: how much excess arises, and what it takes to be rid of it.

world    the cluster, and what controllers and scheduler make of a change
play     a month under nothing, evictions, prevention, both
"""

from rebalancer.month.play import Lived, Variant, play

__all__ = ["Lived", "Variant", "play"]
