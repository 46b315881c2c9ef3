"""Unit tests of rebalancer.findings, and of `lint`, which prints them."""
