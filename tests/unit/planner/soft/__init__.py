"""Unit tests of rebalancer.planner.soft."""
