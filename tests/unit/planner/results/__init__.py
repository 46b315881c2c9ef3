"""Unit tests of rebalancer.planner.results."""
