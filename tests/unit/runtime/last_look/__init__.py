"""Unit tests of rebalancer.runtime.last_look."""
