"""Unit tests of rebalancer.drill."""
