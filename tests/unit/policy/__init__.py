"""Unit tests of rebalancer.policy."""
