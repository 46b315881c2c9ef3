"""Unit tests of rebalancer.planner.search."""
