"""Unit tests of rebalancer.policy.limits."""
