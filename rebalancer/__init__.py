"""Restores Kubernetes topology spread with the fewest evictions, proved by simulation."""

__version__ = "0.1.0"
