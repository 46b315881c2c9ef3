"""Topology spread: constraints resolved, pods counted per node and domain, skew and excess."""
