"""Unit tests of rebalancer.engine."""
