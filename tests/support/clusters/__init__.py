"""Clusters to test with: broken ones by hand, at random, and from files."""
