"""Unit tests of rebalancer.report."""
