"""Unit tests of rebalancer.manifests."""
