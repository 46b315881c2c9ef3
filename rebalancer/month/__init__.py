"""A month of ordinary life on the engine: how much excess arises, and what it takes to be rid of it.

rates    how often what happens
events   when it happens: drawn once, the same for every variant
world    the cluster, and what controllers and scheduler make of a change
measure  excess, and what the loss of a domain would take
play     a month under nothing, evictions, prevention, both
"""

from rebalancer.month.play import Lived, Variant, play

__all__ = ["Lived", "Variant", "play"]
