"""Unit tests of rebalancer.runtime.daemon."""
