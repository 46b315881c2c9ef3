"""Unit tests of rebalancer.planner.waves."""
