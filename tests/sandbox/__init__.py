"""Tests over real HTTP, against the embedded cluster."""
