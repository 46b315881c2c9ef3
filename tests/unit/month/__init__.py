"""Tests of the simulated month."""
