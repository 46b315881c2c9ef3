"""Unit tests of rebalancer.planner.bounds."""
