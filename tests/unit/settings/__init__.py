"""Unit tests of rebalancer.settings."""
