"""Tests of what keeps a cycle from evicting, or from evicting more, over HTTP."""
