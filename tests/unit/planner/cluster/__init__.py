"""Unit tests of rebalancer.planner.cluster."""
