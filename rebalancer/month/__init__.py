"""A month of ordinary life on the engine: how much excess arises, and what it takes to be rid of it.

play     a month under nothing, evictions, prevention, both; the cluster, and what controllers and the
         scheduler make of a change
"""

from rebalancer.month.play import Lived, Variant, play

__all__ = ["Lived", "Variant", "play"]
