"""Evicting a pod through the Eviction API, and what became of it."""
