"""Unit tests of rebalancer.runtime."""
