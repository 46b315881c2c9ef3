"""Unit tests of rebalancer.telemetry."""
