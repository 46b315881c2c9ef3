"""Unit tests of rebalancer.policy.history."""
