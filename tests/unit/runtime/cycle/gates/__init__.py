"""Unit tests of rebalancer.runtime.cycle.gates."""
