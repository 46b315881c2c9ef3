"""Unit tests of rebalancer.planner.phases."""
