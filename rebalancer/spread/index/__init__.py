"""How much of the spread is violated now, kept up to date by each change of a pod or a node."""

from rebalancer.spread.index.index import SpreadIndex

__all__ = ["SpreadIndex"]
