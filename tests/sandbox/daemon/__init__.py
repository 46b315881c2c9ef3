"""Tests of the daemon, over HTTP."""
