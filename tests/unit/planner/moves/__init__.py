"""Unit tests of rebalancer.planner.moves."""
