"""Unit tests of rebalancer.runtime.cycle.memory."""
