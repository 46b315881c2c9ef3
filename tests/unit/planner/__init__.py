"""Unit tests of rebalancer.planner."""
