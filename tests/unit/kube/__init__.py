"""Unit tests of rebalancer.kube."""
